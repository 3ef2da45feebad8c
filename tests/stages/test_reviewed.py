"""reviewed: what people said of a pair holds, wherever it stands; what they want to keep no later stage drops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frame import decide, signals

from prefdata.errors import ConfigError
from prefdata.identity import content_keys, spelled
from prefdata.pipeline import Pipeline
from prefdata.review import figures
from prefdata.review_file import Said
from prefdata.review_sheet import Place
from prefdata.stages.exact_duplicate import ExactDuplicate
from prefdata.stages.malformed import Malformed
from prefdata.stages.reviewed import Reviewed
from prefdata.stages.similar_responses import SimilarResponses

ROWS = [(f"Question {i}?", f"Yes, {i} is right.", f"No, never {i}.") for i in range(8)]
SAME = ("Say hello.", "Hello there.", "Hello there. ")  # identical_pair


def review(folder: Path, rows: list[tuple[str, str, str]], wanted: dict[int, str], name: str = "review.json") -> str:
    """A review of these rows that leads to what is ``wanted`` of some: drop, wrong_label, keep, accept."""
    keys = [spelled(k) for k in content_keys(signals(rows)).tolist()]
    places, said = {}, {}
    for row, want in wanted.items():
        state: Any = "dropped" if want == "keep" else "kept"
        places[row] = Place(row, str(row), keys[row], None, state, state == "kept", "chosen")
        blind = want == "wrong_label"
        verdict: Any = "right" if blind else "accept" if want == "accept" else "reject"
        said[row, "anna"] = Said(reviewer="anna", mode="blind" if blind else "open", verdict=verdict)
    path = folder / name
    path.write_text(figures("sheet", places, said, {"anna": []}).model_dump_json())
    return str(path)


def actions(rows: list[tuple[str, str, str]], *stages: Any, batch: int = 1000) -> list[str]:
    """What becomes of each row: ``kept``, or the stage and reason that acted last."""
    seen = signals(rows, *stages, batch=batch)
    made, _ = Pipeline("x", list(stages), [s.name() for s in stages]).decide(seen)
    out = ["kept"] * len(rows)
    for stage, got in zip(stages, made, strict=True):
        for d in got.table(stage.name()).to_pylist():
            if d["action"] != "keep":
                out[d["row"]] = f"{d['action']} {d['reason']}"
    return out


def test_rejected_pairs_are_dropped_and_accepted_ones_left(tmp_path: Path) -> None:
    made = decide(ROWS, Reviewed(verdicts=(review(tmp_path, ROWS, {1: "drop", 2: "accept", 5: "drop"}),)))
    assert np.flatnonzero(made.of("drop")).tolist() == [1, 5] and made.reasons == ["rejected_by_review"]
    assert made.count("keep") == 6 and made.findings[0].value == made.findings[0].n == 2


@pytest.mark.parametrize("action", ["drop", "swap", "flag"])
def test_a_wrong_label_is_dropped_swapped_or_flagged(tmp_path: Path, action: Any) -> None:
    file = review(tmp_path, ROWS, {3: "wrong_label"})
    made = decide(ROWS, Reviewed(verdicts=(file,), wrong_label=action))
    assert np.flatnonzero(made.of(action)).tolist() == [3] and made.by_reason() == {
        "wrong_label_by_review": {action: 1}
    }


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_verdicts_are_of_texts_not_of_places(tmp_path: Path, batch: int) -> None:
    file = review(tmp_path, ROWS, {1: "drop", 6: "wrong_label"})
    moved = [("New?", "Yes.", "No."), *ROWS[::-1], ROWS[1], (ROWS[1][0], ROWS[1][2], ROWS[1][1])]
    made = decide(moved, Reviewed(verdicts=(file,)), batch=batch)
    assert [moved[i] for i in np.flatnonzero(made.of("drop"))] == [ROWS[6], ROWS[1], ROWS[1]]


def test_a_pair_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    made = decide(ROWS[:3], Reviewed(verdicts=(review(tmp_path, ROWS, {1: "drop", 6: "drop", 7: "keep"}),)))
    found = {f.name: (f.value, f.n) for f in made.findings}
    assert found == {"verdicts_applied": (1, 3), "verdicts_without_pair": (2, 3)}


def test_a_spared_pair_is_flagged_where_a_later_stage_would_drop_it(tmp_path: Path) -> None:
    rows = [*ROWS, SAME, ("Say bye.", "Bye now.", "Bye now. ")]
    similar = SimilarResponses()
    assert actions(rows, Malformed(), similar)[8:] == ["drop identical_pair"] * 2
    reviewed = Reviewed(verdicts=(review(tmp_path, rows, {8: "keep"}),))
    assert actions(rows, Malformed(), reviewed, similar)[8:] == ["flag identical_pair", "drop identical_pair"]
    # ... but not what came before it
    assert actions(rows, Malformed(), similar, reviewed)[8:] == ["drop identical_pair"] * 2


def test_of_equal_pairs_as_many_stay_as_were_judged(tmp_path: Path) -> None:
    rows = [ROWS[0], *[ROWS[1]] * 4]
    got = actions(rows, Malformed(), Reviewed(verdicts=(review(tmp_path, rows, {2: "keep"}),)), ExactDuplicate())
    assert got == ["kept", "kept", "drop exact_duplicate", "drop exact_duplicate", "flag exact_duplicate"]


def test_the_last_file_counts_where_two_say_different_things(tmp_path: Path) -> None:
    first = review(tmp_path, ROWS, {1: "drop", 2: "drop"}, "a.json")
    second = review(tmp_path, ROWS, {2: "wrong_label"}, "b.json")
    assert decide(ROWS, Reviewed(verdicts=(first, second))).by_reason() == {
        "rejected_by_review": {"drop": 1}, "wrong_label_by_review": {"drop": 1},
    }  # fmt: skip


def test_without_a_file_nothing_is_done_and_that_is_said() -> None:
    made = decide(ROWS, Reviewed())
    assert made.count("keep") == len(ROWS) and [f.name for f in made.findings] == ["no_verdicts"]


@pytest.mark.parametrize("content", [
    None, "", "{}", "NaN", "[1]", '{"schema_version": 2}', '{"sheet": "x", "rows": "many"}', "\x00", "[" * 100_000,
])  # fmt: skip
def test_a_file_that_is_no_review_is_told_before_the_work(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "review.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"review\.json: (is no review|does not exist)"):
        Reviewed(verdicts=(str(path),)).depends_on()


def test_a_key_that_is_no_hash_is_refused(tmp_path: Path) -> None:
    path = Path(review(tmp_path, ROWS, {1: "drop"}))
    held = json.loads(path.read_text())
    held["rows"][0]["key"] = "f" * 40
    path.write_text(json.dumps(held))
    with pytest.raises(ConfigError, match=r"rows\.0\.key"):
        Reviewed(verdicts=(str(path),)).depends_on()
