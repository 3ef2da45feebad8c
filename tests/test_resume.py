"""Going on with a run: what is taken up, what is decided again without measuring, and what is refused."""

import json
import math
import shutil

import pytest
from labelled import dicts, pairs
from written import bytes_of, report_of, write_lines

import prefdata
from prefdata.errors import ConfigError, InputError, OutputError
from prefdata.stage import Stage, shipped

ROWS = [{"prompt": f"Name the animal number {i}.", "chosen": f"Cat {i}.", "rejected": f"Stone {i}."} for i in range(40)]
WRITTEN = (
    "data", "reversed", "ab", "audit/dropped", "audit/decisions.parquet", "audit/signals.parquet", "audit/report.json",
    "spotcheck.csv",
)  # fmt: skip
PLAIN = {"set": ["label_noise.folds=2", "label_noise.self_check=false"]}  # quick to decide
OTHER = {
    "contaminated": {"threshold": 0.3, "action": "flag"},
    "contradiction": {"near": 0.5, "action": "flag", "inverted": "drop", "min_margin": 2},
    "domain_balance": {"clusters": 3, "max_share": 0.34, "method": "weight", "max_dropped": 0.05, "max_deviation": 0.01},
    "exact_duplicate": {"action": "flag"},
    "label_noise": {"action": "flag", "min_flip_prob": 0.6, "rate": 0.1, "self_check": True, "folds": 3, "sample": 100},
    "label_shortcut": {"min_pairs": 20, "max_pairs": 100, "min_prompts": 3, "strong": 0.6},
    "malformed": {"special_tokens": "keep"},
    "near_duplicate": {"threshold": 0.5, "action": "flag"},
    "reverse_pairs": {"mode": "order", "fraction": 0.2},
    "similar_responses": {"max_similarity": 0.5, "action": "flag"},
    "token_length": {"max_length": 5, "action": "flag"},
}  # fmt: skip
ALONE = {
    "domain_balance": {"target": "uniform"},  # not beside max_share
    "label_noise": {
        "rule": "all",
        "epochs": 1,
        "judge_price": None,
        "judge_at_once": 2,
    },  # of votes, scorers and judges that these tests have not
    "reviewed": {"verdicts": None, "wrong_label": "flag"},  # see the test of a review
    "contaminated": {"against": None},  # see the tests of --against
}


def noisy():
    """Pairs of which every stage has something to say."""
    said, _ = pairs(120, beta=math.inf, flips=0.1)
    columns = {
        "domain": [("code", "chat", "maths")[i % 7 % 3] for i in range(120)],
        "score_chosen": [5 - i % 4 for i in range(120)],
    }
    out = dicts(said, **columns, score_rejected=[i % 3 for i in range(120)])
    one, two, three = out[20], out[24], out[28]
    more = [
        one, {**two, "chosen": f"{two['chosen']} Indeed."}, {**three, "chosen": three["rejected"], "rejected": three["chosen"]},
        {"prompt": "", "chosen": "a", "rejected": "b"}, {"prompt": "Close it.", "chosen": "Done <|im_end|>", "rejected": "No"},
        {"prompt": "Say how dusk falls.", "chosen": "The light fades, over the quiet fields.", "rejected": "The light fades over the quiet fields."},
    ]  # fmt: skip
    return [{**row, "id": f"r{i}"} for i, row in enumerate([*out, *more])]


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The set, evaluation sets, and a run of all stages over it that has kept its nine or so parts."""
    home = tmp_path_factory.mktemp("once")
    rows = noisy()
    write_lines(home / "in.jsonl", rows)
    for name, places in (("eval", (3, 9)), ("other", (13,))):
        write_lines(home / f"{name}.jsonl", [{"prompt": rows[i]["prompt"]} for i in places])
    found = prefdata.clean(
        str(home / "in.jsonl"), home / "out", "full", against=[str(home / "eval.jsonl")], keep_scratch=True,
        chunk_bytes=8000, workers=1, **PLAIN,
    )  # fmt: skip
    assert found.parts["measured"] >= 8
    words = {r["reason"] for r in found.decisions.select(["reason"]).to_pylist()}
    assert words >= {"tie", "exact_duplicate", "near_duplicate", "contaminated", "special_token", "too_similar"}, words
    return home


def parts_of(out):
    """When each part was written."""
    return {p.name: p.stat().st_mtime_ns for p in (out / ".work").iterdir() if p.suffix in (".arrow", ".json")}


def decided_again(home, tmp_path, pipeline="full", **options):
    """Decide the finished run again in another way: nothing is measured, and every byte is that of a run from scratch."""
    given = {"against": [str(home / "eval.jsonl")], "chunk_bytes": 8000, "workers": 1, **PLAIN, **options}
    given = {k: v for k, v in given.items() if v is not None}
    shutil.copytree(home / "out", tmp_path / "out")
    before = parts_of(tmp_path / "out")
    again = prefdata.clean(str(home / "in.jsonl"), tmp_path / "out", pipeline, resume=True, keep_scratch=True, **given)
    assert again.parts == {"measured": 0, "reused": again.parts["reused"], "why": ""} and again.parts["reused"] >= 8
    assert parts_of(tmp_path / "out") == before
    prefdata.clean(str(home / "in.jsonl"), tmp_path / "fresh", pipeline, **given)
    assert_same(tmp_path / "out", tmp_path / "fresh")
    return again


def assert_same(out, fresh):
    for name in WRITTEN:
        assert (out / name).exists() == (fresh / name).exists(), name
    assert bytes_of(out, *(n for n in WRITTEN if (out / n).exists())) == bytes_of(
        fresh, *(n for n in WRITTEN if (fresh / n).exists())
    )


def sets(stage, values):
    return [
        *(s for s in PLAIN["set"] if s.split("=")[0] not in {f"{stage}.{k}" for k in values}),
        *(f"{stage}.{k}={v}" for k, v in values.items()),
    ]


def test_the_tests_below_know_every_parameter_that_is_not_measured():
    for name, kind in shipped().items():
        known = {*OTHER.get(name, ()), *ALONE.get(name, ())}
        assert known == set(kind.model_fields) - kind.measured, name


@pytest.mark.parametrize("stage", sorted(OTHER))
def test_other_limits_of_a_stage_measure_nothing_again(once, tmp_path, stage):
    again = decided_again(once, tmp_path, set=sets(stage, OTHER[stage]))
    told = next(s[stage] for s in again.report.config["stages"] if stage in s)
    assert {k: told[k] for k in OTHER[stage]} == OTHER[stage]


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "key"), [(s, k) for s, given in OTHER.items() for k in given if len(given) > 1])
def test_another_limit_measures_nothing_again(once, tmp_path, stage, key):
    decided_again(once, tmp_path, set=sets(stage, {key: OTHER[stage][key]}))


@pytest.mark.parametrize(
    "left_out",
    [
        ["contradiction", "near_duplicate", "token_length", "domain_balance"],
        ["exact_duplicate", "similar_responses", "label_shortcut", "reverse_pairs"],
        pytest.param(["label_noise"]),
        *(pytest.param([s], marks=pytest.mark.slow) for s in sorted(OTHER) if s not in ("malformed", "contaminated", "label_noise")),
    ],
)  # fmt: skip
def test_left_out_stages_measure_nothing_again(once, tmp_path, left_out):
    decided_again(once, tmp_path, skip=left_out, **({"set": None} if left_out == ["label_noise"] else {}))


@pytest.mark.parametrize(
    "options",
    [
        {"only": ["near_duplicate"], "set": None},
        {"pipeline": "certain", "against": None, "set": None},
        {"pipeline": "strict", "against": None, "set": None},
        {"seed": 7, "split": "test=0.2", "sample": 0.3, "gate": ["kept>=99%"]},
        {"export": "none", "license": "mit"},
    ],
)
def test_other_options_measure_nothing_again(once, tmp_path, options):
    decided_again(once, tmp_path, **options)


def test_another_order_and_another_evaluation_set_measure_nothing_again(once, tmp_path):
    text = "version: 1\nstages:\n  - malformed\n  - contaminated\n  - similar_responses\n  - near_duplicate\n  - domain_balance: {target: uniform}\n"
    (tmp_path / "own.yaml").write_text(text)
    again = decided_again(once, tmp_path, str(tmp_path / "own.yaml"), set=None, against=[str(once / "other.jsonl")])
    assert again.counts["reasons"]["contaminated"] < 9


def test_a_stage_that_measures_nothing_may_be_added(once, tmp_path):
    free = [n for n, kind in shipped().items() if kind.measure is Stage.measure]
    assert {"exact_duplicate", "contradiction", "reviewed"} <= set(free)
    certain = {"against": None, "set": None, "chunk_bytes": 8000, "workers": 1}
    text = "version: 1\nstages:\n  - malformed\n  - near_duplicate\n"
    (tmp_path / "few.yaml").write_text(text)
    (tmp_path / "more.yaml").write_text(text.replace("  - near", "  - contradiction\n  - exact_duplicate\n  - near"))
    given = {k: v for k, v in certain.items() if v is not None}
    source = str(once / "in.jsonl")
    prefdata.audit(source, tmp_path / "out", str(tmp_path / "few.yaml"), keep_scratch=True, **given)
    again = prefdata.clean(source, tmp_path / "out", str(tmp_path / "more.yaml"), resume=True, **given)
    assert again.parts["measured"] == 0
    prefdata.clean(source, tmp_path / "fresh", str(tmp_path / "more.yaml"), **given)
    assert_same(tmp_path / "out", tmp_path / "fresh")


def test_an_audit_becomes_a_clean_and_an_audit_again(cli, once, tmp_path):
    source, out, fresh = once / "in.jsonl", tmp_path / "out", tmp_path / "fresh"
    assert cli("audit", source, out, "--keep-scratch", "-p", "certain").code == 0
    took = cli("clean", source, out, "--resume", "--keep-scratch", "-p", "certain", "--skip", "contradiction")
    assert took.code == 0 and " measured 0 of 1 part, 1 from an earlier run\n" in took.out
    cli("clean", source, fresh, "-p", "certain", "--skip", "contradiction")
    assert_same(out, fresh)
    back = cli("audit", source, out, "--resume", "-p", "certain", "--json")
    assert back.code == 0 and json.loads(back.out)["parts"] == {"measured": 0, "reused": 1, "why": ""}
    assert not (out / "data").exists() and not (out / "spotcheck.csv").exists() and not (out / ".work").exists()


def test_verdicts_of_people_measure_nothing_again(cli, once, tmp_path):
    source, out, fresh = once / "in.jsonl", tmp_path / "out", tmp_path / "fresh"
    cli("clean", source, out, "-p", "certain", "--keep-scratch")
    sheet = report_of(out)["spotcheck"]
    said = {"sheet": sheet["id"], "mode": "open", "verdict": "reject", "reviewer": "anna", "note": "", "time": ""}
    picked = [r for r in sheet["rows"] if r["base"]][:3]
    write_lines(tmp_path / "said.jsonl", [{**said, **{k: r[k] for k in ("row", "pd_id", "key")}} for r in picked])
    assert cli("review", out, "--import", tmp_path / "said.jsonl").code == 0
    shutil.copy(out / "audit/review.json", tmp_path / "review.json")
    words = ("-p", "certain", "--verdicts", tmp_path / "review.json")
    again = cli("clean", source, out, "--resume", *words)
    assert again.code == 0 and " measured 0 of 1 part, 1 from an earlier run\n" in again.out, again.all
    assert "rejected_by_review 3" in again.out
    cli("clean", source, fresh, *words)
    assert_same(out, fresh)


def test_what_measuring_reads_measures_again_and_says_so(cli, once, tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    source.write_bytes((once / "in.jsonl").read_bytes())
    words = ("clean", source, out, "-p", "certain", "--resume", "--keep-scratch")
    first = cli("clean", source, out, "-p", "certain", "--keep-scratch")
    assert "measured" not in first.out  # a run from scratch has nothing to say of it
    moved = cli(*words, "--set", "similar_responses.metric=rouge_l")
    assert " measured 1 of 1 part, 0 from an earlier run: similar_responses measures by metric\n" in moved.out
    assert " measured 0 of 1 part" in cli(*words, "--set", "similar_responses.metric=rouge_l").out
    more = cli(
        "clean", source, out, "-p", "default", "--resume", "--keep-scratch", "--set", "similar_responses.metric=rouge_l"
    )
    assert ": label_noise was not measured\n" in more.out
    source.write_bytes(source.read_bytes().split(b"\n", 1)[1])
    changed = cli("clean", source, out, "-p", "default", "--resume", "--keep-scratch")
    assert " measured 1 of 1 part, 0 from an earlier run: the input has changed\n" in changed.out
    assert report_of(out)["totals"]["pairs"] == 125


def test_without_parts_it_says_what_to_do(cli, once, tmp_path):
    source, out = once / "in.jsonl", tmp_path / "out"
    cli("clean", source, out, "-p", "certain")
    refused = cli("clean", source, out, "-p", "certain", "--resume", "--skip", "near_duplicate")
    assert refused.code == 2 and "finished run with another config" in refused.err and "--keep-scratch" in refused.err


def test_a_set_that_later_rows_show_to_be_chat_is_not_measured_again(tmp_path):
    def said(text, role="assistant"):
        return [{"role": role, "content": text}]

    chat = {"prompt": said("Hm?", "user"), "chosen": said("Yes."), "rejected": said("No.")}
    rows = [*(ROWS * 30)[:1100], chat, *ROWS[:20]]  # behind the rows that are looked at first
    path = str(write_lines(tmp_path / "in.jsonl", rows))
    given = {"chunk_bytes": 20_000, "workers": 1}
    prefdata.clean(path, tmp_path / "out", "certain", keep_scratch=True, **given)
    again = prefdata.clean(path, tmp_path / "out", "certain", resume=True, skip=["exact_duplicate"], **given)
    assert again.report.source["form"] == "chat" and again.parts["measured"] == 0 and again.parts["reused"] > 3
    prefdata.clean(path, tmp_path / "fresh", "certain", skip=["exact_duplicate"], **given)
    assert_same(tmp_path / "out", tmp_path / "fresh")


def test_grouped_rows_are_not_measured_again(tmp_path):
    rows = [{"prompt": f"Is {i // 2} even?", "completion": f"It is {i}.", "label": i % 2 == 0} for i in range(200)]
    path, given = str(write_lines(tmp_path / "in.jsonl", rows)), {"chunk_bytes": 3000, "workers": 1}
    prefdata.clean(path, tmp_path / "out", "certain", keep_scratch=True, **given)
    again = prefdata.clean(
        path, tmp_path / "out", "certain", resume=True, set=["near_duplicate.threshold=0.3"], **given
    )
    assert again.parts["measured"] == 0 and again.parts["reused"] > 3
    prefdata.clean(path, tmp_path / "fresh", "certain", set=["near_duplicate.threshold=0.3"], **given)
    assert_same(tmp_path / "out", tmp_path / "fresh")


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
