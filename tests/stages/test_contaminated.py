"""Prompts of evaluation sets: found in every form they come in, and nothing else is."""

import random
import re
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from frame import decide, signals
from written import dropped, report_of, write_lines

import prefdata
from prefdata.errors import InputError
from prefdata.evaluation import _KNOWN
from prefdata.near import grams, jaccard
from prefdata.stages.contaminated import Contaminated
from prefdata.text import words

QUESTION = "Which river flows through the old town of Heidelberg, and where does it join the Rhine?"
OTHER = "Name three plants that grow in salt marshes along the coast of the North Sea."


def row(prompt, n=0):
    return {"id": f"r{n}", "prompt": prompt, "chosen": f"A good answer {n}.", "rejected": f"A bad one {n}."}


def chat(*turns, system=None):
    said = [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(turns)]
    return [{"role": "system", "content": system}, *said] if system else said


@pytest.fixture
def against(tmp_path):
    """``against(rows)``: the stage with an evaluation set of these rows, or of these questions."""

    def make(rows, **parameters):
        rows = [r if isinstance(r, dict) else {"question": r} for r in rows]
        path = write_lines(tmp_path / "evaluation.jsonl", [*rows, {"question": OTHER}])
        return Contaminated(against=(str(path),), **parameters)

    return make


def actions(prompts, stage, **more):
    made = decide([(p, "a b", "c d") for p in prompts], stage, **more)
    return [["keep", "flag", "drop"][a] for a in made.action]


# ------------------------------------------------------------------------------------------------ what is near


def test_as_if_each_were_compared_with_each(against):
    dice = random.Random(3)
    vocabulary = ["".join(dice.choices("etaoinshrdlu", k=dice.randrange(3, 9))) for _ in range(3000)]
    asked = [dice.choices(vocabulary, k=dice.randrange(4, 60)) for _ in range(150)]
    prompts = [
        " ".join(dice.choice(vocabulary) if dice.random() < share else w for w in dice.choice(asked))
        for share in (0, 0.02, 0.05, 0.1, 0.2, 1)
        for _ in range(100)
    ]
    stage = against([" ".join(a) for a in asked])
    made = decide([(p, "a", "b") for p in prompts], stage, batch=97)

    def of(text):
        found = words(pa.array([text]))
        return grams(found.hashes), int(found.content[0])

    evaluation = [of(" ".join(a)) for a in asked]
    for i, prompt in enumerate(prompts):
        own, content = of(prompt)
        best = max(jaccard(own, g) for g, c in evaluation if c == content)
        assert made.of("drop")[i] == (best >= 0.8), prompt
        if best >= 0.8:
            assert made.score[i] == pytest.approx(best)
    whole = decide([(p, "a", "b") for p in prompts], stage)
    assert np.array_equal(whole.action, made.action) and np.array_equal(whole.score, made.score, equal_nan=True)
    assert whole.findings == made.findings


def test_same_near_and_other(against):
    stage = against([QUESTION, "Add 12 and 30, then take 7 away from what you have."])
    near = QUESTION.lower().replace("?", "")
    prompts = [
        QUESTION,
        f"  {QUESTION}\n",
        near,
        "Which river flows through Lyon?",
        "Add 12 and 31, then take 7 away from what you have.",
    ]
    assert actions(prompts, stage) == ["drop", "drop", "drop", "keep", "keep"]
    made = decide([(p, "a", "b") for p in prompts], stage)
    assert made.score[:2].tolist() == [1, 1] and 0.8 <= made.score[2] < 1 and made.limit[0] == np.float32(0.8)


def test_what_everybody_says_is_flagged(against):
    assert actions(["Hi", "Hi!", "Go on.", "Who wrote it?"], against(["Hi", "Go on.", "Who wrote it?"])) == [
        "flag", "keep", "flag", "drop",
    ]  # fmt: skip


def test_threshold_and_action(against):
    edited = QUESTION.replace("old town", "small village")
    score = float(decide([(edited, "a", "b")], against([QUESTION], threshold=0.5)).score[0])
    assert 0.5 < score < 0.8
    assert actions([edited], against([QUESTION], threshold=score - 0.01)) == ["drop"]
    assert actions([edited], against([QUESTION], threshold=score + 0.01)) == ["keep"]
    assert decide([(edited, "a", "b")], against([QUESTION], threshold=score + 0.01)).score[0] == pytest.approx(score)
    assert actions([QUESTION], against([QUESTION], action="flag")) == ["flag"]


def test_a_template_is_no_evidence(against):
    """The questions share nearly all their words; only one of those asked is really there."""
    template = "Read the question below with care, think about it step by step, and answer it in one short sentence: "
    names = [f"{a}{b}" for a in ("lo", "mi", "na", "so", "ta") for b in "bcdfghjklm"]
    asked = [f"{template}{n}on" for n in names]
    others = [f"{template}{n}ex" for n in names]
    assert actions([asked[7], *others], against(asked)) == ["drop"] + ["keep"] * len(others)


def test_the_template_counts_too(against):
    template = "Translate what is written below into plain English as it is spoken in the streets today: "
    asked = [" ".join(f"{a}{b}" for b in ("lor", "min", "nas", "sot", "tal", "rek", "fen")) for a in "bcdfghjklmnp"]
    stage = against([template + a for a in asked])
    assert actions([template + asked[3], asked[3]], stage) == ["drop", "keep"]


def test_many_prompts_with_one_template_in_seconds(against):
    dice = random.Random(1)
    template = "answer the question about the text below and explain your reasoning before you give the final answer: "
    made = [template + " ".join("".join(dice.choices("aeiklmnorst", k=6)) for _ in range(2)) for _ in range(12000)]
    stage = against(made[:6000])
    seen, start = signals([(p, "a", "b") for p in made[5900:]], stage), time.process_time()
    assert stage.decide(seen).count("drop") == 100
    assert time.process_time() - start < 10


# ------------------------------------------------------------------------------------------------ forms of evaluation sets

HH = f"\n\nHuman: {QUESTION}\n\nAssistant:"
FORMS = {
    "prompt": {"prompt": QUESTION},
    "problem": {"problem": QUESTION, "answer": "x"},
    "messages": {"messages": chat(QUESTION, "The Neckar.")},
    "system": {"prompt": chat(QUESTION, system="Be brief.")},
    "from and value": {
        "conversations": [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": "The Neckar."}]
    },
    "parts": {"prompt": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]},
    "turns": {"turns": [QUESTION, "And now in French."]},
    "tree": {"prompt": {"text": QUESTION, "role": "prompter", "replies": []}},
    "score list": {"text": [f"{HH} The Neckar.", f"{HH} The Main."], "score": [2, 1]},
    "whole conversations": {"chosen": chat(QUESTION, "The Neckar."), "rejected": chat(QUESTION, "The Main.")},
    "transcript": {"chosen": f"{HH} The Neckar.", "rejected": f"{HH} The Main."},
    "pair": row(QUESTION),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_the_evaluation_set(against, form):
    assert actions([QUESTION, "Which river flows through Lyon?"], against([FORMS[form]])) == ["drop", "keep"]


@pytest.mark.parametrize(
    "prompt",
    [HH, f"\n\nHuman: Hello\n\nAssistant: Hi.{HH}", chat(QUESTION), chat(QUESTION, system="Be brief."), chat("Hello", "Hi.", QUESTION)],
)  # fmt: skip
def test_forms_of_the_training_set(tmp_path, prompt):
    """The user's last turn counts, whatever stands before it."""
    answers = ("Yes.", "No.") if isinstance(prompt, str) else (chat("", "Yes.")[1:], chat("", "No.")[1:])
    rows = [{"prompt": prompt, "chosen": answers[0], "rejected": answers[1]}]
    path = write_lines(tmp_path / "evaluation.jsonl", [{"question": q} for q in (QUESTION, OTHER)])
    assert prefdata.audit(rows, against=[path]).counts["reasons"] == {"contaminated": 1}


def test_alpaca_input_belongs_to_the_question(against):
    stage = against([{"instruction": "Sum up the text that follows in a sentence.", "input": QUESTION}])
    prompts = [
        f"Sum up the text that follows in a sentence.\n\n{QUESTION}",
        "Sum up the text that follows in a sentence.",
    ]
    assert actions(prompts, stage) == ["drop", "keep"]


def test_a_turn_of_a_longer_evaluation_prompt_is_nobodys(against):
    stage = against(
        [{"messages": chat("Tell me about the river Neckar in spring.", "It is wide.", "Please say that again.")}]
    )
    assert actions(["Please say that again.", "Tell me about the river Neckar in spring."], stage) == ["keep", "keep"]


# ------------------------------------------------------------------------------------------------ the command line


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        row(QUESTION, 0),
        row("What do bees make?", 1),
        row(OTHER.lower(), 2),
        row("Where do owls sleep by day?", 3),
    ]
    write_lines("train.jsonl", rows)
    write_lines(
        "one.jsonl", [{"question": QUESTION}, {"question": QUESTION}, {"question": "Who am I today?"}, {"x": 1}]
    )
    write_lines("two.jsonl", [{"messages": chat(OTHER, "Glasswort.")}, {"messages": chat("What is a marsh?", "Wet.")}])
    return tmp_path


def test_clean_against_two_sets(cli, places):
    ended = cli("clean", "train.jsonl", "out", "--against", "one.jsonl", "--against", "two.jsonl")
    assert ended.code == 0
    assert "note: 1 of 2 prompts of one.jsonl (question; sha256 " in ended.out
    assert "occur, in 1 pairs; 1 rows of the file have no prompt that can be read" in ended.out
    assert "note: 1 of 2 prompts of two.jsonl (messages; sha256 " in ended.out
    assert {r["id"]: r["pd_code"] for r in dropped("out")} == {"r0": "contaminated", "r2": "contaminated"}
    stage = next(s for s in report_of("out")["stages"] if s["name"] == "contaminated")
    assert [(f["value"], f["n"], f["rows"]) for f in stage["findings"]] == [(1, 2, [0]), (1, 2, [2])]


def test_only_and_skip(cli, places):
    ended = cli("audit", "train.jsonl", "--against", "one.jsonl", "--only", "exact_duplicate")
    assert ended.code == 0 and "contaminated 1" in ended.out and "near_duplicate" not in ended.out
    ended = cli("audit", "train.jsonl", "--against", "one.jsonl", "--skip", "near_duplicate")
    assert ended.code == 0 and "contaminated 1" in ended.out
    ended = cli("audit", "train.jsonl", "--against", "one.jsonl", "--skip", "contaminated")
    assert ended.code == 2 and "one undoes the other" in ended.err


def test_against_itself_nothing_is_left(cli, places):
    ended = cli("audit", "train.jsonl", "--against", "train.jsonl")
    assert ended.code == 1 and "4 of 4 prompts of train.jsonl" in ended.out
    assert "would keep 0 of 4" in ended.out


def test_folders_globs_and_python(places):
    from datasets import Dataset

    Dataset.from_list([{"question": QUESTION}, {"question": "Who am I today?"}]).save_to_disk("saved")
    for given in ("saved", "on*.jsonl", places / "one.jsonl", ["one.jsonl"]):
        assert prefdata.audit("train.jsonl", against=given).counts["reasons"] == {"contaminated": 1}, given


def test_in_a_pipeline(cli, places):
    (places / "mine.yaml").write_text("version: 1\nstages:\n  - contaminated: {against: [one.jsonl], action: flag}\n")
    assert "contaminated 1" in cli("audit", "train.jsonl", "-p", "mine.yaml").out
    assert cli("audit", "train.jsonl", "-p", "mine.yaml", "--set", "contaminated.against=one.jsonl").code == 2
    (places / "mine.yaml").write_text("version: 1\nstages:\n  - contaminated\n")
    ended = cli("audit", "train.jsonl", "-p", "mine.yaml")
    assert ended.code == 0 and "note: no evaluation set was given" in ended.out and "would keep 4 of 4" in ended.out
    assert "contaminated 2" in cli("audit", "train.jsonl", "-p", "mine.yaml", "--against", "*o*.jsonl").out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.jsonl", None, "none.jsonl: does not exist"),
        ("empty.jsonl", "", "empty.jsonl: "),
        ("other.jsonl", '{"a": 1}\n{"a": 2}\n', "other.jsonl: no prompt was found in this evaluation set (columns: a)"),
        ("broken.jsonl", "{\n{\n", "broken.jsonl: no prompt was found"),
        ("-", None, "-: an evaluation set is not read from stdin"),
    ],
)
def test_evaluation_sets_that_cannot_be_read(cli, places, name, content, said):
    if content is not None:
        (places / name).write_text(content)
    ended = cli("clean", "train.jsonl", "out", "--against", name)
    assert ended.code == 2 and ended.err.startswith(f"error: {said}") and ended.err.count("\n") == 1, ended.all
    assert not (places / "out/manifest.json").exists()


def test_an_evaluation_set_is_looked_at_before_the_work(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        Contaminated(against=(str(tmp_path / "none.jsonl"),)).depends_on()


def test_an_evaluation_set_of_short_prompts_alone(against, tmp_path):
    path = write_lines(tmp_path / "short.jsonl", [{"question": "Hi"}, {"question": "Ho"}])
    assert actions(["Hi", QUESTION], Contaminated(against=(str(path),))) == ["flag", "keep"]


def test_the_documented_columns_are_those_that_are_read():
    page = (Path(__file__).parents[2] / "docs/how-to/decontamination.md").read_text("utf-8")
    told = page[page.index("holds a prompt is taken:") : page.index("It may be text")]
    assert re.findall(r"`(\w+)`", told.replace("(with `input`", "")) == list(_KNOWN)
