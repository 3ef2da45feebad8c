from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from frame import decide, having, signals
from hypothesis import given, settings
from hypothesis import strategies as st

from prefdata import tokenizer_files, tokens
from prefdata.decisions import Decisions, Part, Signals
from prefdata.errors import ConfigError
from prefdata.frame import measure_pairs
from prefdata.pairs import Pair, Pairs
from prefdata.ragged import Ragged, common_prefix
from prefdata.stages.token_length import TokenLength
from tests.test_trl_exact import CHATML, LLAMA, THINKING, chats, speech, tokenizer_in, triples

COUNTS = ["prompt_tokens", "chosen_tokens", "rejected_tokens", "shared_tokens"]
SETUPS = {"gpt2": None, "llama3": None, "nfc": None, "bos": None, "boseos": None}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tiny tokenizers without a chat template."""
    made = {}
    for kind in SETUPS:
        folder = tmp_path_factory.mktemp(kind)
        made[kind] = str(tokenizer_in(folder, kind, None))
    return made


@pytest.fixture
def slow_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra [fast] were not installed."""
    monkeypatch.setattr(tokens.Tokenizer, "fast", None)
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)


def found(made: Decisions, name: str) -> Any:
    return next((f for f in made.findings if f.name == name), None)


def decide_pairs(pairs: list[Pair], stage: TokenLength, folder: Path) -> Decisions:
    table = measure_pairs(Pairs.of(pairs), [stage])
    with pa.OSFile(str(folder / "s.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table.combine_chunks())
    seen = Signals([Part(str(folder / "s.arrow"), 0, len(pairs))])
    made = stage.decide(seen)
    made.check(seen.index)
    return made


# ------------------------------------------------------------------------------------------------- decisions


def test_case_19_too_long_for_the_model(case: Any, folders: dict[str, str]) -> None:
    ids, rows = case("19-too-long-for-the-model")
    made = decide(rows, TokenLength(tokenizer=folders["llama3"], max_length=256))
    assert having(made, ids, "drop") == ["o2"] and made.by_reason() == {"too_long": {"drop": 1}}
    cut = found(made, "truncated")
    assert (cut.value, [ids[r] for r in cut.rows]) == (1, ["o3"])
    loss = found(made, "loss_at_256")
    assert loss.value == 1 / len(ids) and "1 pairs lost" in loss.text and "1 cut" in loss.text
    assert made.score[1] >= 256 and made.limit[1] == 256
    ids, rows = case("19-too-long-for-the-model", "all_long.jsonl")
    made = decide(rows, TokenLength(tokenizer=folders["llama3"], max_length=256))
    assert made.count("drop") == len(rows) and found(made, "longest_prompt").value >= 256
    assert decide(rows, TokenLength(tokenizer=folders["llama3"], max_length=256, action="flag")).count("flag") == len(
        rows
    )


def test_without_a_tokenizer_nothing_is_dropped_and_that_is_said() -> None:
    made = decide([("q " * 5000, "a b c", "b"), ("q", "a", "b")], TokenLength())
    assert made.count("keep") == 2 and np.isnan(made.score).all()
    assert found(made, "length_not_checked").value == 2
    assert found(made, "words_p100").value == 5003 and found(made, "words_p50") is not None


def test_answers_that_differ_only_past_the_window(folders: dict[str, str]) -> None:
    same = "the small boat moved past the old stone pier " * 20
    rows = [
        ("Write.", same + "and sank", same + "and sailed on"),  # equal within the window
        ("Write.", "It sank. " + same, "It sailed. " + same),  # cut, but they differ at the beginning
        ("Write.", same, same),  # identical as written: another stage's business
        ("Write.", "yes</s>", "yes"),  # the end token is all they differ in
    ]
    stage = TokenLength(tokenizer=folders["llama3"], max_length=64)
    made = decide(rows, stage)
    assert made.by_reason() == {"identical_after_truncation": {"drop": 2}}
    assert made.action.tolist() == [2, 0, 0, 2]
    wide = decide(rows, TokenLength(tokenizer=folders["llama3"], max_length=4096))
    assert wide.action.tolist() == [0, 0, 0, 2], "a larger window shows the difference"


def test_limits_move_without_measuring_again(folders: dict[str, str]) -> None:
    rows = triples(3)
    seen = signals(rows, TokenLength(tokenizer=folders["llama3"], max_length=8))
    for limit in (1, 20, 60):
        stage = TokenLength(tokenizer=folders["llama3"], max_length=limit)
        again, fresh = stage.decide(seen), decide(rows, stage)
        assert again.table("x").equals(fresh.table("x")) and again.findings == fresh.findings
    assert TokenLength.measured == {"tokenizer", "chat_template"}


def test_border_start_and_end_are_reported(folders: dict[str, str], tmp_path: Path) -> None:
    made = decide(
        [("Total: ", "7 kg", "$7"), ("Name a boat.", "A ferry.", "A raft.")], TokenLength(tokenizer=folders["llama3"])
    )
    assert found(made, "double_start") is None and found(made, "missing_end") is None
    # a tokenizer that adds an end token of its own: the prompt ends with one, the answers with two
    made = decide([("Name a boat.", "A ferry.", "A raft.")], TokenLength(tokenizer=folders["boseos"]))
    assert found(made, "prompt_not_prefix").rows == (0,) and found(made, "double_end").value == 1
    chat = [Pair([{"role": "user", "content": "hi"}], *([{"role": "assistant", "content": c}] for c in ("a", "b")))]
    for kind, template, name in (
        ("bos", "{{ bos_token }}" + LLAMA, "double_start"),
        ("bos", CHATML, "missing_start"),
        ("gpt2", LLAMA.replace("eos_token", "''"), "missing_end"),
        ("gpt2", THINKING, "prompt_not_prefix"),
    ):
        folder = tmp_path / name
        tokenizer_in(folder, kind, template)
        made = decide_pairs(chat, TokenLength(tokenizer=str(folder)), tmp_path)
        assert found(made, name) is not None and found(made, name).rows == (0,), name
        others = {"double_start", "missing_start", "missing_end", "prompt_not_prefix"} - {name}
        assert not [n for n in others if found(made, n)], name


def test_a_refusing_template_is_flagged_row_by_row(tmp_path: Path) -> None:
    strict = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% endfor %}"
    )
    tokenizer_in(tmp_path, "gpt2", strict + CHATML)
    rows = [Pair(r["prompt"], r["chosen"], r["rejected"]) for r in chats(2, tools=False)[:20]]
    system = [i for i, r in enumerate(rows) if r.prompt[0]["role"] == "system"]  # type: ignore[index]
    stage = TokenLength(tokenizer=str(tmp_path))
    made = decide_pairs(rows, stage, tmp_path)
    assert np.flatnonzero(made.of("flag")).tolist() == system == list(found(made, "template_refused").rows)
    assert made.by_reason() == {"template_refused": {"flag": len(system)}} and found(made, "truncated").n == 20 - len(
        system
    )
    assert stage.measure(Pairs.of(rows))["prompt_tokens"].null_count == len(system)


def test_chat_details(tmp_path: Path) -> None:
    tokenizer_in(tmp_path, "gpt2", None)
    answers = ([{"role": "assistant", "content": c}] for c in ("a", "b"))
    pair = Pair([{"role": "user", "content": "hi"}], *answers)
    with pytest.raises(ConfigError, match="no chat template"):
        TokenLength(tokenizer=str(tmp_path)).measure(Pairs.of([pair]))
    template = tmp_path / "own.jinja"
    template.write_text("{{ style }}{{ tools }}" + CHATML)
    stage = TokenLength(tokenizer=str(tmp_path), chat_template=str(template))
    plain = stage.measure(Pairs.of([pair]))["prompt_tokens"][0].as_py()
    styled = Pairs.of([pair], {"chat_template_kwargs": pa.array([{"style": "very long style"}])})
    assert stage.measure(styled)["prompt_tokens"][0].as_py() > plain
    tooled = Pair(pair.prompt, pair.chosen, pair.rejected, tools='[{"name": "f"}]')
    assert stage.measure(Pairs.of([tooled]))["prompt_tokens"][0].as_py() > plain
    picture = [{"role": "user", "content": [{"type": "image", "image": "x"}, {"type": "text", "text": "what?"}]}]
    seen = stage.measure(Pairs.of([pair, Pair(picture, pair.chosen, pair.rejected), tooled]))
    assert [x is None for x in seen["chosen_tokens"].to_pylist()] == [False, True, False]
    # a prompt as text with answers as messages goes through the template as a user turn
    mixed = stage.measure(Pairs.of([Pair("hi", pair.chosen, pair.rejected), Pair("hi", "a", "b")]))
    assert mixed["prompt_tokens"].to_pylist()[0] == plain and mixed["prompt_tokens"].to_pylist()[1] < plain


# ------------------------------------------------------------------------------------------------- exactness


@pytest.mark.parametrize("kind", SETUPS)
def test_counts_are_those_of_the_tokenizer_however_they_were_made(
    kind: str, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = TokenLength(tokenizer=folders[kind])
    rows = [r for s in range(4) for r in triples(40 + s)]
    pairs = Pairs.of([Pair(*r) for r in rows])
    tokenizer = tokenizer_files.load(folders[kind])
    assert tokenizer.cuttable
    usual = stage.measure(pairs)
    monkeypatch.setattr(tokenizer, "cuttable", False)
    uncut = stage.measure(pairs)
    monkeypatch.setitem(tokenizer.__dict__, "fast", None)
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)
    assert usual.equals(uncut) and usual.equals(stage.measure(pairs))
    ids = tokenizer.hf
    for row, prompt, chosen, shared in zip(
        rows, *(usual[c].to_pylist() for c in ("prompt_tokens", "chosen_tokens", "shared_tokens")), strict=True
    ):
        a, b = (ids(row[0] + (x if x.endswith("</s>") else x + "</s>"))["input_ids"] for x in row[1:])
        assert prompt + chosen == len(a)
        assert shared == next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_text_may_be_cut_between_a_letter_and_a_space(before: str, behind: str) -> None:
    for kind in ("gpt2", "llama3", "nfc"):
        tokenizer = _any(kind)
        a, b = before + "x", " " + behind
        whole, left, right = tokenizer._hf([a + b, a, b], special=False)
        assert whole == left + right


_ANY: dict[str, tokens.Tokenizer] = {}


def _any(kind: str) -> tokens.Tokenizer:
    if kind not in _ANY:
        import tempfile

        _ANY[kind] = tokenizer_files.load(str(tokenizer_in(Path(tempfile.mkdtemp()), kind, None)))
        assert _ANY[kind].cuttable
    return _ANY[kind]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_the_fast_engine_gives_the_same_ids(texts: list[str]) -> None:
    pytest.importorskip("splintr", reason="the extra [fast] is not installed")
    for kind in ("gpt2", "llama3", "nfc", "boseos"):
        tokenizer = _any(kind)
        assert tokenizer.fast is not None
        got, refused = tokenizer.encode(texts, special=True)
        assert not refused and [got[i].tolist() for i in range(len(got))] == tokenizer._hf(texts, special=True)


def test_an_engine_that_differs_is_not_used(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    splintr = pytest.importorskip("splintr", reason="the extra [fast] is not installed")
    right = TokenLength(tokenizer=folders["gpt2"]).measure(Pairs.of([Pair(*r) for r in triples(5)]))
    good = splintr.from_json_bytes

    class Wrong:
        def __init__(self, data: bytes) -> None:
            self.engine = good(data)

        def encode(self, text: str) -> list[int]:
            return [*self.engine.encode(text), *([9] if self.odd(text) else [])]

        def encode_flat(self, text: str) -> bytes:
            return np.array(self.encode(text), np.uint32).tobytes()

        @staticmethod
        def odd(text: str) -> bool:
            return "日本" in text  # in the fixed sample: found at the start

    rows = [Pair(*r) for r in triples(5)]
    for odd in (Wrong.odd, lambda text: rows[0].prompt[:4] in text):  # only in the batch
        monkeypatch.setattr(Wrong, "odd", staticmethod(odd))
        monkeypatch.setattr(splintr, "from_json_bytes", Wrong)
        tokenizer_files._load.cache_clear()
        table = TokenLength(tokenizer=folders["gpt2"]).measure(Pairs.of(rows))
        assert table.select(COUNTS).equals(right.select(COUNTS))
        assert set(np.array(table["flags"]) & 128) == {128}
    tokenizer_files._load.cache_clear()


def test_batches_do_not_matter(folders: dict[str, str]) -> None:
    rows, stage = triples(8), TokenLength(tokenizer=folders["bos"])
    one, many = (signals(rows, stage, batch=b) for b in (1000, 7))
    for name in [*COUNTS, "flags"]:
        assert (one.column(f"token_length.{name}") == many.column(f"token_length.{name}")).all()
    assert stage.measure(Pairs.of([])).num_rows == 0


def test_common_prefix() -> None:
    rnd = random.Random(0)
    for most in (3, 40, 900):
        pairs = []
        for _ in range(50):
            same = rnd.choices(range(3), k=rnd.randint(0, most))
            pairs.append([same + rnd.choices(range(3), k=rnd.randint(0, 9)) for _ in range(2)])
        a, b = (
            Ragged(np.array([t for p in pairs for t in p[k]], np.uint32), np.cumsum([0, *(len(p[k]) for p in pairs)]))
            for k in range(2)
        )
        truth = [next((i for i, (x, y) in enumerate(zip(*p, strict=False)) if x != y), min(map(len, p))) for p in pairs]
        assert common_prefix(a, b).tolist() == truth
        longer = a.followed_by([7, 8])
        assert [longer[i].tolist() for i in range(50)] == [p[0] + [7, 8] for p in pairs]


# --------------------------------------------------------------------------------------------------- loading


def test_nothing_goes_online(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PREFDATA_ONLINE", raising=False)
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("went online"))
    tokenizer_files._load.cache_clear()
    assert tokenizer_files.load(folders["gpt2"]).eos == "</s>"
    assert tokenizer_files.load(folders["gpt2"] + "/tokenizer.json").eos == "</s>"
    with pytest.raises(ConfigError, match="--online"):
        tokenizer_files.load("someone/some-model")
    with pytest.raises(ConfigError, match="no such tokenizer folder"):
        tokenizer_files.load(str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match="no readable tokenizer"):
        tokenizer_files.load(str(tmp_path))
    with pytest.raises(ConfigError, match="no such chat template"):
        tokenizer_files.load(folders["gpt2"], str(tmp_path / "gone.jinja"))


def test_a_tokenizer_without_an_end_token_is_an_error(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer_in(tmp_path, "gpt2", None)
    hf = AutoTokenizer.from_pretrained(tmp_path)
    hf.eos_token = None
    hf.save_pretrained(str(tmp_path / "x"))
    with pytest.raises(ConfigError, match="no end token"):
        TokenLength(tokenizer=str(tmp_path / "x")).measure(Pairs.of([Pair("a", "b", "c")]))


@pytest.mark.usefixtures("slow_engine")
def test_without_the_fast_engine_nothing_is_said_about_it(folders: dict[str, str]) -> None:
    made = decide([("Name a boat.", speech(random.Random(1), 9), "A raft.")], TokenLength(tokenizer=folders["nfc"]))
    assert found(made, "slow_tokenizer") is None


def test_the_short_way_to_a_plain_tokenizer_is_the_long_one(folders, monkeypatch):
    """Where the backend is read without transformers, ids, end and start token are those of AutoTokenizer."""
    from transformers import AutoTokenizer

    short = 0
    texts = ["Hello, world! 12 345", "日本 x\n", "<|im_start|>user\nhi<|im_end|>", "  a  ", "naïve 👍🏽"]
    for folder in folders.values():
        ours, theirs = tokenizer_files.load(folder), AutoTokenizer.from_pretrained(folder)
        short += "hf" not in vars(ours)
        assert (ours.eos, ours.eos_id, ours.bos_id) == (theirs.eos_token, theirs.eos_token_id, theirs.bos_token_id)
        for special in (False, True):
            ids, _ = ours.encode(texts, special=special)
            expected = [theirs(t, add_special_tokens=special)["input_ids"] for t in texts]
            assert [ids.ids[a:b].tolist() for a, b in zip(ids.at, ids.at[1:], strict=False)] == expected
    assert short
