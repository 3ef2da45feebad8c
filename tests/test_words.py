"""Words of any script; numba and numpy agree; what is content; MinHash against an oracle."""

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefdata import near, words_numpy
from prefdata import words as module
from prefdata.text import Words, words

BITS = [
    "not", "don't", "can’t", "x", "A", "I", "5", "-3.5", "1,000", "foo(", "`", "```", "\n", "\n    ", "\t", "=", "{", "}",
    ";", " ", "  ", "Word", "été", "不", "没有", "番茄", "ไม่", "น้ำ", "👍🏽", "👨\u200d👩", "\u200b", "\u200d", "\ufe0f", "ی\u200cم",
    "없다", "한국", "ない", "かな", "٣", "²", "\x1e", "\x1f", "(", "<b>", "–7", "€", "❤️", "𝒳", "𠀀", "'t", "n", "”", "…", "\n```py\n",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(BITS) | st.text(max_size=4), max_size=25).map("".join)


def of(*texts: str) -> Words:
    return words(pa.array(texts, pa.string()))


def hashes(text: str) -> list[int]:
    return of(text).hashes.tolist()


def content(text: str) -> int:
    return int(of(text).content[0])


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=6), st.integers(0, 2))
def test_numba_and_numpy_agree(texts, skipped):
    pytest.importorskip("numba")
    array = pa.array(["left out"] * skipped + texts, pa.string())[skipped:]
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.cumsum([0, *(len(t.encode()) for t in texts)])
    compiled, plain = module.with_numba(data, offsets), words_numpy.scan(data, offsets)
    got = words(array)
    for a, b, c in zip(compiled, plain, (got.hashes, got.offsets, got.content), strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)


def test_numba_without_a_place_for_its_cache(monkeypatch):
    numba = pytest.importorskip("numba")
    real = numba.njit

    def njit(**options):
        if options.get("cache"):
            raise RuntimeError("no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    module._compiled.cache_clear()
    try:
        found = module.with_numba(np.frombuffer(b"two words", np.uint8), np.array([0, 9]))
    finally:
        module._compiled.cache_clear()
    assert found[0].tolist() == hashes("two words")


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=6))
def test_a_text_alone_has_the_words_it_has_in_a_batch(texts):
    whole = of(*texts)
    for i, text in enumerate(texts):
        assert hashes(text) == whole.hashes[whole.offsets[i] : whole.offsets[i + 1]].tolist()
        assert content(text) == int(whole.content[i])
    large = words(pa.array(texts, pa.large_string()))
    assert np.array_equal(large.hashes, whole.hashes)


@pytest.mark.parametrize(
    ("text", "n"),
    [("Two words", 2), ("two,words", 3), ("番茄很好", 4), ("ไม่มี", 5), ("한국 사람", 2), ("कैसे हो", 2), ("👍🏽", 2), ("?!", 2),
     ("", 0), (" \t\n", 0), ("\u200b", 0), ("don't", 3), ("naïve café", 2), ("مرحبا بكم", 2), ("かたカナ", 4), ("GPT4", 1)],
)  # fmt: skip
def test_counts(text, n):
    assert len(hashes(text)) == n


def test_case_and_hidden_marks_do_not_count_but_signs_do():
    assert hashes("Hello World") == hashes("hello\u200b  wo\u00adrld\n") == hashes("hel\u200dlo world\ufeff")
    assert hashes("👍🏽") != hashes("👍")
    assert hashes("👨\u200d👩") != hashes("👨👩")
    assert hashes("?") != hashes("!")
    assert hashes("می\u200cخواهم") != hashes("میخواهم")


@pytest.mark.parametrize(
    ("one", "other"),
    [("It costs 5 euros", "It costs 6 euros"), ("about 3.5 m", "about 35 m"), ("at -5 degrees", "at 5 degrees"),
     ("you can do it", "you can't do it"), ("you can do it", "you can’t do it"), ("It is safe", "It is not safe"),
     ("with sugar", "without sugar"), ("two eggs", "three eggs"), ("answer B", "answer C"), ("answer A", "answer B"),
     ("我喜欢", "我不喜欢"), ("有", "没有"), ("ฉันชอบ", "ฉันไม่ชอบ"), ("食べる", "食べない"), ("좋다", "좋지 않다"),
     ("es ist gut", "es ist nicht gut"), ("это хорошо", "это не хорошо"), ("đi", "không đi"), ("अच्छा", "अच्छा नहीं"),
     ("use `sort` here", "use `sorted` here"), ("```\nsort it\n```", "```\nsave it\n```"), ("print(name)", "print(value)"),
     ("x = size", "x = length"), ("    return first", "    return other"), ("return first;", "return other;"),
     ("a < b", "a > b"), ("五个苹果", "六个苹果"), ("1|20", "20|1"), ("٣", "٤"), ("true", "false")],
)  # fmt: skip
def test_never_a_small_edit(one, other):
    assert content(one) != content(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a warm day", "the cold day"), ("First, rinse it.", "First, wash it!"), ("很好的天气。", "很好的心情。"),
     ("“quoted” text", '"quoted" text'), ("it's a dog", "he's a dog"), ("one cup", "a cup"), ("ดีมาก", "สวยมาก")],
)  # fmt: skip
def test_a_small_edit(one, other):
    assert content(one) == content(other)


def test_a_word_edited_leaves_most_pairs():
    text = (
        "the quick brown fox jumps over the lazy dog while a second crowd of people watches from the old wooden bridge"
    )
    both = [near.grams(of(t).hashes) for t in (text, text.replace("lazy", "sleepy"))]
    assert near.jaccard(*both) > 0.8


def test_signatures_estimate_as_well_as_datasketch():
    datasketch = pytest.importorskip("datasketch")
    rng = np.random.default_rng(5)
    ours, theirs, true = [], [], []
    for share in np.repeat([0.2, 0.5, 0.8], 25):
        base = rng.integers(0, 2**32, 200).astype(np.uint32)
        other = np.where(rng.random(200) < share, base, rng.integers(0, 2**32, 200)).astype(np.uint32)
        true.append(near.jaccard(*(np.unique(x).astype(np.uint64) for x in (base, other))))
        signs = near.signatures(np.concatenate([base, other]).astype(np.uint64), np.array([0, 200, 400]))
        ours.append((signs[0] == signs[1]).mean())
        made = []
        for values in (base, other):
            m = datasketch.MinHash(near.BANDS * near.ROWS, hashfunc=int)
            m.update_batch(values.tolist())
            made.append(m)
        theirs.append(made[0].jaccard(made[1]))
    error = np.abs(np.subtract(ours, true))
    assert error.mean() < 1.3 * np.abs(np.subtract(theirs, true)).mean()
    assert abs(np.subtract(ours, true).mean()) < 0.015


@given(st.lists(st.integers(0, 4), max_size=12), st.lists(st.integers(0, 4), max_size=12))
def test_index_is_that_of_sets(a, b):
    one, other = (set(itertools.pairwise(x)) or set(x) for x in (a, b))
    found = near.jaccard(*(near.grams(np.array(x, np.uint32)) for x in (a, b)))
    if (len(a) == 1) == (len(b) == 1):  # a word and a pair are never equal: real hashes are not this small
        assert found == len(one & other) / max(1, len(one | other))


def test_signature_does_not_change():
    signs = near.signatures(np.arange(10, dtype=np.uint64), np.array([0, 3, 3, 10]))
    assert np.array_equal(signs, near.signatures(np.arange(10, dtype=np.uint64), np.array([0, 3, 3, 10])))
    assert signs.shape == (3, near.BANDS * near.ROWS)


def test_roles_content_and_emptiness_keep_bands_apart():
    def keys(*row: str) -> set[int]:
        return set(near.bands([of(t) for t in row]).ravel().tolist())

    a, b = "one long answer about gardens and trees", "another short reply on cars and roads"
    assert keys("p", a, b).isdisjoint(keys("p", b, a))
    assert keys("p", a, b) == keys("P", a, b + " ")
    assert keys("p", a, b).isdisjoint(keys("p", a + " 5", b))
    for one, other in itertools.combinations(["", "?", "!", "👍", "👎", "yes", "no", "Yes?"], 2):
        assert keys("p", one, "x").isdisjoint(keys("p", other, "x")) or content(one) == content(other)
        assert keys("p", one, one) != keys("p", other, other)


def test_banding_finds_near_texts():
    rng = random.Random(3)
    spoken = ["".join(rng.choices("abcdefgh", k=6)) for _ in range(2000)]
    rows = [rng.choices(spoken, k=120) for _ in range(300)]
    edited = [[rng.choice(spoken) if rng.random() < 0.05 else w for w in row] for row in rows]
    texts = [of(" ".join(r)) for r in rows + edited]
    made = near.bands([of(*(" ".join(r) for r in rows + edited))])
    grams = [near.grams(t.hashes) for t in texts]
    at = [i for i in range(300) if near.jaccard(grams[i], grams[300 + i]) >= 0.8]
    assert len(at) > 100
    assert np.mean([(made[i] == made[300 + i]).any() for i in at]) > 0.98


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.lists(st.integers(0, 9), max_size=3)), max_size=5)
)
def test_woven(rows):
    parts = [np.array([x for r in rows for x in r[k]], np.int64) for k in range(2)]
    offsets = [np.cumsum([0, *(len(r[k]) for r in rows)]) for k in range(2)]
    flat, at = near.woven(parts, offsets)
    assert [flat[at[i] : at[i + 1]].tolist() for i in range(len(rows))] == [r[0] + r[1] for r in rows]
