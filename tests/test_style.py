"""The counts of style against a plain reading of their definitions, one text at a time."""

import math
import re
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefdata import style as module
from prefdata.pairs import Pair, Pairs
from prefdata.style import NAMES, styles

HAN = "\u4e00-\u9fff"
WORDS = re.compile(rf"[{HAN}]|[^\W{HAN}]+")
EDGE = rf"(?<![^\W{HAN}])(?:%s)(?![^\W{HAN}])"
SAID = {
    "refusing": (
        r"sorry|can['’]?t|cannot|can not|unable|won['’]?t|as an ai|language model|illegal|unethical|harmful|inappropriate|not sure"
        r"|not (?:able|appropriate|comfortable)|i (?:do not|don['’]t) (?:know|think|have|understand)",
        "抱歉|无法|不能|不适合|对不起|违法|不道德",
    ),
    "hedging": (
        "maybe|perhaps|might|could|may|possibly|probably|seems?|i think|i believe|generally|usually",
        "可能|也许|大概",
    ),
    "first_person": ("i|me|my", "我"),
    "second_person": ("you|your", "你|您"),
    "polite": (
        "please|thanks?|welcome|glad|happy|hope|great|sure|of course|certainly|absolutely",
        "谢谢|请",
    ),
    "advising": (
        "should|must|(?:need|have) to|recommend|important|consider|help|talk|safe|professional",
        "应该|建议|重要",
    ),
    "negating": (
        r"no|not|never|n['’]t|none|nothing|isn['’]?t|don['’]?t|doesn['’]?t|bad|wrong",
        "不|没",
    ),
    "rude": (r"damn|hell|shit|fuck[^\W一-鿿]*|ass|bitch|stupid|idiot|crap|hate|kill|steal|dumb", "(?!)"),
}


def small(text):
    return "".join(c.lower()[0] if c.isupper() else c for c in text)


def said(kind, text):
    """Where each match ends. Every place may begin one: "can not able" has two."""
    english, chinese = SAID[kind]
    spans = re.finditer(f"(?=({EDGE % english}|{chinese}))", small(text))
    return [m.end(1) for m in spans]


def repeated(n, words):
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def plain(text, prompt):
    """The definitions, in the order of ``NAMES``."""
    words, asked = WORDS.findall(small(text)), WORDS.findall(small(prompt[-1500:]))
    chars, n, mine, theirs = len(text), len(words), set(words), set(asked)
    sentences = max(1, len(re.findall("[.!?。！？]+", text)))
    lines = len(re.findall(r"(?m)^\s*(?:[-*•]|\d+[.)、])\s", text))
    pairs, triples = repeated(2, words), repeated(3, words)
    last = text.rstrip()[-1:]
    share = {kind: len(said(kind, text)) / (n + 5) for kind in SAID}
    early = {kind: any(end <= 60 for end in said(kind, text)) for kind in SAID}

    def of_chars(test):
        return sum(map(test, text)) / (chars + 5)

    return {
        "log_chars": math.log(chars + 1),
        "log_words": math.log(n + 1),
        "log_sentences": math.log(sentences + 1),
        "log_lines": math.log(text.count("\n") + 2),
        "words_per_sentence": min(n / sentences, 60),
        "word_length": sum(map(len, words)) / max(n, 1),
        "distinct_words": len(mine) / (n + 3) ** 0.8,
        "log_list_items": math.log(lines + 1),
        "log_headings": math.log(len(re.findall(r"(?m)^\s*#{1,6}\s", text)) + 1),
        "log_bold": math.log(len(re.findall(r"\*\*[^*]+\*\*", text)) + 1),
        "log_fences": math.log(text.count("```") + 1),
        "question_marks": text.count("?") / sentences,
        "ends_with_question": last == "?",
        "exclamation_marks": text.count("!") / sentences,
        "digits": of_chars(str.isdigit),
        "upper_case": of_chars(str.isupper),
        "symbols": of_chars(lambda c: not c.isalnum() and not c.isspace()),
        "double_quotes": text.count('"') / (n + 5),
        "parentheses": text.count("(") / (n + 5),
        "non_ascii": of_chars(lambda c: not c.isascii()),
        "han": of_chars(lambda c: "\u4e00" <= c <= "\u9fff"),
        "refusing": share["refusing"],
        "starts_refusing": early["refusing"],
        "hedging": share["hedging"],
        "first_person": share["first_person"],
        "second_person": share["second_person"],
        "polite": share["polite"],
        "starts_polite": early["polite"],
        "advising": share["advising"],
        "negating": share["negating"],
        "rude": share["rude"],
        "log_links": math.log(len(re.findall(r"https?://|www\.", text)) + 1),
        "commas": text.count(",") / (n + 5),
        "colons": text.count(":") / (n + 5),
        "words_in_prompt": sum(w in theirs for w in words) / (n + 3),
        "prompt_covered": len(mine & theirs) / (len(theirs) + 3),
        "prompt_jaccard": len(mine & theirs) / (len(mine | theirs) + 3),
        "prompt_bigrams": len(set(pairs) & set(repeated(2, asked))) / (len(pairs) + 3),
        "repeated_trigrams": 1 - len(set(triples)) / max(1, len(triples)),
        "word_entropy": -sum(k / n * math.log(k / n) for k in Counter(words).values()),
        "ends_with_stop": last != "" and last in ".!?。！？\"')`:”）",
        "starts_lower_case": text[:1].islower(),
        "starts_as_prompt": words[:1] == asked[:1] != [],
        "at_most_four_words": n <= 4,
        "starts_sure": text.startswith(("Sure", "Yes", "Of course", "Certainly", "Absolutely")),
        "starts_no": text.startswith(("No", "I'm sorry", "Sorry", "I don", "抱歉", "对不起", "不")),
        "starts_asking": text.startswith(("What", "How", "Why", "Can", "Do", "Are", "Is")),
    }


def of(texts, prompts=None):
    prompts = [""] * len(texts) if prompts is None else prompts
    return styles(pa.array(prompts, pa.string()), pa.array(texts, pa.string()))[0]


def check(texts, prompts):
    for got, text, prompt in zip(of(texts, prompts), texts, prompts, strict=True):
        want = plain(text, prompt)
        wrong = {
            name: (float(g), float(want[name]))
            for name, g in zip(NAMES, got, strict=True)
            if not math.isclose(g, want[name], rel_tol=1e-5, abs_tol=1e-6)
        }
        assert not wrong, (text, prompt)


SAYINGS = """i me my you can not able sure do don t know think have as an ai language model need to of course sorry won isn n no never
hate fucking Fuck fuck_x assess kill SHOULD Perhaps seems thanks Great Sure What Python naïve É İ ß ſ _ a_b"""
BITS = [
    *SAYINGS.split(),
    " ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\x1c", "\u3000", "\u00a0", "'", "’", "n't", "can’t", "don't", "1. ", "12) ", "3、", "1.", "²) ",
    "- ", "-", "* ", "• ", "**", "*", "# ", "#", "######", "```", "`", "?", "!", ".", "...", "。", "！", "？", "”", "）", '"', "(", ")", ",", ":",
    "http://", "https://", "www.", "w", "我", "你", "您", "请", "谢谢", "不", "不能", "不适合", "没", "对不起", "抱歉", "应该", "可能", "人", "カナ", "한국", "٣",
    "👍", "👩\u200d💻", "\U00020000", "\x00", "x = f(y)", "5",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(BITS) | st.text(max_size=3), max_size=30).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
def test_counts_are_what_they_are_defined_to_be(rows):
    check(*zip(*rows, strict=True))


ANSWERS = [
    "I'm sorry, but I can't help with that. It's illegal, and as an AI I don't think you should do it!",
    'Sure! Here is a list:\n\n1. **Eat** well.\n2. Sleep\n\n  - and rest\n# Why\n\nSee https://a.org or www.b.org ("really").',
    "```python\ndef f(x):\n    return x != 3  # not now\n```\nThat is it?",
    "抱歉，我不能帮助您做这件事。这是违法的，建议您去找专业人士。也许可以用 Python 写。",
    "我觉得iPhone很好，你可以看看https://apple.com吧！谢谢",
    "👍👍👍 great 🎉",
    "",
    " \n ",
    "A",
    "?",
    "the the the the the the the the",
    "What do you think? I think so too, " * 400,
    "很好" * 3000,
]


def test_ordinary_texts():
    check(ANSWERS, ["What do you think of the list? Can you help?"] * len(ANSWERS))


def test_published_pairs(shared):
    import gzip
    import json

    with gzip.open(shared / "data/llama-factory/dpo_zh_demo.json.gz", "rt", encoding="utf-8") as file:
        rows = json.load(file)[:60]
    with gzip.open(shared / "data/llama-factory/dpo_en_demo.json.gz", "rt", encoding="utf-8") as file:
        rows += json.load(file)[:60]
    prompts = ["\n".join(m["value"] for m in row["conversations"]) for row in rows]
    check([row["chosen"]["value"] for row in rows], prompts)


def test_names():
    assert len(set(NAMES)) == len(NAMES) == 47 == of(["x"]).shape[1]
    assert list(plain("x", "y")) == list(NAMES)


def test_a_start_is_sixty_characters_and_no_part_of_a_word():
    at = NAMES.index("starts_refusing")
    assert of(["a " * 27 + "sorry x", "a " * 27 + " sorry x", "a " * 28 + " sorry", "not sur" + "e" * 60])[
        :, at
    ].tolist() == [1, 1, 0, 0]


def test_the_end_of_the_prompt_is_what_counts():
    at = NAMES.index("words_in_prompt")
    prompts = ["word " + "x" * 1495, "word " + "x" * 1496, "word", "番" * 1495 + " word"]
    assert (of(["word"] * 4, prompts)[:, at] > 0).tolist() == [True, False, True, True]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=8), st.integers(1, 3), st.sampled_from([1, 90, 300_000]))
def test_a_text_has_the_same_bits_in_any_batch(rows, cut, block):
    texts, prompts = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    whole = styles(prompts, texts)[0]
    before, module._BLOCK = module._BLOCK, block
    try:
        parts = [styles(prompts[i : i + cut], texts[i : i + cut])[0] for i in range(0, len(rows), cut)]
        small_blocks = styles(prompts, texts)[0]
    finally:
        module._BLOCK = before
    assert np.concatenate(parts).tobytes() == whole.tobytes() == small_blocks.tobytes()


def test_many_short_texts_in_one_go():
    texts = [f"{i} no" for i in range(70_000)]
    got = of(texts)
    assert got[-1].tobytes() == of(texts[-1:]).tobytes()
    assert (got[:, NAMES.index("negating")] == np.float32(1 / 7)).all()


def test_chosen_and_rejected_are_treated_alike():
    pairs = [Pair("What is it?", a, b) for a, b in zip(ANSWERS, reversed(ANSWERS), strict=True)]
    turned = [Pair(p.prompt, p.rejected, p.chosen) for p in pairs]
    chosen, rejected = Pairs.of(pairs).style
    assert [a.tobytes() for a in Pairs.of(turned).style] == [rejected.tobytes(), chosen.tobytes()]
    assert chosen.dtype == np.float32
    assert chosen.tobytes() == of(ANSWERS, ["What is it?"] * len(ANSWERS)).tobytes()


def test_no_pairs():
    empty = pa.array([], pa.string())
    assert [a.shape for a in styles(empty, empty, empty)] == [(0, 47), (0, 47)]


@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "\n" * 100_000, " " * 1_000_000, "1" * 1_000_000, "**" * 300_000, "**a" * 300_000, "# " * 300_000, "`" * 500_000,
     "不" * 300_000, "i don't " * 100_000, "1.\n" * 300_000, "\n#" * 300_000, "can not " * 100_000],
)  # fmt: skip
def test_no_text_takes_long(text):
    of(["warm"])
    began = time.process_time()
    found = of([text], [text])
    assert time.process_time() - began < 2.5
    assert np.isfinite(found).all()
