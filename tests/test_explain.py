"""Every reason word has an example that gets it and a near miss that does not; ``explain`` shows them, and knows settings and stages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prefdata
from prefdata.stage import shipped
from prefdata.training.settings import Settings
from prefdata.training.words_numbers import NUMBERS
from prefdata.word_examples import Example, examples

STAGE_OF = {word: kind.name() for kind in shipped().values() for word in kind.reasons}


def words_of(stage: str, example: Example, lines: tuple[str, ...]) -> list[set[str]]:
    """The reason words of each pair of these lines, in their order."""
    for name, text in example.files.items():
        Path(name).write_text(text, "utf-8")
    if example.review:
        judge(example)
    if any("=tokenizer" in s for s in example.settings):
        from prefdata.samples import tiny

        tiny.tokenizer(tiny.SAMPLE.read_text("utf-8")).save_pretrained("tokenizer")
    Path("one.yaml").write_text(f"version: 1\nstages:\n  - {stage}\n")
    Path("rows.jsonl").write_text("\n".join([*example.crowd, *lines]) + "\n", "utf-8")
    result = prefdata.audit("rows.jsonl", pipeline="one.yaml", set=list(example.settings), workers=1)
    out: list[set[str]] = [set() for _ in range(result.counts["pairs"])]
    for made in result.decisions.to_pylist():
        if made["reason"]:
            out[made["row"]].add(made["reason"])
    return out


def judge(example: Example) -> None:
    """Leave a review.json in which somebody said of the pair that gets the word what the example says."""
    Path("judged.jsonl").write_text(example.triggers[-1] + "\n", "utf-8")
    result = prefdata.clean("judged.jsonl", "out", pipeline="certain", workers=1, overwrite=True)
    sheet = result.report.spotcheck
    row = sheet.rows[0]
    worse = "right" if row.left == "chosen" else "left"
    mode, verdict = ("open", "reject") if example.review == "reject" else ("blind", worse)
    said = {"sheet": sheet.id, "row": row.row, "pd_id": row.pd_id, "key": row.key, "mode": mode, "verdict": verdict}
    Path("verdicts.jsonl").write_text(json.dumps({**said, "reviewer": "anna"}) + "\n", "utf-8")
    subprocess.run([sys.executable, "-m", "prefdata", "review", "out", "--import", "verdicts.jsonl"], check=True)
    Path("review.json").write_bytes(Path("out/audit/review.json").read_bytes())


def test_no_word_lacks_an_example() -> None:
    assert set(examples()) == set(STAGE_OF)


@pytest.mark.parametrize("word", list(STAGE_OF))
def test_the_example_gets_the_word_and_the_near_miss_does_not(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = examples()[word]
    assert word in words_of(STAGE_OF[word], example, example.triggers)[-1]
    assert not any(words_of(STAGE_OF[word], example, example.spares))  # not that word, and not another one instead


@pytest.mark.parametrize("word", list(STAGE_OF))
def test_explain_shows_both_sides(cli: Any, word: str) -> None:
    example = examples()[word]
    text = cli("explain", word).out
    for line in (example.line, *example.triggers, *example.spares, *example.settings):
        assert line in text
    told = json.loads(cli("explain", word, "--json").out)["example"]
    assert (told["triggers"], told["spares"]) == (list(example.triggers), list(example.spares))


def test_explain_knows_settings_numbers_stages_and_parameters(cli: Any) -> None:
    beta = cli("explain", "beta").out
    assert "a setting of train: number, 0-, default 0.1" in beta and "--set label_noise.beta=VALUE" in beta
    assert "longer answer" in cli("explain", "length_accuracy").out
    assert "Reason words: identical_pair, too_similar." in cli("explain", "similar_responses").out
    assert "default 0.8" in cli("explain", "min_flip_prob").out
    for name, field in Settings.model_fields.items():
        assert field.description and field.description in cli("explain", name).out


def test_every_number_of_an_evaluation_is_known() -> None:
    pytest.importorskip("torch")
    from prefdata.training import page

    assert {*page._NUMBERS, "forgetting"} == set(NUMBERS)


def test_explain_guesses(cli: Any) -> None:
    for typed, meant in (
        ("too_similr", "too_similar"),
        ("learning_rat", "learning_rate"),
        ("similar_respons", "similar_responses"),
    ):
        ended = cli("explain", typed)
        assert ended.code == 2 and f"Did you mean {meant}?" in ended.err
