from __future__ import annotations

import gzip
import json
import random
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frame import decide, having, signals
from hypothesis import given, settings
from hypothesis import strategies as st

from prefdata import encoders, similarity
from prefdata.errors import ConfigError, MissingExtra
from prefdata.pairs import Pair, Pairs
from prefdata.stages.similar_responses import SimilarResponses

METRICS = ("ratio", "rouge_l", "bleu", "cosine")


def kind(chosen: Any, rejected: Any) -> int:
    return SimilarResponses().measure(Pairs.of([Pair("q", chosen, rejected)]))["kind"][0].as_py()  # type: ignore[no-any-return]


def found(made: Any, name: str) -> Any:
    return next(f for f in made.findings if f.name == name)


def skip_without(metric: str) -> None:
    if metric in ("bleu", "cosine"):
        pytest.importorskip("sacrebleu" if metric == "bleu" else "wordllama")


@pytest.mark.parametrize("metric", METRICS)
def test_case_07_identical_answers(case: Any, metric: str) -> None:
    skip_without(metric)
    ids, rows = case("07-identical-answers")
    made = decide(rows, SimilarResponses(metric=metric))
    assert having(made, ids, "drop") == ["i1", "i2", "i3", "i4", "i5", "i8"]
    assert set(made.by_reason()) == {"identical_pair"}
    assert (found(made, "identical_exact").value, found(made, "identical_normalised").value) == (2, 4)


@pytest.mark.parametrize("metric", METRICS)
def test_case_27_very_similar_answers(case: Any, metric: str) -> None:
    skip_without(metric)
    ids, rows = case("27-very-similar-answers")
    made = decide(rows, SimilarResponses(metric=metric))
    assert having(made, ids, "drop") == ["s3"] and made.by_reason() == {"too_similar": {"drop": 1}}
    assert np.isfinite(made.score).all() and (made.score >= 0).all() and (made.score <= 1).all()
    assert made.score[ids.index("s4")] < 0.995, "the whole text is looked at"
    assert found(made, "small_but_decisive").rows == (0, 1, 3)


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        ("one two", "one two", 1),
        ("one two", "one two \n", 2),
        ("a\nb", "a  \r\nb", 2),
        ("e\u0301t\u00e9 ici", "\u00e9t\u00e9 ici", 2),
        ("a\u200bb", "ab", 2),
        ("    return x", "return x", 4),  # the first line's indentation is code
        ("if x:\n    return 1", "if x:\n  return 1", 4),  # white space inside counts
        ("Turkey", "turkey", 0),
        ("42", "42.", 0),
        ("We left early and it was late.", "We left early, and it was **late**", 3),
        ("We left early and it was LATE.", "We left early, and it was late.", 0),
        ("We left at 5 and it was late.", "We left at 5, and it was late.", 4),  # digits
        ("So use foo.bar to do it now", "So use foobar to do it now", 4),  # a mark inside a word
        ("So use foo_bar to do it now", "So use foobar to do it now", 4),
        ("call f() then go on to it", "call f() then, go on to it", 4),  # code
        ("Only four words here", "Only four words here.", 4),
        ("Is it so? Yes it is.", "Is it so! Yes it is.", 4),  # other marks are content
        ("今天天气很好，我们去公园吧。", "今天天气很好我们去公园吧", 3),
        ("今天好。", "今天好", 0),
    ],
)
def test_kinds(chosen: str, rejected: str, expected: int) -> None:
    assert kind(chosen, rejected) == kind(rejected, chosen) == expected


def test_messages_that_differ_only_in_their_reasoning_are_not_identical() -> None:
    a = [{"role": "assistant", "content": "Yes.", "reasoning_content": "It must be."}]
    b = [{"role": "assistant", "content": "Yes.", "reasoning_content": "A guess."}]
    assert kind(a, b) == 4 and kind(a, list(a)) == 1
    assert kind(a, [{**a[0], "id": 7}]) == 1, "what no template renders does not count"


def test_max_similarity_drops_at_the_limit_and_above() -> None:
    rows = [("q", "abcd", "abce"), ("q", "abcd", "wxyz"), ("q", "abcd", "abcd")]
    made = decide(rows, SimilarResponses(max_similarity=0.75))
    assert made.action.tolist() == [2, 0, 2] and made.score[0] == 0.75
    assert made.by_reason() == {"too_similar": {"drop": 1}, "identical_pair": {"drop": 1}}
    assert made.limit.tolist() == [0.75] * 3
    assert decide(rows, SimilarResponses(max_similarity=0.76)).count("drop") == 1
    # 0.7 is no float32: a score of exactly 0.7 is still at the limit
    assert decide([("q", "abcdefghij", "abcdefgxyz")], SimilarResponses(max_similarity=0.7)).count("drop") == 1
    flagged = decide(rows, SimilarResponses(max_similarity=0.75, action="flag"))
    assert flagged.action.tolist() == [1, 0, 1]
    assert found(made, "similarity_from_0.7").value == 2


@pytest.mark.parametrize("metric", METRICS)
def test_scores_do_not_depend_on_order_or_batch(metric: str) -> None:
    skip_without(metric)
    rnd = random.Random(5)
    words = "the red boat 日本 sank... near 12 the old Pier! 👍 said *she* never, ever 中文。".split()  # noqa: SIM905
    texts = [" ".join(rnd.choices(words, k=rnd.randint(1, 30))) for _ in range(120)]
    rows = [("q", a, b) for a, b in zip(texts[::2], texts[1::2], strict=True)] + [("q", "?!", "…"), ("q", "x", "?")]
    stage = SimilarResponses(metric=metric)
    whole = signals(rows, stage).column("similar_responses.score")
    cut = signals(rows, stage, batch=7).column("similar_responses.score")
    swapped = signals([(p, r, c) for p, c, r in rows], stage).column("similar_responses.score")
    assert (whole == cut).all() and (whole == swapped).all()
    assert np.isfinite(whole).all() and whole.min() >= 0 and whole.max() <= 1 and len(set(whole)) > 40


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text(a: str, b: str) -> None:
    one, other = ([f(x, y) for x, y in ((a, b), (b, a))] for f in (kind, lambda x, y: similarity.ratios([x], [y])[0]))
    assert one[0] == one[1] and other[0] == other[1] and 0 <= other[0] <= 1
    if a == b:
        assert one[0] == 1


def test_long_texts_are_compared_by_words_in_bounded_time() -> None:
    rnd = random.Random(1)
    words = ["".join(rnd.choices("abcdefghij", k=5)) for _ in range(3000)]
    a, b = (" ".join(rnd.choices(words, k=6000)) for _ in range(2))
    near = a.replace(words[0], "other", 1)
    assert similarity.ratios([a, a], [near, b]).tolist() == pytest.approx([1, 0.1], abs=0.1)
    assert similarity.ratios([a], [near])[0] < 1
    assert kind(a, near) == 4 and kind(a, b) == 0


def planted(n: int) -> list[tuple[str, str, str]]:
    """Own sentences and an edit that is none: marks, line ends, white space at the end, Unicode form, hidden marks."""
    rnd = random.Random(11)
    nouns = "café harbour keeper lantern orchard violin kitchen teacher river window naïveté winter".split()  # noqa: SIM905
    verbs = "finds remembers paints carries forgets describes follows repairs".split()  # noqa: SIM905
    out = []
    for i in range(n):
        words = []
        for _ in range(rnd.randint(2, 6)):
            words += ["the", rnd.choice(nouns), rnd.choice(verbs), "a", rnd.choice(nouns), "and"]
        text = " ".join(words) + " nothing else happens."
        k = rnd.randrange(len(words))
        commas = " ".join([*words[:k], words[k] + ",", *words[k + 1 :]]) + " nothing else happens."
        stars = " ".join([*words[:k], f"**{words[k]}**", *words[k + 1 :]]) + " nothing else happens."
        edits = (text, text + " \n", text.replace(" and ", "\u200b and ", 1), commas, text[:-1], stars)
        out.append(("Tell me a story.", text, edits[i % len(edits)]))
    return out


def test_planted_pairs_are_caught() -> None:
    rows = planted(1200)
    made = decide(rows, SimilarResponses())
    by = {k: v["drop"] for k, v in made.by_reason().items()}
    assert made.count("drop") >= 0.99 * len(rows) and by["identical_pair"] >= 594 and by["too_similar"] >= 594
    # the same sentences with one word changed are all kept
    other = [(p, c, c.replace(" a ", " no ", 1)) for p, c, _ in rows]
    assert decide(other, SimilarResponses()).count("drop") == 0


def published(shared: Path, file: str) -> list[Any]:
    path = shared / "data" / file
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if "tool-augmented" in file or file.endswith((".jsonl", ".jsonl.gz")):
        return [json.loads(line) for line in raw.splitlines()]
    return json.loads(raw)  # type: ignore[no-any-return]


def test_right_pairs_of_published_sets_are_kept(shared: Path) -> None:
    sets: dict[str, list[tuple[str, str, str]]] = {}
    for file in ("Natural", "Adversarial-Neighbor", "Processed-LLMEval2", "Processed-FairEval"):
        sets.setdefault("llmbar", []).extend(
            (r["input"], r["output_1"], r["output_2"]) for r in published(shared, f"llmbar/{file}.json")
        )
    sets["ifbench"] = [
        ("q", r["text_chosen"][-1]["content"], r["text_rejected"][-1]["content"])
        for r in published(shared, "ifbench/data.converted.json.gz")
    ]
    for name in ("correctness", "efficiency"):
        rows = published(shared, f"codeprefbench/{name}-alignment.jsonl.gz")
        sets[name] = [(r["instruction"], *r["choices"]) for r in rows]
    tools = published(shared, "tool-augmented-rm/agent_multi_tools_test_action.json.gz")
    sets["multi_tools"] = [(r["question"], r["pos_answer"]["answer"], r["neg_answer"]["answer"]) for r in tools]
    for name, rows in sets.items():
        kept = decide(rows, SimilarResponses()).count("keep") / len(rows)
        assert kept >= 0.97, f"{name}: {kept:.3f} kept"
    # all but the one pair that is identical although scored 1.0 against -1.0
    assert decide(sets["multi_tools"], SimilarResponses()).by_reason() == {"identical_pair": {"drop": 1}}


def test_identical_pairs_of_a_published_set_are_found(shared: Path) -> None:
    rows = published(shared, "llms-from-scratch/instruction-data-with-preference.json.gz")
    made = decide([(r["instruction"], r["chosen"], r["rejected"]) for r in rows], SimilarResponses())
    assert made.by_reason()["identical_pair"] == {"drop": 6}


# ---------------------------------------------------------------------------------------------------- encoders


def test_wordllama_is_read_as_its_own_library_reads_it() -> None:
    wordllama = pytest.importorskip("wordllama")
    texts = ["The cat sat on the mat.", "日本語の文章です。", "x " * 900]
    theirs = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    assert np.allclose(encoders.load("wordllama").embed(texts), theirs.embed(texts, norm=True), atol=2e-3)
    assert not encoders.load("wordllama").embed([""]).any()


@pytest.mark.slow  # torch: 10 s
def test_a_sentence_transformer_reads_the_whole_text(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    folder = tiny_model(tmp_path)
    encoder = encoders.load(str(folder))
    same = "the harbour town had a narrow street " * 60
    a, b = encoder.embed([same + "the captain found his door", same + "nobody ever came back again"])
    assert encoder.model.max_seq_length == 32  # type: ignore[attr-defined]
    assert not np.array_equal(a, b) and float(a @ b) > 0.9
    parts = encoder._parts(same)  # type: ignore[attr-defined]
    assert " ".join(p for p, _ in parts).split() == same.split()
    assert all(len(encoder.model.tokenizer(p)["input_ids"]) <= 32 for p, _ in parts)  # type: ignore[attr-defined]


def tiny_model(folder: Path) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = "the harbour town had a narrow street captain found his door nobody ever came back again".split()  # noqa: SIM905
    (folder / "bert").mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(str(folder / "bert"))
    config = BertConfig(
        vocab_size=5 + len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )  # fmt: skip
    BertModel(config).save_pretrained(str(folder / "bert"))
    transformer = Transformer(str(folder / "bert"), max_seq_length=32)
    SentenceTransformer(modules=[transformer, Pooling(32)]).save(str(folder / "model"))
    return folder / "model"


@pytest.mark.slow  # torch: 10 s
def test_encoders_stay_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PREFDATA_ONLINE", raising=False)
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("went online"))
    with pytest.raises(ConfigError, match="no such encoder folder"):
        encoders.load(str(tmp_path / "gone"))
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ConfigError, match="--online"):
        encoders.load("someone/some-encoder")


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    encoders.load.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    pairs = Pairs.of([Pair("q", "one two", "three four")])
    for metric in ("cosine", "bleu"):
        with pytest.raises(MissingExtra, match=r"prefdata\[embed\]"):
            SimilarResponses(metric=metric).measure(pairs)
    with pytest.raises(MissingExtra, match=r"prefdata\[models\]"):
        encoders.load("someone/some-encoder")
