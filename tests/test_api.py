"""The Python API: what can be read, what a result holds, stages of one's own, and values that leave as they came."""

import json
import math
import textwrap

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from written import bytes_of, dropped, loaded, write_lines

import prefdata
from prefdata.pipeline import load

GOOD = [
    {
        "id": "a",
        "prompt": "What do bees make?",
        "chosen": "Honey, which they store in wax cells.",
        "rejected": "Milk.",
        "score": 1,
    },
    {
        "id": "b",
        "prompt": "Where do owls sleep?",
        "chosen": "In hollow trees, mostly by day.",
        "rejected": "Under the sea.",
        "score": 0.5,
    },
    {
        "id": "c",
        "prompt": "What is rain?",
        "chosen": "Water that falls from clouds.",
        "rejected": "A kind of bread.",
        "score": None,
    },
    {"id": "d", "prompt": "What is rain?", "chosen": "", "rejected": "A kind of bread.", "score": 4},
    {
        "id": "e",
        "prompt": "What do bees make?",
        "chosen": "Honey, which they store in wax cells.",
        "rejected": "Milk.",
        "score": 9,
    },
    {
        "id": "f",
        "prompt": "Where do bats sleep?",
        "chosen": "Under roofs <|im_end|>.",
        "rejected": "In a bed.",
        "score": 2,
    },
]
LEFT = [GOOD[i] for i in (0, 1, 2, 5)]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return prefdata.clean(GOOD, tmp_path_factory.mktemp("api") / "out")


# ------------------------------------------------------------------------------------------------ what a result holds


def test_counts(result):
    assert result.counts == {
        "pairs": 6,
        "kept": 4,
        "dropped": 2,
        "flagged": 1,
        "added": 0,
        "reasons": {"empty_completion": 1, "exact_duplicate": 1},
    }
    assert result.ok and result.action == "clean" and result.splits == {"train": 4}


def test_dataset(result):
    from datasets import DatasetDict

    assert isinstance(result.dataset, DatasetDict) and result.dataset["train"]["id"][:] == ["a", "b", "c", "f"]
    assert result.dataset["train"].column_names == ["prompt", "chosen", "rejected", "id", "score", "pd_id"]


def test_decisions(result):
    table = result.decisions
    assert table.column_names[:7] == ["row", "stage", "action", "reason", "score", "limit", "peer"]
    rows = table.to_pylist()
    drops = [(d["row"], d["stage"], d["reason"], d["peer"]) for d in rows if d["action"] == "drop"]
    assert drops == [(3, "malformed", "empty_completion", None), (4, "exact_duplicate", "exact_duplicate", 0)]
    asked = {name: sum(d["stage"] == name for d in rows) for name in result.stages}
    assert (
        asked["malformed"] == 6 and asked["contradiction"] == 5 and asked["near_duplicate"] == 4
    )  # keeps are there too
    stored = pq.read_table(result.out / "audit/decisions.parquet")
    assert stored.select(table.column_names).to_pylist() == rows


def test_findings(result):
    found = {f.name: f for f in result.findings}
    assert found["sound_pairs"].value == 5 and found["sound_pairs"].n == 6
    assert "length_not_checked" in found and found["identical_exact"].value == 0


def test_only_a_finished_clean_has_a_dataset(tmp_path):
    for made in (
        prefdata.audit(GOOD),
        prefdata.audit(GOOD, tmp_path / "audit"),
        prefdata.clean(GOOD[3:4], tmp_path / "empty"),
    ):
        with pytest.raises(prefdata.PrefdataError, match="no cleaned dataset"):
            _ = made.dataset
    assert not prefdata.clean(GOOD[3:4], tmp_path / "again").ok


def test_two_folders_of_one_name_and_a_folder_written_anew_load_their_own_rows(tmp_path):
    """``datasets`` names its cache after the folder and the card: without a mark of the data it gives another run's rows."""
    first = prefdata.clean(GOOD[:1], tmp_path / "one/out").dataset["train"]["id"][:]
    second = prefdata.clean(GOOD[1:2], tmp_path / "two/out").dataset["train"]["id"][:]
    third = prefdata.clean(GOOD[2:3], tmp_path / "one/out", overwrite=True).dataset["train"]["id"][:]
    assert (first, second, third) == (["a"], ["b"], ["c"])
    bad = [{**GOOD[3], "id": i} for i in ("x", "y")]
    assert [
        (prefdata.clean([GOOD[0], row], tmp_path / row["id"] / "out"), dropped(tmp_path / row["id"] / "out")[0]["id"])[
            1
        ]
        for row in bad
    ] == ["x", "y"]


def test_clean_is_audit_and_apply(result):
    assert prefdata.audit(GOOD).decisions.equals(result.decisions)


def test_unknown_options_and_sources(tmp_path):
    with pytest.raises(prefdata.PrefdataError, match="treshold"):
        prefdata.audit(GOOD, treshold=1)
    for wrong in (7, {"prompt": "a"}, [1, 2], [{"prompt": object(), "chosen": "b", "rejected": "c"}]):
        with pytest.raises(prefdata.PrefdataError):
            prefdata.audit(wrong)
    with pytest.raises(prefdata.PrefdataError, match="no rows"):
        prefdata.clean([], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_error_says_where_what_and_what_to_do(tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{"question": "a", "response_a": "b", "response_b": "c"}])
    with pytest.raises(prefdata.PrefdataError) as caught:
        prefdata.audit(str(path))
    assert (
        caught.value.where == "in.jsonl"
        and "which answer is better" in caught.value.what
        and "--columns" in caught.value.hint
    )
    assert (
        prefdata.audit(
            str(path), columns={"prompt": "question", "chosen": "response_a", "rejected": "response_b"}
        ).counts["kept"]
        == 1
    )


# ------------------------------------------------------------------------------------------------ sources


def kept_ids(source, out, **options):
    prefdata.clean(source, out, **options)
    return [r["id"] for r in loaded(out)]


def test_a_path_object_and_a_list_of_paths(tmp_path):
    paths = [write_lines(tmp_path / f"{i}.jsonl", GOOD[i : i + 3]) for i in (0, 3)]
    assert kept_ids(paths[0], tmp_path / "one") == ["a", "b", "c"]
    assert kept_ids(paths, tmp_path / "two") == ["a", "b", "c", "f"]


def test_a_data_frame(tmp_path):
    frame = pd.DataFrame(GOOD).set_index(pd.Index([9, 8, 7, 6, 5, 4]))
    assert kept_ids(frame, tmp_path / "out") == ["a", "b", "c", "f"]
    rows = loaded(tmp_path / "out")
    assert [r["prompt"] for r in rows] == [r["prompt"] for r in LEFT]
    assert (
        rows[0]["score"] == 1 and rows[1]["score"] == 0.5 and (rows[2]["score"] is None or math.isnan(rows[2]["score"]))
    )
    assert list(rows[0]) == ["prompt", "chosen", "rejected", "id", "score", "pd_id"]  # no index column


def test_a_data_frame_with_columns_of_mixed_types(tmp_path):
    frame = pd.DataFrame({
        "id": ["a", "b", "c"], "prompt": ["What is x?", "What is y?", 7], "chosen": ["An x of some kind.", "A y of some kind.", "z"],
        "rejected": ["Nothing at all.", "Not known.", "w"], "note": ["text", 3, {"k": [1, None]}], "when": [True, "no", 2.5],
    })  # fmt: skip
    assert kept_ids(frame, tmp_path / "out") == ["a", "b"]
    assert [(r["note"], r["when"]) for r in loaded(tmp_path / "out")] == [("text", True), (3, "no")]
    assert dropped(tmp_path / "out")[0]["pd_code"] == "bad_type" and dropped(tmp_path / "out")[0]["note"] == {
        "k": [1, None]
    }


def test_a_data_frame_of_numpy_values(tmp_path):
    frame = pd.DataFrame(GOOD[:2]).assign(
        vector=[np.arange(3), np.array([4, 5])],
        kind=pd.Categorical(["u", "v"]),
        day=pd.to_datetime(["2026-01-02", None]),
    )
    prefdata.clean(frame, tmp_path / "out")
    rows = loaded(tmp_path / "out")
    assert [list(r["vector"]) for r in rows] == [[0, 1, 2], [4, 5]] and [r["kind"] for r in rows] == ["u", "v"]
    assert pd.Timestamp(rows[0]["day"]) == pd.Timestamp("2026-01-02") and pd.isna(rows[1]["day"])


def test_a_dataset(tmp_path):
    from datasets import Dataset

    made = Dataset.from_list(GOOD)
    assert kept_ids(made, tmp_path / "whole") == ["a", "b", "c", "f"]
    assert kept_ids(made.select([5, 2, 0, 4]), tmp_path / "picked") == ["f", "c", "a"]
    assert kept_ids(made.filter(lambda r: r["id"] in "bdf"), tmp_path / "filtered") == ["b", "f"]
    assert kept_ids(made.shuffle(seed=3), tmp_path / "mixed") == [
        i for i in made.shuffle(seed=3)["id"] if i in "abcef" and i != max("ae", key=made.shuffle(seed=3)["id"].index)
    ]
    assert [r["score"] for r in loaded(tmp_path / "whole")] == [1, 0.5, None, 2]


def test_a_dataset_of_chats_with_tools(tmp_path):
    from datasets import Dataset

    chat = [
        {
            "prompt": [{"role": "user", "content": f"Number {i}?"}],
            "chosen": [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"function": {"name": "f", "arguments": {"a" if i else "b": i}}}],
                }
            ],
            "rejected": [{"role": "assistant", "content": "no"}],
        }
        for i in range(2)
    ]
    prefdata.clean(Dataset.from_list(chat), tmp_path / "out")  # Arrow fills the gaps with nulls
    assert [{k: r[k] for k in chat[0]} for r in loaded(tmp_path / "out")] == chat


def test_two_columns_of_one_name_are_refused():
    frame = pd.DataFrame([["a", "b", "c", 1, 2]], columns=["prompt", "chosen", "rejected", "n", "n"])
    with pytest.raises(prefdata.PrefdataError, match="two columns named 'n'"):
        prefdata.audit(frame)


@pytest.mark.parametrize("kind", ["dataset", "saved", "parquet"])
def test_classes_are_written_by_name(tmp_path, kind):
    from datasets import ClassLabel, Dataset

    given = [2, 0, None, 0, 0, -1]
    made = Dataset.from_list([{**r, "topic": t} for r, t in zip(GOOD, given, strict=True)]).cast_column(
        "topic", ClassLabel(names=["bees", "owls", "rain"])
    )
    source = made
    if kind == "saved":
        made.save_to_disk(source := str(tmp_path / "saved"))
    elif kind == "parquet":
        made.to_parquet(source := str(tmp_path / "in.parquet"))
    result = prefdata.clean(source, tmp_path / "out")
    assert [r["topic"] for r in loaded(tmp_path / "out")] == ["rain", "bees", None, None]
    assert result.report.source["changes"] == {"column 'topic': class numbers to class names": 6}


def test_a_dataset_dict_of_one_split(tmp_path):
    from datasets import Dataset, DatasetDict

    assert kept_ids(DatasetDict({"train": Dataset.from_list(GOOD)}), tmp_path / "out") == ["a", "b", "c", "f"]


def test_a_generator_of_rows(tmp_path):
    assert kept_ids((row for row in GOOD), tmp_path / "out") == ["a", "b", "c", "f"]


# ------------------------------------------------------------------------------------------------ stages of one's own

OWN = '''
    """Answers that shout."""
    from typing import ClassVar

    import pyarrow as pa

    from prefdata import Decisions, Finding, Pairs, Signals, Stage


    class Shouting(Stage):
        """Does the chosen answer shout?

        Why it matters: nobody likes it.
        """

        reasons: ClassVar = {"shouting": "The chosen answer is in capitals."}
        measured: ClassVar = frozenset()
        drops: ClassVar = "above"
        limit: float = 0.5

        def measure(self, pairs: Pairs) -> pa.Table:
            texts = pairs.texts("chosen")
            return pa.table({"share": pa.array([sum(map(str.isupper, t)) / len(t) for t in texts], pa.float64())})

        def decide(self, signals: Signals) -> Decisions:
            share = signals.column("shouting.share")
            out = Decisions(signals.index, score=share, limit=self.limit)
            out.mark(share > self.limit, "drop", "shouting")
            out.findings.append(Finding("loudest", float(share.max()), len(out)))
            return out
'''


@pytest.fixture
def own(tmp_path):
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/shouting.py").write_text(textwrap.dedent(OWN))
    (tmp_path / "mine.yaml").write_text(
        "stages:\n  - exact_duplicate\n  - ./stages/shouting.py: {limit: 0.6}\ngate: [shouting<=50%]\n"
    )
    return str(tmp_path / "mine.yaml")


def test_a_stage_of_ones_own_runs_in_a_pipeline(own, tmp_path):
    rows = [*GOOD[:3], {"prompt": "Why?", "chosen": "BECAUSE I SAY SO", "rejected": "Well.", "id": "loud"}]
    for workers in (1, 2):
        out = tmp_path / f"out{workers}"
        result = prefdata.clean(rows, out, own, workers=workers, chunk_bytes=150)
        assert result.stages == ["malformed", "exact_duplicate", "shouting"] and result.counts["reasons"] == {
            "shouting": 1
        }
        (gone,) = dropped(out)
        assert (gone["id"], gone["pd_stage"], gone["pd_code"], gone["pd_limit"]) == (
            "loud",
            "shouting",
            "shouting",
            pytest.approx(0.6),
        )
        assert {f.name: f.value for f in result.findings}["loudest"] == gone["pd_score"] and result.gates[0]["ok"]
        assert "shouting.share" in pq.read_schema(out / "audit/signals.parquet").names
        assert "Does the chosen answer shout?" in (out / "report.html").read_text("utf-8")


def test_an_edited_stage_is_loaded_and_measured_anew(own, tmp_path):
    rows = [*GOOD[:2], {"prompt": "Why?", "chosen": "BECAUSE I SAY SO", "rejected": "Well.", "id": "loud"}]
    prefdata.clean(rows, tmp_path / "out", own, keep_scratch=True)
    path = tmp_path / "stages/shouting.py"
    path.write_text(path.read_text().replace("str.isupper", "str.islower"))
    again = prefdata.clean(rows, tmp_path / "out", own, keep_scratch=True, resume=True)
    assert again.counts["reasons"] == {"shouting": 2}  # the two that do not shout


@pytest.mark.parametrize(("change", "words"), [
    ("class Shouting(Stage)", "class Shouting(object)"), ("import pyarrow as pa", "import no_such_module"), ("from typing", "frm typing"),
])  # fmt: skip
def test_a_broken_stage_file_is_named(own, tmp_path, change, words):
    path = tmp_path / "stages/shouting.py"
    path.write_text(path.read_text().replace(change, words))
    with pytest.raises(prefdata.PrefdataError, match=r"shouting\.py"):
        prefdata.audit(GOOD, None, own)


def test_a_stage_that_breaks_the_contract_is_stopped(own, tmp_path):
    path = tmp_path / "stages/shouting.py"
    path.write_text(
        path.read_text()
        .replace("Decisions(signals.index, score=share, ", "Decisions(signals.index[:-1], score=share[:-1], ")
        .replace("share > self.limit", "[]")
    )
    with pytest.raises(prefdata.PrefdataError, match=r"shouting\.py.*one decision for each living row"):
        prefdata.audit(GOOD, None, own)


# ------------------------------------------------------------------------------------------------ replay


def faulty(n=80):
    """Rows with every kind of fault that needs no tokenizer."""
    from test_bytes import made_rows

    return made_rows(n, seed=5)


def test_decisions_and_source_reproduce_the_dataset(tmp_path):
    rows = faulty()
    result = prefdata.clean(str(write_lines(tmp_path / "in.jsonl", rows)), tmp_path / "out")
    made = pq.read_table(tmp_path / "out/audit/decisions.parquet").to_pylist()
    gone = {d["row"]: d for d in made if d["action"] == "drop"}
    swapped = {d["row"] for d in made if d["action"] == "swap"}
    expected = [
        (str(i), r["prompt"], r["chosen"], r["rejected"])
        for i, r in enumerate(rows)
        if i not in gone and i not in swapped
    ]
    assert [(r["pd_id"], r["prompt"], r["chosen"], r["rejected"]) for r in loaded(tmp_path / "out")] == expected
    assert result.counts["dropped"] == len(gone) > 10
    for row in dropped(tmp_path / "out"):
        d = gone[int(row["pd_id"])]
        assert (row["pd_stage"], row["pd_code"], row["pd_score"], row["pd_limit"]) == (
            d["stage"],
            d["reason"],
            d["score"],
            d["limit"],
        )
        assert (
            row["pd_peer"] == (None if d["peer"] is None else str(d["peer"]))
            and row["pd_line"] == int(row["pd_id"]) + 1
        )


@pytest.mark.parametrize(
    "stage", ["contradiction", "exact_duplicate", "near_duplicate", "similar_responses", "token_length"]
)
def test_leaving_a_stage_out_is_never_having_run_it(tmp_path, stage):
    rows = faulty()
    names = [n for n in load("certain")[0].names if n != stage]
    (tmp_path / "without.yaml").write_text(f"stages: [{', '.join(names)}]\n")
    skipped = prefdata.clean(rows, tmp_path / "skipped", load("certain", skip=[stage])[0])
    without = prefdata.clean(rows, tmp_path / "without", str(tmp_path / "without.yaml"))
    assert skipped.decisions.equals(without.decisions)
    parts = ("data", "audit/dropped", "audit/decisions.parquet", "audit/signals.parquet")
    assert bytes_of(tmp_path / "skipped", *parts) == bytes_of(tmp_path / "without", *parts)
    assert not [n for n in pq.read_schema(tmp_path / "skipped/audit/signals.parquet").names if n.startswith(stage)]


# ------------------------------------------------------------------------------------------------ bit for bit

odd = st.sampled_from(
    [
        "\x00",
        "\r",
        "\r\n",
        "\n",
        "\u2028",
        "\u2029",
        "\x85",
        "\ufeff",
        "\u200b",
        "\x1e",
        "\x1f",
        "é",
        "e\u0301",
        "👍🏽",
        "\U0010ffff",
        "\ud7ff",
        '"',
        "\\",
        "\\u0041",
        "  ",
        "\t",
        "\x7f",
    ]
)
texts = st.lists(odd | st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=6).map("".join)
answers = texts.map(lambda t: "x" + t)  # something visible, so that it stays
numbers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(
    [2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0]
)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [-0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16, 1e23]
)
looks = st.sampled_from(["007", "1e5", "1.0", "null", "None", "NaN", "true", "", "[1]", '{"a": 1}', "2026-01-01", "١٢"])
leaves = st.none() | st.booleans() | numbers | floats | texts | looks
nested = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
columns = st.sampled_from([numbers, floats, numbers | floats, st.none() | numbers, looks, texts, st.booleans(), st.lists(numbers, max_size=3), st.lists(texts, max_size=3),
                           st.dictionaries(texts, leaves, max_size=2), st.none(), nested, leaves])  # fmt: skip


@st.composite
def tables(draw):
    """Rows with columns of all sorts; a column may be null, or missing, in the first rows."""
    n = draw(st.integers(1, 7))
    kinds = {
        name: draw(columns)
        for name in draw(st.lists(st.sampled_from(["c1", "c2", "c3", "ünï", "a b", "labels"]), max_size=4, unique=True))
    }
    late = {name: (draw(st.integers(0, n)), draw(st.booleans())) for name in kinds}
    rows = []
    for i in range(n):
        row = {"id": draw(looks | texts), "prompt": draw(answers), "chosen": draw(answers), "rejected": draw(answers)}
        for name, kind in kinds.items():
            first, missing = late[name]
            if i >= first:
                row[name] = draw(kind)
            elif not missing:
                row[name] = None
        rows.append(row)
    return rows


def same(got, came, slack=0.0):
    """Equal in value and kind; an int may have become the equal float of a column of numbers."""
    if isinstance(came, dict):
        return (
            isinstance(got, dict) and list(got) == list(came) and all(same(got[k], v, slack) for k, v in came.items())
        )
    if isinstance(came, list):
        return (
            isinstance(got, list)
            and len(got) == len(came)
            and all(same(g, c, slack) for g, c in zip(got, came, strict=True))
        )
    if isinstance(came, bool) or came is None or isinstance(came, str):
        return type(got) is type(came) and got == came
    if isinstance(came, float):
        if slack:
            return type(got) is float and math.isclose(got, came, rel_tol=slack, abs_tol=1e-300)
        return type(got) is float and got == came and math.copysign(1, got) == math.copysign(1, came)
    return type(got) in (int, float) and got == came and int(got) == came


def stored(out):
    """The kept rows as they lie in the Parquet files."""
    rows = []
    for path in sorted((out / "data/train").iterdir()):
        table = pq.read_table(path)
        values = {}
        for f in table.schema:
            column = table.column(f.name)
            text = isinstance(f.type, pa.JsonType)
            values[f.name] = [
                json.loads(v) if text and v is not None else v
                for v in (column.cast(pa.string()) if text else column).to_pylist()
            ]
        rows += [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return rows


ONLY_READ = {"only": ["malformed"]}


def through(rows, folder, **options):
    path = folder / "in.jsonl"
    write_lines(path, rows)
    prefdata.clean(str(path), folder / "out", load("certain", **ONLY_READ)[0], **options)
    return folder / "out"


def holds(out, rows):
    """The set holds these rows: to the bit in its files; ``datasets`` may round floats of Json columns in the last place."""
    for got, slack in ((stored(out), 0.0), (loaded(out), 1e-15)):
        assert len(got) == len(rows)
        for a, b in zip(got, rows, strict=True):
            for name in b:
                assert same(a[name], b[name], slack), (name, a[name], b[name])
            assert all(a[name] is None for name in a if name not in b and name != "pd_id")


# Each example is a run and a load_dataset: no shrinking here, the long one shrinks.
quick = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


@quick
@given(rows=tables())
def test_values_leave_as_they_came(rows, tmp_path_factory):
    holds(through(rows, tmp_path_factory.mktemp("bits"), chunk_bytes=300, workers=1), rows)


@quick
@given(
    rows=tables(), extra=st.dictionaries(st.sampled_from(["name", "weight", "reasoning_content"]), nested, max_size=2)
)
def test_messages_leave_as_they_came(rows, extra, tmp_path_factory):
    for i, row in enumerate(rows):
        more = extra if i % 2 else {}
        row["prompt"] = [{"role": "user", "content": row["prompt"], **more}]
        row["chosen"], row["rejected"] = (
            [{"role": "assistant", "content": row[s], **more}] for s in ("chosen", "rejected")
        )
    holds(through(rows, tmp_path_factory.mktemp("bits"), chunk_bytes=300, workers=1), rows)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=tables())
def test_values_leave_as_they_came_long(rows, tmp_path_factory):
    holds(through(rows, tmp_path_factory.mktemp("bits"), chunk_bytes=300, workers=1), rows)


@pytest.mark.parametrize("values", [
    [1, 2, 2.5], [None, None, 3], [None, None, {"a": 1}], [2**53 + 1, 0.5, 1], [1, "1", 1.0], [2**64 - 1, 1, None], [{"a": 2**63}, {"b": [2**64 - 1]}, {}], [[], [1], [1.5]],
    [[None], [1], []], [True, 1, 0], ["007", "1e5", "NaN"], [{"a": None}, {"a": {"b": None}}, {"b": 1}], [-0.0, 0, 0.0], [[1, "a"], [{"k": []}], None], [2**63, 1, -1],
    [{"b": 1, "a": 2}, {"a": 2, "b": 1}, None], ["{}", "[1]", "null"], [None, None, None],
], ids=str)  # fmt: skip
@pytest.mark.parametrize("chunk_bytes", [60, 1 << 20], ids=["a chunk a row", "one chunk"])
def test_columns_of_every_sort(tmp_path, values, chunk_bytes):
    rows = [{**GOOD[i], "score": 0.5, "extra": v} for i, v in enumerate(values)]
    holds(through(rows, tmp_path, chunk_bytes=chunk_bytes, workers=1), rows)
    prefdata.clean(str(tmp_path / "out"), tmp_path / "again", load("certain", **ONLY_READ)[0])
    holds(tmp_path / "again", rows)  # and once more, from our own output


@pytest.mark.parametrize("source", ["file", "list"])
@pytest.mark.parametrize("values", [[10**30, 1, None], [{"a": 10**30}, {"b": [2**64]}, {}]], ids=str)
def test_integers_beyond_64_bits_keep_their_digits(tmp_path, values, source):
    """``datasets`` cannot read them out of its Json columns: they may come as text, never as another number."""
    rows = [{**GOOD[i], "score": 0.5, "extra": v} for i, v in enumerate(values)]
    prefdata.clean(
        rows if source == "list" else str(write_lines(tmp_path / "in.jsonl", rows)),
        tmp_path / "out",
        load("certain", **ONLY_READ)[0],
    )
    got = [r["extra"] for r in loaded(tmp_path / "out")]
    assert [json.loads(g) if isinstance(g, str) else g for g in got] == values


def test_columns_beyond_64_bits_are_told_and_drop_no_row(tmp_path):
    """Also where only a later chunk holds such a number; texts with long numbers in them stay texts."""
    rows = [
        {**GOOD[i], "prompt": f"{GOOD[i]['prompt']} {10**25 + i}", "score": 0.5, "n": v, "s": "9" * 30}
        for i, v in enumerate([7, None, -(10**20)])
    ]
    result = prefdata.clean(str(write_lines(tmp_path / "in.jsonl", rows)), tmp_path / "out", chunk_bytes=60, workers=1)
    got = loaded(tmp_path / "out")
    assert [r["n"] for r in got] == ["7", None, "-" + "1" + "0" * 20] and [r["s"] for r in got] == ["9" * 30] * 3
    assert result.report.source["changes"] == {
        "column 'n' holds integers beyond 64 bits and is written as JSON text": 3
    }
    assert result.counts["kept"] == 3


def test_a_message_that_cannot_be_read_again_is_dropped_with_all_its_digits(tmp_path):
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 10**30}}}]}
    rows = [
        {
            "id": "big",
            "prompt": [{"role": "user", "content": "Ask."}],
            "chosen": [call],
            "rejected": [{"role": "assistant", "content": "No."}],
        },
        GOOD[0],
    ]
    result = prefdata.clean(str(write_lines(tmp_path / "in.jsonl", rows)), tmp_path / "out")
    (gone,) = dropped(tmp_path / "out")  # which datasets can read, too
    assert (
        result.counts["reasons"] == {"bad_messages": 1}
        and json.loads(gone["pd_raw"]) == rows[0]
        and "64 bits" in gone["pd_reason"]
    )


def test_odd_names_of_columns(tmp_path):
    names = ["", " ", "prompt ", "Chosen", "a.b", "ключ", "row", "__index_level_0__", "label", "'", "\u2028"]
    rows = [{**GOOD[i], "score": 1.5, **{n: f"{n}{i}" for n in names}} for i in range(2)]
    holds(through(rows, tmp_path), rows)


@pytest.mark.parametrize(
    "values",
    [[1, 2, 2.5], [None, "b", "c"], [{"a": 1}, None, {"b": [1, None]}], [2**63, 1, None], [float("nan"), 1.0, None]],
    ids=str,
)
def test_a_list_of_dicts_leaves_as_it_came(tmp_path, values):
    rows = [{**GOOD[i], "score": 0.5, "extra": v} for i, v in enumerate(values)]
    prefdata.clean(rows, tmp_path / "out")
    for got, came in zip(loaded(tmp_path / "out"), rows, strict=True):
        assert same(got["extra"], came["extra"]) or (
            came["extra"] != came["extra"] and (got["extra"] is None or got["extra"] != got["extra"])
        )


def test_the_text_in_the_file_is_utf8_without_bom_and_ascii_escapes_are_one_value(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"prompt": "caf\\u00e9?", "chosen": "\\ud83d\\ude00 x", "rejected": "a\\u0000b"}\n')
    prefdata.clean(str(path), tmp_path / "out")
    (row,) = loaded(tmp_path / "out")
    assert (row["prompt"], row["chosen"], row["rejected"]) == ("café?", "😀 x", "a\x00b")


def test_a_dropped_row_is_kept_as_it_was_read(tmp_path):
    line = '{"id": "x",   "prompt": "A\\u2028?", "chosen": "", "rejected": "b", "more": {"k": [1, 2.50]}}'
    (tmp_path / "in.jsonl").write_text(line + "\n" + json.dumps(GOOD[0]) + "\n{cut\n", encoding="utf-8")
    prefdata.clean(str(tmp_path / "in.jsonl"), tmp_path / "out")
    row, cut = dropped(tmp_path / "out")
    assert json.loads(row["pd_raw"]) == json.loads(line) and (row["prompt"], row["chosen"], row["rejected"]) == (
        "A\u2028?",
        "",
        "b",
    )
    assert row["more"] == {"k": [1, 2.5]} and (cut["pd_raw"], cut["pd_line"]) == ("{cut", 3)
