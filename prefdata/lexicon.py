"""What each character is to the word splitter, and the words that turn a sentence round: data, packed."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

# The class of a character (low three bits) ...
SPACE, WORD, SINGLE, SKIP, JOIN, CLASS = 0, 1, 2, 3, 4, 7
# ... and what it says of its token: never a small edit; a sign of code; a digit; may belong to the number behind
# it; an apostrophe.
CONTENT, MARK, DIGIT, SIGN, APOSTROPHE = 8, 16, 32, 64, 128

# Scripts written without spaces: every character is a word. (Hangul has spaces, so it is not among them.)
_UNSPACED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF),
    (0x1B00, 0x1B7F), (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x312F), (0x31A0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA980, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F), (0x16FE0, 0x18DFF), (0x1AFF0, 0x1B2FF),
)  # fmt: skip
# Long runs of one category, which need no look at each character: Han, Hangul, private use, Tangut and what lies there.
_ALIKE = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x17000, 0x187F7))
# Shown as nothing, though Unicode calls some of them letters; U+200C and U+200D are joiners, see ``words``.
_UNSEEN = (
    (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0000, 0xE001F), (0xE0080, 0xE0FFF),
)  # fmt: skip
# Negation and numerals of one character; the Korean ones stand inside a word. 一 and "one" are left out on
# purpose: they are articles too, and where they become another number that number shows.
_TURNING = "不没沒無无非未别別勿莫弗否禁两二三四五六七八九十百千万萬亿億零〇半않없못"
_SYMBOLS = "%&*\\^`{}"

_WORDS = """
not no non none never nor neither nobody nothing nowhere without cannot cant wont dont doesnt didnt isnt
arent wasnt werent wouldnt shouldnt couldnt hasnt havent hadnt aint unless except false
two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand
million billion half twice
no nunca jamás ningún ninguno ninguna nada nadie tampoco sin ni
ne pas jamais aucun aucune rien personne sans
nicht kein keine keinen keinem keiner keines nie niemals niemand nichts ohne weder
não nao nenhum nenhuma nem sem ninguém nessuno nessuna niente senza né mai
niet geen nooit niemand niets zonder inte ingen inget aldrig utan ikke aldri uden uten
не Не нет Нет ни никогда никто ничего без Без нельзя немає ні ніколи
nie nigdy bez není nem nincs soha nélkül nu fără
değil yok hiç asla không chưa chẳng đừng tidak bukan jangan tanpa belum δεν Δεν μη μην όχι χωρίς
לא אין בלי لا لم لن ليس ليست غير بدون دون نه هیچ نیست नहीं नही मत बिना না নেই இல்லை
안 아니 아니다 아니요 없이
"""
# Two characters that deny together: Japanese ない なく なか(った) なけ(れば) せん ずに, Thai ไม่, Lao ບໍ່.
_PAIRS = ("ない", "なく", "なか", "なけ", "せん", "ずに", "ไม", "ບໍ")

P = np.uint64(0x9E3779B97F4A7C15)  # base of the hash of a word's bytes
Q = np.uint64(0xD1342543DE82EF95)  # base of the hash of a sequence of words
A, B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SLOTS = 1 << 14

# A line with no more words than this for each sign of code is code; so is an indented one that begins with a
# letter.
TOKENS_PER_MARK, INDENT = 24, 4
LINE, TAB, TICK, SEMICOLON, CALL, T = 10, 9, ord("`"), ord(";"), ord("("), ord("t")


def mixed(h: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the input moves every bit of the output."""
    h = (h ^ (h >> np.uint64(30))) * A
    h = (h ^ (h >> np.uint64(27))) * B
    return h ^ (h >> np.uint64(31))


@cache
def classes() -> npt.NDArray[np.uint8]:
    """Class and flags of every code point."""
    table = np.full(0x110000, SINGLE, np.uint8)  # also of what is private or not assigned
    number = WORD | CONTENT | DIGIT
    kinds = dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me"), WORD)
    kinds |= dict.fromkeys(("Nd", "Nl", "No"), number) | dict.fromkeys(("Sm", "Sc"), SINGLE | CONTENT)
    kinds |= dict.fromkeys(("Zs", "Zl", "Zp", "Cc", "Cs"), SPACE) | {"Cf": SKIP}
    at = 0
    for low, high in (*_ALIKE, (0x20000, 0x1FFFF)):
        table[at:low] = [kinds.get(unicodedata.category(chr(i)), SINGLE) for i in range(at, low)]
        table[low : high + 1] = kinds.get(unicodedata.category(chr(low)), SINGLE)
        at = high + 1
    for low, high in _UNSPACED:
        block = table[low : high + 1]
        block[block == WORD] = SINGLE
    table[0x0600:0x0606] = SINGLE  # visible, though of the category of format characters
    for low, high in _UNSEEN:
        table[low : high + 1] = SKIP
    table[0x2800] = SPACE
    table[0x200C:0x200E] = JOIN
    flags = {_TURNING + _SYMBOLS: CONTENT, "={}<": MARK, "+-.,:/−–": SIGN, "'’ʼ": APOSTROPHE}
    for characters, flag in flags.items():
        for c in characters:
            table[ord(c)] |= flag
    table[ord("ʼ")] = SINGLE | APOSTROPHE  # a letter to Unicode
    return table


def _hash(word: str) -> int:
    h = 0
    for byte in word.encode():
        h = (h * int(P) + byte) & 0xFFFFFFFFFFFFFFFF
    return int(mixed(np.array([h], np.uint64))[0])


@cache
def vocabulary() -> tuple[npt.NDArray[np.uint64], np.uint64]:
    """Hash table without collisions of the turning words and pairs, and the shift that makes it so.

    A word ``h`` is in it if ``table[(h >> shift) % SLOTS] == h``; a pair is looked up as ``first * Q + second``.
    """
    found = {_hash(w) for w in _WORDS.split()}
    found |= {(_hash(p[0]) * int(Q) + _hash(p[1])) & 0xFFFFFFFFFFFFFFFF for p in _PAIRS}
    hashes = np.array(sorted(found), np.uint64)
    for shift in range(50):
        slots = (hashes >> np.uint64(shift)) % np.uint64(SLOTS)
        if len(np.unique(slots)) == len(slots):
            table = np.zeros(SLOTS, np.uint64)
            table[slots.astype(np.intp)] = hashes
            return table, np.uint64(shift)
    raise AssertionError("no shift without collisions: make SLOTS larger")
