"""The contract that every shipped stage keeps; one more stage needs no more tests than these to be held to it."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from written import write_lines

import prefdata
from prefdata.decisions import ACTIONS, Part, Signals
from prefdata.frame import measure_pairs
from prefdata.pairs import Fault, Pairs, fault_of
from prefdata.pipeline import load
from prefdata.shapes import Asked, find_reading
from prefdata.stage import shipped

STAGES = sorted(shipped())
READING = find_reading(["prompt", "chosen", "rejected"], Asked(), [], "rows")
HARBOUR = "the small boat moved past the old stone pier while three gulls followed it over the cold grey water"


def explicit(prompt, chosen, rejected, **more):
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def say(text, role="user"):
    return [{"role": role, "content": text}]


TEXT = [
    explicit("Is the Sun a star?", "Yes, it is.", "No."),
    explicit("Is the Sun a star?", "Yes, it is.", "No."),  # exact_duplicate
    explicit("Which is better for tea?", "A porcelain pot.", "A tin can.", score_chosen=4, score_rejected=1),
    explicit(
        "Which is better for tea?", "A tin can.", "A porcelain pot.", score_chosen=3, score_rejected=1
    ),  # contradiction
    explicit("Pick a walk.", "Along the river.", "Up the hill."),
    explicit("Pick a walk.", "Up the hill.", "Round the lake."),
    explicit("Pick a walk.", "Round the lake.", "Along the river."),  # cycle
    explicit("Name a gem.", "Opal.", "Brick.", score_chosen=2, score_rejected=2),  # tie
    explicit("Name a tree.", "Oak.", "Rock.", score_chosen=1, score_rejected=2),  # score_inverted
    explicit("Name a bird.", "Wren.", "Stone.", score_chosen=2, score_rejected=1),  # small_margin
    explicit(f"Write of this: {HARBOUR}.", f"One morning {HARBOUR} again.", f"No one saw how {HARBOUR} today."),
    explicit(
        f"Write of this: {HARBOUR}.", f"One evening {HARBOUR} again.", f"No one saw how {HARBOUR} today."
    ),  # near_duplicate
    explicit("Say hello.", "Hello there.", "Hello there. "),  # identical_pair
    explicit(
        "Say how dusk falls.", "The light fades, over the quiet fields.", "The light fades over the quiet fields."
    ),  # too_similar
    explicit("Close the turn.", "Done <|im_end|>", "Not done"),  # special_token
    explicit(" ".join([HARBOUR] * 8), "Short.", "Long."),  # too_long
    explicit(
        "Tell it all.", " ".join([HARBOUR] * 8) + " left", " ".join([HARBOUR] * 8) + " right"
    ),  # identical_after_truncation
    explicit("日本語で答えて。", "はい、そうです。", "いいえ、違います。"),
    explicit("Emoji?", "👍🏽", "👍"),
    explicit("Code?", "```py\nx = 1\n```", "```py\nx = 2\n```"),
]
CHAT = [
    *(
        {k: say(v, "user" if k == "prompt" else "assistant") if isinstance(v, str) else v for k, v in r.items()}
        for r in TEXT
    ),
    explicit(
        [{"role": "system", "content": "Be kind."}, *say("Hi?")], say("Hello.", "assistant"), say("Go.", "assistant")
    ),
    explicit(
        say("Time?"),
        [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now", "arguments": {}}}]}],
        say("Noon.", "assistant"),
    ),
]


def sound(rows):
    """The rows as pairs, by the shapes' own reading."""
    made = [READING.read(r)[1] for r in rows]
    assert not any(isinstance(p, Fault) or fault_of(p, r) for p, r in zip(made, rows, strict=True))
    return made


def batch(rows):
    return Pairs.of(sound(rows))


@pytest.fixture(scope="module")
def make(tokenizer):
    """``make("token_length", max_length=64)``: the stage with what it needs to look at anything at all."""
    template = tokenizer / "template.jinja"
    template.write_text(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    asked = ["Is the Sun a star?", "Time?", f"Now write of this: {HARBOUR}."]
    evaluation = write_lines(tokenizer / "evaluation.jsonl", [{"question": q} for q in asked])
    needs = {
        "token_length": {"tokenizer": str(tokenizer), "chat_template": str(template), "max_length": 64},
        "contaminated": {"against": (str(evaluation),)},
    }
    return lambda name, **more: shipped()[name](**{**needs.get(name, {}), **more})


def measured(stage, rows, size=1000):
    """The stage's own signals, measured in batches of that size."""
    return pa.concat_tables(
        [stage.measure(batch(rows[i : i + size])) for i in range(0, len(rows), size)]
    ).combine_chunks()


def signals_of(stage, rows, folder, size=1000):
    """Signals of all rows in parts of that size, faults and scores as a run adds them."""
    parts = []
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        table = measure_pairs(batch(some), [stage])
        for side in ("chosen", "rejected"):
            table = table.append_column(
                f"pair.score_{side}", pa.array([r.get(f"score_{side}") for r in some], pa.float64())
            )
        table = table.append_column("pair.fault", pa.nulls(len(some), pa.string())).combine_chunks()
        path = folder / f"{size}-{start}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        parts.append(Part(str(path), start, len(some)))
    return Signals(parts)


def facts(made):
    """All that a decision says, for comparison."""
    return made.table("x").to_pylist(), made.findings


every_stage = pytest.mark.parametrize("name", STAGES)
both_forms = pytest.mark.parametrize("rows", [TEXT, CHAT], ids=["text", "chat"])


@every_stage
@both_forms
def test_the_same_input_gives_the_same_answer(make, name, rows, tmp_path):
    stage = make(name)
    assert measured(stage, rows).equals(measured(make(name), rows)) and measured(stage, rows).equals(
        measured(stage, rows)
    )
    signals = signals_of(stage, rows, tmp_path)
    first = facts(stage.decide(signals))
    assert (
        repr(facts(stage.decide(signals)))
        == repr(first)
        == repr(facts(make(name).decide(signals_of(make(name), rows, tmp_path))))
    )


@every_stage
@both_forms
def test_how_the_input_is_cut_does_not_matter(make, name, rows, tmp_path):
    stage = make(name)
    whole = measured(stage, rows)
    decided = facts(stage.decide(signals_of(stage, rows, tmp_path)))
    for size in (1, 3, 7):
        assert measured(stage, rows, size).equals(whole)
        assert repr(facts(stage.decide(signals_of(stage, rows, tmp_path, size)))) == repr(decided)


@every_stage
@both_forms
def test_measure_looks_at_a_row_alone(make, name, rows):
    """Neighbours and order do not matter: the batch turned round gives the same signals turned round."""
    stage = make(name)
    back = measured(stage, rows[::-1])
    assert back.take(pa.array(range(len(rows))[::-1])).combine_chunks().equals(measured(stage, rows))


@every_stage
def test_one_decision_a_living_row_with_a_reason_for_each_that_is_no_keep(make, name, tmp_path):
    stage = make(name)
    signals = signals_of(stage, TEXT, tmp_path, 5)
    for living in (
        signals,
        signals.living(np.arange(0, len(TEXT), 2)),
        signals.living(np.array([3])),
        signals.living(np.array([], np.int64)),
    ):
        made = stage.decide(living)
        made.check(living.index)
        table = made.table(name).to_pylist()
        for d in table:
            assert (d["action"] == "keep") == (d["reason"] is None) and d["action"] in ACTIONS
            assert d["reason"] is None or d["reason"] in stage.reasons
            assert d["peer"] is None or (d["peer"] != d["row"] and 0 <= d["peer"] < len(TEXT))
        assert all(
            re.fullmatch(r"[a-z][a-z0-9_.]*", f.name)
            and set(f.rows) <= set(living.index.tolist())
            and len(f.rows) <= 50
            for f in made.findings
        )
        assert all(not isinstance(f.value, float) or math.isfinite(f.value) for f in made.findings)


@every_stage
def test_a_score_has_a_scale_and_a_side(make, name, tmp_path):
    stage = make(name)
    made = stage.decide(signals_of(stage, TEXT, tmp_path))
    score, limit = made.score.astype(float), made.limit.astype(float)
    if np.isfinite(score).any():
        assert stage.scale
        told = made.of("drop") & np.isfinite(score) & np.isfinite(limit)
        right = score >= limit if stage.drops == "above" else score <= limit
        assert right[told].all()
    else:
        assert stage.drops is None or not np.isfinite(score).any()


@every_stage
def test_an_empty_batch(make, name):
    stage = make(name)
    assert stage.measure(Pairs.of([])).num_rows == 0
    assert stage.measure(batch(TEXT[:1])).schema.names == stage.measure(Pairs.of([])).schema.names


@every_stage
def test_a_stage_is_frozen_and_knows_its_parameters(make, name):
    stage = make(name)
    for parameter in type(stage).model_fields:
        with pytest.raises(ValidationError):
            setattr(stage, parameter, None)
    with pytest.raises(ValidationError):
        make(name, no_such_parameter=1)
    assert type(stage)(**stage.model_dump(mode="json")) == stage  # as a worker builds it
    assert stage.measured <= set(type(stage).model_fields)


def others(kind, parameter):
    """Further values of a parameter, from its schema."""
    schema = kind.model_json_schema()["properties"][parameter]
    for option in schema.get("anyOf", [schema]):
        if "enum" in option:
            yield from option["enum"]
        elif option.get("type") == "boolean":
            yield from (True, False)
        elif option.get("type") in ("number", "integer"):
            low = option.get("minimum", option.get("exclusiveMinimum", 0))
            high = option.get("maximum", option.get("exclusiveMaximum", low + 50))
            middle = (low + high) / 2
            yield from (
                (round(middle), round(middle) + 1)
                if option["type"] == "integer"
                else (middle, low + (high - low) * 0.9)
            )
        elif option.get("type") == "null":
            yield None


@every_stage
def test_measure_reads_no_field_that_it_does_not_name(make, name):
    stage = make(name)
    before = measured(stage, CHAT)
    tried = 0
    for parameter in sorted(set(type(stage).model_fields) - stage.measured):
        for value in others(type(stage), parameter):
            tried += value != getattr(stage, parameter)
            assert measured(make(name, **{parameter: value}), CHAT).equals(before), (parameter, value)
    assert tried or not set(type(stage).model_fields) - stage.measured


@pytest.mark.parametrize(
    ("name", "parameter", "value"), [("similar_responses", "metric", "rouge_l"), ("token_length", "tokenizer", None)]
)
def test_fields_that_measure_names_change_what_it_says(make, name, parameter, value):
    stage = make(name)
    assert parameter in stage.measured
    assert not measured(make(name, **{parameter: value}), TEXT).equals(measured(stage, TEXT))


@every_stage
def test_the_docstring_is_the_documentation(name):
    kind = shipped()[name]
    notes = kind.documentation()
    assert notes["asks"].endswith("?") and "\n" not in notes["asks"]
    for section in ("why", "how", "misses"):
        assert len(notes[section].split()) >= 8, section
    assert "References:" in kind.__doc__
    assert kind.name() == name and kind.__module__ == f"prefdata.stages.{name}"
    for word, text in kind.reasons.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", word) and len(text.split()) >= 5 and text.rstrip().endswith(".")


def test_a_reason_word_belongs_to_one_stage():
    words = [word for kind in shipped().values() for word in kind.reasons]
    assert len(words) == len(set(words))


# ------------------------------------------------------------------------------------------------ every word is reached

BROKEN = [
    {"prompt": "No rejected?", "chosen": "a"},  # missing_field
    explicit("Number?", 7, "eight"),  # bad_type
    explicit(" ", "a", "b"),  # empty_prompt
    explicit("Empty?", "", "b"),  # empty_completion
    explicit([{"content": "No role."}], say("a", "assistant"), say("b", "assistant")),  # bad_messages
    explicit(say("One thing?"), [*say("Another?"), *say("a", "assistant")], say("b", "assistant")),  # prompt_mismatch
    explicit("<image> Two?", "a", "b", images=["a.png", "b.png"]),  # image_mismatch
]

OTHERS = [  # rows of shapes with a label
    [{"prompt": "Which?", "output_1": "a", "output_2": "b", "winner": w} for w in ("output_1", None)],  # missing_label
    [
        *({"prompt": "Good?", "completion": "Yes.", "label": label} for label in (True, False)),  # label_conflict
        {"prompt": "Alone?", "completion": "Yes.", "label": True},  # unpaired
    ],
]


@pytest.fixture(scope="module")
def reached(make, tokenizer, tmp_path_factory):
    """``{reason: stages that gave it}`` over rows that hold every fault."""
    folder = tmp_path_factory.mktemp("reached")
    template = folder / "refuses.jinja"
    template.write_text(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}{% for m in messages %}{{ m.content }} {% endfor %}"
    )
    found = {}
    for name, rows, chat in (("text", TEXT, None), ("chat", [*CHAT, *BROKEN], template)):
        path = write_lines(folder / f"{name}.jsonl", rows)
        with path.open("ab") as file:
            file.write(b'{"prompt": "cut\n{"prompt": "caf\xe9", "chosen": "a", "rejected": "b"}\n')
        sets = [
            f"token_length.tokenizer={tokenizer}",
            "token_length.max_length=64",
            "contradiction.min_margin=1.5",
            *([f"token_length.chat_template={chat}"] if chat else []),
        ]
        against = [str(write_lines(folder / "evaluation.jsonl", [{"question": q} for q in ("Code?", "Why?")]))]
        result = prefdata.audit(str(path), pipeline=load("certain", sets=sets, against=against)[0])
        made = [result, *(prefdata.audit(rows, only=["malformed"]) for rows in OTHERS)]
        turning = ["reverse_pairs.mode=raw", "reverse_pairs.fraction=0.2"]
        made.append(prefdata.audit(str(path), pipeline="full", only=["reverse_pairs"], set=turning))
        of_domains = [
            explicit(f"{d} {i}?", "Yes.", "No.", domain=d) for d, n in (("law", 5), ("art", 2)) for i in range(n)
        ]
        capping = ["domain_balance.method=cap", "domain_balance.max_share=0.5"]
        made.append(prefdata.audit(of_domains, only=["domain_balance"], set=capping))
        by_score = [explicit(f"Say {i}.", "Yes.", "No.", score_chosen=i, score_rejected=3) for i in range(9)]
        made.append(prefdata.audit(by_score, only=["label_noise"], set=["label_noise.rule=all"]))
        made.append(_reviewed(folder / name))
        for d in (d for r in made for d in r.decisions.to_pylist() if d["reason"]):
            found.setdefault(d["reason"], set()).add(d["stage"])
    return found


def _reviewed(folder):
    """An audit with verdicts: one pair was rejected, of the other people preferred the wrong side."""
    rows = write_lines(folder.with_suffix(".judged"), [explicit(f"Judged {i}?", f"Yes, {i}.", "No.") for i in range(2)])
    sheet = prefdata.clean(str(rows), folder, only=["malformed"], input_format="jsonl", workers=1).report.spotcheck
    worse = {"chosen": "right", "rejected": "left"}[sheet.rows[1].left]
    said = [
        {"sheet": sheet.id, "row": r.row, "key": r.key, "mode": mode, "verdict": verdict, "reviewer": "anna"}
        for r, mode, verdict in zip(sheet.rows, ("open", "blind"), ("reject", worse), strict=True)
    ]
    verdicts = write_lines(folder.with_suffix(".verdicts.jsonl"), said)
    subprocess.run([sys.executable, "-m", "prefdata", "-qq", "review", folder, "--import", verdicts], check=True)
    return prefdata.audit(str(rows), only=["reviewed"], verdicts=[folder], input_format="jsonl", workers=1)


@pytest.mark.parametrize("word", sorted(w for kind in shipped().values() for w in kind.reasons))
def test_every_reason_word_is_reached_by_its_stage(reached, word):
    assert reached.get(word) == {next(name for name, kind in shipped().items() if word in kind.reasons)}


def test_the_planted_sample_is_what_its_truth_says():
    home = Path(prefdata.__file__).parent / "samples"
    truth = json.loads((home / "planted.truth.json").read_text("utf-8"))
    result = prefdata.audit(str(home / "planted.jsonl"))
    assert result.counts["pairs"] == len(truth) == (home / "planted.jsonl").read_bytes().count(b"\n")
    said = {}
    for d in result.decisions.to_pylist():
        if d["action"] != "keep":
            said.setdefault(d["row"], []).append((d["action"], d["stage"], d["reason"]))
    for key, t in truth.items():
        made = said.get(t["row"], [])
        if t["kept"] is True:
            assert not [m for m in made if m[0] == "drop"], (key, made)
        elif t["kept"] is False:
            assert made and made[-1] == (t["action"], t["stage"], t["reason"]), (key, made)
        else:
            assert [m[1:] for m in made if m[0] in ("drop", "flag")] == [(t["stage"], t["reason"])], (key, made)
