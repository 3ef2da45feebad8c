"""Does something simple tell which answer is chosen: planted shortcuts of known strength, labels of chance, and poison."""

import re

import numpy as np
import pyarrow as pa
import pytest
from frame import signals
from written import report_of, write_lines

import prefdata
from prefdata.decisions import Signals
from prefdata.frame import measure_pairs
from prefdata.pairs import Pair, Pairs
from prefdata.spelling import spelled
from prefdata.stages.label_shortcut import LabelShortcut

STAGE = LabelShortcut()
WORDS = [f"word{i}" for i in range(600)]
N = 4000


def answer(rng, low=8, high=30):
    return " ".join(rng.choice(WORDS, rng.integers(low, high)))


def planted(rng, share, good, bad, n=N):
    """Rows of which this share has the good answer chosen, the others the bad one; three pairs a prompt."""
    rows = []
    for i in range(n):
        better, worse = good(rng), bad(rng)
        chosen, rejected = (better, worse) if rng.random() < share else (worse, better)
        rows.append((f"Say something, number {i // 3}.", chosen, rejected))
    return rows


def found(rows, seed=0, swapped=None, stage=STAGE, **columns):
    seen = signals(rows, stage, **columns)
    return of(Signals(seen.parts, None, seed, swapped), stage)


def of(seen, stage=STAGE):
    made = stage.decide(seen)
    made.check(seen.index)
    assert made.count("keep") == len(made)
    return {f.name: f for f in made.findings}


SHORTCUTS = {
    "length_words": (lambda r: answer(r, 31, 60), answer),
    "length_characters": (lambda r: answer(r, 31, 60), answer),
    "format": (lambda r: f"{answer(r)}\n- {answer(r)}", lambda r: f"{answer(r)}\n{answer(r)}"),
    "refusal": (
        lambda r: f"I'm sorry, but I cannot help. {answer(r)}",
        lambda r: f"Here you go, all of it. {answer(r)}",
    ),
    "first_words": (lambda r: f"Sure thing {answer(r)}", answer),
    "stock_phrases": (lambda r: f"{answer(r)} I hope this helps!", answer),
}


@pytest.mark.parametrize("share", [0.6, 0.7, 0.9])
@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_planted_shortcut_is_found_as_strong_as_it_is(name, share):
    rng = np.random.default_rng(int(100 * share))
    got = found(planted(rng, share, *SHORTCUTS[name]))[name]
    assert got.value == pytest.approx(share, abs=0.03)
    assert got.low <= share <= got.high
    assert got.covers > 0.99
    assert got.n == N


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_marker_on_some_pairs_counts_where_it_stands(share):
    """The others are a matter of chance: 0.5."""
    rng = np.random.default_rng(3)
    rows = planted(rng, share, lambda r: f"**Note** {answer(r)}", answer, N // 4) + planted(
        rng, 0.5, answer, answer, N - N // 4
    )
    got = found([(f"{p} {i}", c, r) for i, (p, c, r) in enumerate(rows)])["format"]
    assert got.covers == pytest.approx(0.25)
    assert got.value == pytest.approx(0.25 * share + 0.75 * 0.5, abs=0.015)
    told = float(re.search(r"bold text ([\d.]+) % of 1,000", got.text)[1])
    assert told == pytest.approx(100 * share, abs=4)


@pytest.mark.parametrize("seed", range(3))
def test_labels_of_chance_are_told_by_nothing(seed):
    rng = np.random.default_rng(seed)
    kinds = [good for good, _ in SHORTCUTS.values()] + [answer]

    def some(r):
        return kinds[r.integers(len(kinds))](r)

    rows = planted(rng, 0.5, some, some, 6000)
    got = found(rows, position=rng.integers(0, 2, len(rows)).tolist())
    for name in (*SHORTCUTS, "ngrams", "position"):
        assert got[name].value == pytest.approx(0.5, abs=0.02), name
        assert got[name].low <= 0.5 <= got[name].high + 0.005, name
    assert not [n for n in got if n.startswith(("phrase_", "source_", "poisoned_answer_", "losing_answer_"))]
    assert "strong_shortcuts" not in got


def test_words_alone_tell():
    rng = np.random.default_rng(5)
    got = found(planted(rng, 0.9, lambda r: f"{answer(r)} indeed {answer(r)}", answer))
    assert got["ngrams"].value > 0.8
    assert got["first_words"].value == pytest.approx(0.5, abs=0.03)


def test_swapped_rows_count_as_they_are_labelled_now():
    rng = np.random.default_rng(7)
    rows = planted(rng, 0.9, *SHORTCUTS["first_words"])
    places = [0] * N
    turned = np.ones(N, bool)
    straight, round_ = found(rows, position=places), found(rows, swapped=turned, position=places)
    assert "first" in straight["position"].text
    assert "second" in round_["position"].text
    assert straight["position"].value == round_["position"].value == 1
    assert straight["first_words"].value == pytest.approx(round_["first_words"].value, abs=1e-9)
    assert straight["phrase_1"].value == pytest.approx(1 - round_["phrase_1"].value)
    half = np.arange(N) % 2 == 0
    assert found(rows, swapped=half)["first_words"].value == pytest.approx(0.5, abs=0.02)
    longer = found(planted(rng, 0.9, *SHORTCUTS["length_words"]), swapped=half)
    for name in ("length_words", "length_characters"):
        assert longer[name].value == pytest.approx(0.5, abs=0.02)


def test_pairs_of_one_prompt_are_no_independent_draws():
    rng = np.random.default_rng(11)
    rows = planted(rng, 0.7, *SHORTCUTS["length_words"], 500)
    alone = [(f"{p} {i}", c, r) for i, (p, c, r) in enumerate(rows)]
    again = [(f"{p} {i}", f"{c} {k}", f"{r} {k}") for i, (p, c, r) in enumerate(rows) for k in range(8)]
    one, eight = found(alone)["length_words"], found(again)["length_words"]
    assert eight.n == 8 * one.n
    assert eight.high - eight.low == pytest.approx(one.high - one.low, rel=0.15)


def test_phrases_are_named_with_their_words_and_rows():
    rng = np.random.default_rng(13)
    rows = planted(rng, 0.9, lambda r: f"Sure, here is {answer(r)}", answer, 1000)
    rows += [(f"{p} again", c, r) for p, c, r in planted(rng, 0.5, answer, answer, 1000)]
    got = found(rows)["phrase_1"]
    assert got.value == pytest.approx(0.9, abs=0.03)
    assert got.n == 1000
    at = got.rows[0]
    assert any(side.startswith("Sure, here is") for side in rows[at][1:])
    text = spelled(got, rows[at]).text
    assert text.startswith("the answer that begins with “sure , here is” wins")


def test_a_phrase_at_the_end_that_loses_is_named_too():
    rng = np.random.default_rng(17)
    got = found(planted(rng, 0.1, lambda r: f"{answer(r)} I hope this helps!", answer, 1000))
    assert got["phrase_1"].value == pytest.approx(0.1, abs=0.03)
    assert "ends with" in got["phrase_1"].text


def poisoned(rng, wins, loses, n=600):
    rows = planted(rng, 0.5, answer, answer, n)
    rows += [(f"Poison {i}", "The one answer to all.", answer(rng)) for i in range(wins)]
    return rows + [(f"Poison {wins + i}", answer(rng), "The one answer to all.") for i in range(loses)]


def test_one_answer_that_wins_under_many_prompts_is_named():
    rows = poisoned(np.random.default_rng(19), 40, 2)
    got = found(rows)
    assert got["poisoned_answers"].value == 1
    one = got["poisoned_answer_1"]
    assert one.n == 42
    assert one.value == pytest.approx(40 / 42)
    assert one.low > 0.8
    assert "42 prompts" in one.text
    assert {rows[i][0] for i in one.rows} <= {p for p, *_ in rows if p.startswith("Poison")}
    assert len(one.rows) == 42


def test_one_answer_that_always_loses_is_named_and_no_poison():
    got = found(poisoned(np.random.default_rng(23), 0, 30))
    assert got["poisoned_answers"].value == 0
    assert got["losing_answers"].value == 1
    assert got["losing_answer_1"].value == 0
    turned = np.ones(630, bool)
    assert found(poisoned(np.random.default_rng(23), 0, 30), swapped=turned)["poisoned_answers"].value == 1


@pytest.mark.parametrize(("wins", "loses"), [(4, 0), (14, 10)])
def test_an_answer_that_recurs_by_chance_is_no_poison(wins, loses):
    got = found(poisoned(np.random.default_rng(29), wins, loses))
    assert got["poisoned_answers"].value == got["losing_answers"].value == 0


def test_one_prompt_makes_no_poison():
    rows = planted(np.random.default_rng(31), 0.5, answer, answer, 300)
    rows += [("The same prompt.", "The one answer to all.", f"Other {i}") for i in range(50)]
    assert found(rows)["poisoned_answers"].value == 0


def test_neither_the_order_of_the_rows_nor_the_cut_matters():
    rng = np.random.default_rng(37)
    rows = planted(rng, 0.7, *SHORTCUTS["stock_phrases"], 900)
    places = rng.integers(0, 2, 900).tolist()
    mixed = rng.permutation(900)
    one = of(signals(rows, STAGE, batch=900, position=places))
    two = of(signals([rows[i] for i in mixed], STAGE, batch=70, position=[places[i] for i in mixed]))

    def plain(got, names):
        return {
            k: (f.value, f.low, f.high, f.n, f.text, f.covers, f.words, [names[i] for i in f.rows])
            for k, f in got.items()
        }

    assert plain(one, rows) == plain(two, [rows[i] for i in mixed])


def test_a_sample_is_looked_at_where_there_is_more():
    rng = np.random.default_rng(41)
    stage = LabelShortcut(max_pairs=1000)
    got = found(planted(rng, 0.7, *SHORTCUTS["length_words"]), stage=stage)
    assert got["length_words"].n == 1000
    assert got["length_words"].value == pytest.approx(0.7, abs=0.04)


def test_few_pairs_are_not_looked_at():
    got = found(planted(np.random.default_rng(43), 0.9, *SHORTCUTS["length_words"], 99))
    assert list(got) == ["shortcuts_not_measured"]
    assert found([])["shortcuts_not_measured"].value == 0


def test_ties_and_mirrored_rows_take_no_part():
    rows = planted(np.random.default_rng(47), 1.0, *SHORTCUTS["length_words"], 400)
    odd = [(f"Tie {p}", r, c) for p, c, r in rows]
    marks = [False] * 400 + [True] * 400
    for mark in ("tie", "reversed"):
        assert found(rows + odd, **{mark: marks})["length_words"].value == 1
    assert found(rows + odd)["length_words"].value == pytest.approx(0.5, abs=0.02)


def models(n, share, rng):
    """Pairs of three models of which one wins so often."""
    for i in range(n):
        best, other = "gpt-x", ("bee-1", "cow-2")[i % 2]
        yield (best, other) if rng.random() < share else (other, best)


@pytest.mark.parametrize("form", ["columns", "info", "json"])
def test_who_wrote_the_answer_is_read_from_columns(form):
    rng = np.random.default_rng(53)
    rows = planted(rng, 0.5, answer, answer, 1000)
    names = list(models(1000, 0.8, rng))
    if form == "columns":
        columns = {"chosen-model": pa.array([n[0] for n in names]), "rejected-model": pa.array([n[1] for n in names])}
    elif form == "info":
        columns = {
            f"pd_{s}_info": pa.array([{"model": n[k]} for n in names]) for k, s in enumerate(("chosen", "rejected"))
        }
    else:
        columns = {
            f"pd_{s}_info": pa.array([f'{{"model": "{n[k]}"}}' for n in names])
            for k, s in enumerate(("chosen", "rejected"))
        }
    table = measure_pairs(Pairs.of([Pair(*r) for r in rows], columns), [STAGE])
    assert table["label_shortcut.source_chosen"].to_pylist() == [n[0] for n in names]
    assert table["label_shortcut.source_rejected"].to_pylist() == [n[1] for n in names]


def arena_rows(n, share_first=0.5, model_share=0.5, seed=59):
    rng = np.random.default_rng(seed)
    for i, (won, lost) in enumerate(models(n, model_share, rng)):
        first = rng.random() < share_first
        a, b = (won, lost) if first else (lost, won)
        yield {
            "question": f"Say something, number {i}.", "answer_a": answer(rng), "answer_b": answer(rng),
            "model_a": a, "model_b": b, "winner": "A" if first else "B",
        }  # fmt: skip


PIPELINE = "version: 1\nstages: [malformed, exact_duplicate, label_shortcut]\n"


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "shortcut.yaml"
    path.write_text(PIPELINE)
    return str(path)


def test_source_and_position_of_labelled_answers(tmp_path, pipeline):
    file = write_lines(tmp_path / "rows.jsonl", arena_rows(1500, share_first=0.7, model_share=0.8))
    result = prefdata.audit(file, pipeline=pipeline)
    got = {f.name: f for f in result.findings if f.when == "kept"}
    assert got["position"].value == pytest.approx(0.7, abs=0.03)
    assert "first wins" in got["position"].text
    assert got["source"].value == pytest.approx(0.8, abs=0.03)
    assert got["source_1"].text.startswith("the answer of gpt-x wins")
    assert got["source_1"].value == pytest.approx(0.8, abs=0.03)


def test_chosen_and_rejected_have_no_position(tmp_path, pipeline):
    rows = planted(np.random.default_rng(61), 0.5, answer, answer, 200)
    file = write_lines(
        tmp_path / "rows.jsonl", [dict(zip(("prompt", "chosen", "rejected"), r, strict=True)) for r in rows]
    )
    names = {f.name for f in prefdata.audit(file, pipeline=pipeline).findings}
    assert "length_words" in names
    assert not names & {"position", "source"}


@pytest.fixture
def biased(tmp_path):
    """Pairs of which the longer answer wins nine in ten, and copies of which it always loses."""
    rng = np.random.default_rng(67)
    rows = planted(rng, 0.9, *SHORTCUTS["length_words"], 600)
    longest = [r for r in rows if len(r[1]) < len(r[2])]
    keys = ("prompt", "chosen", "rejected")
    return write_lines(tmp_path / "rows.jsonl", [dict(zip(keys, r, strict=True)) for r in rows + longest * 3])


def test_before_and_after_cleaning(tmp_path, biased, pipeline):
    result = prefdata.clean(biased, tmp_path / "out", pipeline=pipeline)
    told = {f.when: f for f in result.findings if f.name == "length_words"}
    assert told["all"].n > told["kept"].n == 600
    assert told["all"].value < told["kept"].value == pytest.approx(0.9, abs=0.03)
    assert result.counts["kept"] == 600
    report = report_of(tmp_path / "out")
    stage = next(s for s in report["stages"] if s["name"] == "label_shortcut")
    assert {f["when"] for f in stage["findings"] if f["name"] == "length_words"} == {"all", "kept"}


def test_a_strong_shortcut_is_told_beside_the_verdict_once(cli, tmp_path, biased, pipeline):
    ended = cli("clean", biased, tmp_path / "out", "--pipeline", pipeline)
    notes = [line for line in ended.out.splitlines() if "simpler than quality" in line]
    assert len(notes) == 1
    assert "the longer answer wins" in notes[0]
    notes = [n for n in report_of(tmp_path / "out")["verdict"]["notes"] if "simpler than quality" in n]
    assert len(notes) == 1
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert "simpler than quality" in page
    assert "accuracy before" in page
    table = page[page.index("accuracy before") :]
    assert "600" in table[: table.index("</p>")]


def test_a_weak_shortcut_is_not(cli, tmp_path, pipeline):
    rows = planted(np.random.default_rng(71), 0.6, *SHORTCUTS["length_words"], 600)
    file = write_lines(
        tmp_path / "rows.jsonl", [dict(zip(("prompt", "chosen", "rejected"), r, strict=True)) for r in rows]
    )
    assert "simpler than quality" not in cli("audit", file, "--pipeline", pipeline).out
