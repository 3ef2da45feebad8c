"""Going on with a run: what is taken up, and what is refused."""

import pytest

import prefdata
from prefdata.errors import ConfigError, InputError, OutputError

ROWS = [{"prompt": f"Name the animal number {i}.", "chosen": f"Cat {i}.", "rejected": f"Stone {i}."} for i in range(40)]


def test_a_finished_run_is_not_replaced_by_another_one(tmp_path):
    prefdata.clean(ROWS, tmp_path / "out", split="test=0.3")
    before = (tmp_path / "out/manifest.json").read_bytes()
    with pytest.raises(OutputError, match="another options"):
        prefdata.clean(ROWS, tmp_path / "out", resume=True)
    with pytest.raises(OutputError, match="another config"):
        prefdata.clean(ROWS, tmp_path / "out", split="test=0.3", resume=True, skip=["near_duplicate"])
    assert (tmp_path / "out/manifest.json").read_bytes() == before
    assert (tmp_path / "out/data/test").is_dir()


def test_a_finished_run_may_be_asked_for_again(tmp_path):
    prefdata.clean(ROWS, tmp_path / "out")
    prefdata.clean(ROWS, tmp_path / "out", resume=True)


def test_a_left_out_stage_leaves_no_signals(tmp_path):
    import pyarrow.parquet as pq

    prefdata.clean(ROWS, tmp_path / "out", keep_scratch=True, chunk_bytes=500)
    prefdata.clean(ROWS, tmp_path / "out", resume=True, skip=["similar_responses"], chunk_bytes=500)
    prefdata.clean(ROWS, tmp_path / "new", skip=["similar_responses"], chunk_bytes=500)
    got, new = (pq.read_table(tmp_path / d / "audit/signals.parquet") for d in ("out", "new"))
    assert got.column_names == new.column_names
    assert got.equals(new)


@pytest.mark.parametrize("option", ["resume", "overwrite", "keep_scratch"])
def test_an_option_about_the_output_needs_one(option):
    with pytest.raises(ConfigError, match="needs an output folder"):
        prefdata.audit(ROWS, **{option: True})


def test_a_split_is_asked_of_something_that_has_splits(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "a?", "chosen": "b", "rejected": "c"}\n')
    for source in (str(path), str(tmp_path)):
        with pytest.raises(InputError, match="no splits"):
            prefdata.audit(source, input_split="test")


def test_gates_and_stages_from_python(tmp_path):
    doubled = [*ROWS, ROWS[0], ROWS[1]]
    found = prefdata.audit(doubled, gate=["exact_duplicate<=2", "kept>=95%"], set=["near_duplicate.threshold=0.7"])
    assert [g["value"] for g in found.gates] == [2, pytest.approx(95.238, abs=0.01)]
    assert found.ok
    assert len(repr(found)) < 2000
    with pytest.raises(ConfigError, match="Did you mean columns"):
        prefdata.audit(ROWS, colums={})
    with pytest.raises(ConfigError, match="not one of"):
        prefdata.audit(ROWS, on_bad_row="Stop")
