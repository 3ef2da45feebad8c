"""The report: its numbers are right, add up and are the same each time; hostile text stays text."""
# ruff: noqa: RUF012 - the stages below are written as users write theirs

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from prefdata.decisions import Decisions, Finding, Part, Signals, apply
from prefdata.pairs import SIDES
from prefdata.report import advice, numbers
from prefdata.report.model import Report
from prefdata.report.parts import Dimension, Value
from prefdata.report.render import render
from prefdata.report.summary import Facts, Row, summarise
from prefdata.stage import Stage


class Toy(Stage):
    """Not asked of anything."""

    @classmethod
    def name(cls):
        return {"Broken": "malformed", "Twins": "near_duplicate", "Alike": "similar_responses", "Flip": "label_noise",
                "Fits": "token_length"}[cls.__name__]  # fmt: skip


class Broken(Toy):
    """Can the row be read as a pair?

    Why it matters: A broken row stops the trainer, or trains it on nothing.

    How it decides: By the fault that reading found.

    What it misses: An answer that is there but says nothing.
    """

    reasons = {
        "parse_error": "The line is not JSON. Repair or remove it.",
        "empty_completion": "One of the answers is empty. There is nothing to learn from.",
    }


class Twins(Toy):
    """Is the pair nearly the same as an earlier one?

    Why it matters: A pair seen twice counts twice, and leaks from train to test.

    How it decides: Prompt, chosen and rejected must each be near those of an earlier row that stays. Candidates come
    from MinHash and are verified on the exact shingles.

    What it misses: The same thing said in other words.
    """

    threshold: float = 0.8
    reasons = {"near_duplicate": "Nearly the same as an earlier row that stays. Keep the first."}
    drops = "above"
    scale = "lowest Jaccard similarity of the three texts, 0-1"


class Alike(Toy):
    """Do the two answers differ at all?

    Why it matters: Two answers that say the same teach nothing but noise.

    How it decides: The character ratio of the two answers is compared with the limit.

    What it misses: A single digit may be the whole difference.
    """

    max_similarity: float = 0.9
    reasons = {
        "identical_pair": "Both answers are the same text. Remove the pair.",
        "too_similar": "The two answers are nearly the same. Look whether the difference decides.",
    }
    drops = "above"
    scale = "character ratio of the two answers, 0-1"


class Flip(Toy):
    """Does a classifier contradict the label?

    Why it matters: A wrong label teaches the opposite of what was meant.

    How it decides: A cross-fitted antisymmetric classifier gives each pair a probability that its label is wrong.

    What it misses: Faults that the whole set has in common.
    """

    reasons = {"likely_flipped": "The label is probably the wrong way round. Read the pair before trusting it."}
    drops = "above"
    scale = "probability that the label is wrong, 0-1"


class Fits(Toy):
    """What does the trainer see after its tokenizer and its window?"""

    reasons = {"too_long": "The pair does not fit into the window. Cut it or raise max_length."}


HOSTILE = [
    ("Show a tiny script tag.", "<script>document.title='owned'</script>", "I do not write code."),
    ("</textarea><img src=x onerror=\"document.title=1\"> What is this?", "A piece of markup.", "A poem."),
    ("How is a less-than sign written in HTML?", "&lt;", "<"),
    ("Make a small table.", "| a | b |\n|---|---|\n| 1 | `x|y` |", "No table."),
    ("</script><script>alert(1)</script>", "<!--<script>alert(2)//", "</style><svg onload=alert(3)>"),
    ("{{ 7 * 7 }} ${7*7} {% raw %}", "javascript:alert(4)", "\u2028alert(5)\u2029"),
    ("zero\u200bwidth and bell \x07", "bidi \u202eevil\u202c end", "family 👨\u200d👩\u200d👧 and \ufeffmark"),
    ("ما هي عاصمة فرنسا؟", "عاصمة فرنسا هي باريس.", "עיר הבירה היא פריז"),
]  # fmt: skip
WORDS = """the answer depends on what you mean by it since water boils at one hundred degrees only at sea level while on a mountain it boils sooner and tea tastes of less"""
WORDS = WORDS.split()


def texts(row, hostile=False, seed=0):
    """The invented pair of a row."""
    if hostile:
        return HOSTILE[row % len(HOSTILE)]
    if row % 20 == 15:  # nearly the row five before it
        return tuple(t.replace("water", "cold water") + " " for t in texts(row - 5))
    rng = np.random.default_rng([seed, row])
    chosen = [WORDS[i] for i in rng.integers(0, len(WORDS), 12 + row % 40)]
    rejected = [w if rng.random() < 0.8 else WORDS[rng.integers(0, len(WORDS))] for w in chosen][: 10 + row % 31]
    return (
        f"Question {row}: {' '.join(chosen[:6])}?",
        " ".join(chosen).capitalize() + ".",
        " ".join(rejected).capitalize() + ".",
    )


def source_of(row):
    """What the column ``source`` says of a row: four values, nothing in every tenth."""
    return None if row % 10 == 1 else "web" if row % 2 else ("panel", "forum <b>", "mail")[row % 3]


def known(n, fault):
    """The columns of known names, as the frame lays them down."""
    sources = [None if fault[r] else source_of(r) for r in range(n)]
    return pa.StructArray.from_arrays([pa.nulls(n), pa.array(sources, pa.string())], ["domain", "source"])


def language(n, fault):
    """What was told of the prompts' language."""
    return [None if fault[r] else "unknown" if r % 7 == 0 else "en" for r in range(n)]


def facts(path, n=400, action="clean", gates=(), read=None, long=1, source=None, hostile=False):
    """A small set with known faults: 2 % broken, 5 % near duplicates, 8 % too similar (half flagged), some flips."""
    rng = np.random.default_rng(7)
    row = np.arange(n)
    fault = np.where(row % 50 == 9, "empty_completion", np.where(row % 50 == 19, "parse_error", None))
    words = rng.integers(5, 200, (2, n)).astype(np.int32)
    words[0] += 20
    keys = np.arange(3 * n, dtype=np.uint64).reshape(3, n)
    table = pa.table({"pair.fault": pa.array(fault.tolist(), pa.string()), "pair.prompt_words": np.full(n, 7, np.int32),
                      "pair.chosen_words": words[0], "pair.rejected_words": words[1]}
                     | {f"pair.{s}_key": pa.array(keys[i], pa.uint64(), mask=fault != None) for i, s in enumerate(SIDES)}  # noqa: E711
                     | {"pair.known": known(n, fault), "domain_balance.language": pa.array(language(n, fault), pa.string())}
                     | {f"token_length.{s}_tokens": pa.array(2 * k, pa.int32()) for s, k in zip(SIDES, (np.full(n, 7), *words), strict=True)})  # fmt: skip
    parts, at = [], 0
    for k, size in enumerate((n // 2, n - n // 2)):
        name = f"{path}/{k}.arrow"
        with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table.slice(at, size))
        parts.append(Part(name, at, size))
        at += size
    signals = Signals(parts, seed=1)
    similar = np.minimum(rng.beta(2, 3, n), 0.89).astype(np.float32)
    similar[row % 25 == 3] = 0.92 + 0.01 * (row[row % 25 == 3] % 8)
    living, made = signals.index, []

    def add(decisions):
        nonlocal living
        made.append(decisions)
        living = decisions.rows[~decisions.of("drop")]

    d = Decisions(living)
    for word in ("empty_completion", "parse_error"):
        d.mark(fault[living] == word, "drop", word)
    add(d)
    d = Decisions(living, score=np.where(living % 20 == 15, 0.9, rng.random(len(living)) * 0.8), limit=0.8)
    twin = np.flatnonzero(living % 20 == 15)
    d.mark(twin, "drop", "near_duplicate", peer=living[twin] - 5)
    add(d)
    d = Decisions(living, score=similar[living], limit=0.9)
    d.mark((d.score >= 0.9) & (living % 2 == 0), "flag", "too_similar")
    d.mark((d.score >= 0.9) & (living % 2 == 1), "drop", "too_similar")
    add(d)
    d = Decisions(living, score=rng.beta(1, 6, len(living)), limit=0.5)
    d.mark((d.score >= 0.5) & (living % 3 > 0), "flag", "likely_flipped")
    d.mark((d.score >= 0.5) & (living % 3 == 0), "swap", "likely_flipped")
    d.mark(similar[living] >= 0.9, "flag", "likely_flipped")
    d.findings = [
        Finding(
            "label_noise", 0.081, len(living), "About 8.1 % of the labels are wrong.", 0.06, 0.11, tuple(living[:9])
        )
    ]
    add(d)
    d = Decisions(living)
    d.findings = [
        Finding("length_not_checked", "no tokenizer", len(living), "Length was not checked: no tokenizer was given.")
    ]
    add(d)

    def default_read(wanted):
        out = []
        for r in wanted:
            bad = fault[r] == "parse_error"
            p, c, j = ("", "", "") if bad else (t * long for t in texts(r, hostile))
            j = "" if fault[r] == "empty_completion" else j
            out.append(Row(int(r), f"{r}.0", "hh <b>.jsonl", int(r) + 1, p, c, j, {"id": f"q{r}", "source": source_of(r) or ""},
                           '{"prompt": "<script>alert(9)</script>' if bad else None, "Expecting ',' at column 12" if bad else None))  # fmt: skip
        return out

    return Facts(
        signals=signals,
        stages=[Broken(), Twins(), Alike(), Flip(), Fits()],
        decisions=made,
        outcome=apply(n, made),
        read=read or default_read,
        source=source or {"files": [{"name": "hh <b>.jsonl", "bytes": 81234, "sha256": "ab" * 32, "rows": n}], "rows": n, "pairs": n,
                          "shape": "explicit", "columns": {"prompt": "question"}, "form": "text", "shapes": {"explicit": n},
                          "changes": {"role 'human' renamed to 'user'": 3}, "partial": False},
        pipeline="default",
        config={"stages": [{"near_duplicate": {"threshold": 0.8}}, {"similar_responses": {"max_similarity": 0.9}}]},
        gates=list(gates),
        action=action,
        seed=1,
        version="0.1.0",
        splits={"train": int((apply(n, made).kept).sum())},
        sample=0.05,
        marked=np.zeros(n, bool),
    )  # fmt: skip


RUN = {"command": "prefdata clean 'hh <b>.jsonl' out/", "started": "2026-11-30T19:00:00Z", "wall_seconds": 6.12, "cpu_seconds": 9.8,
       "peak_memory_bytes": 412_000_000, "engine": "local", "workers": 2,
       "seconds_by_stage": {"malformed": 0.1, "near_duplicate": 3.2, "similar_responses": 1.0, "label_noise": 1.6},
       "versions": {"python": "3.12.3", "numpy": "2.3.1", "pyarrow": "26.0.1"}}  # fmt: skip
FAILED = {"gate": "too_similar<=5%", "value": 0.0725, "text": "7.3 %", "ok": False}
PASSED = {"gate": "kept>=60%", "value": 0.84, "text": "84.0 %", "ok": True}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return summarise(facts(tmp_path_factory.mktemp("r"), gates=[FAILED, PASSED]))


@pytest.fixture(scope="module")
def page(report):
    return render(report, RUN)


def plain(page):
    """What the page says: its text, without script and style."""
    page = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_pairs_in_are_kept_plus_dropped_at_every_stage(report):
    t = report.totals
    assert t.pairs == 400 == t.kept + t.dropped
    living = t.pairs
    for stage in report.funnel:
        assert stage.asked == living and stage.kept == stage.asked - stage.dropped
        living = stage.kept
    assert living == t.kept
    assert sum(f.dropped for f in report.funnel) == t.dropped


def test_every_issue_is_counted_and_titled(report):
    found = {i.key: i for i in report.issues}
    assert found["empty_completion"].rows == 8 and found["parse_error"].rows == 8
    assert found["near_duplicate"].rows == 20 and found["near_duplicate"].action == "drop"
    assert found["near_duplicate"].title == "Nearly the same as an earlier row that stays"
    assert found["too_similar"].actions == {"flag": 8, "drop": found["too_similar"].rows - 8}
    assert [i.rows for i in report.issues] == sorted((i.rows for i in report.issues), reverse=True)


def test_rows_with_two_issues_are_counted_on_both_sides(report):
    found = {i.key: i for i in report.issues}
    (also,) = found["too_similar"].overlaps
    assert (also.reason, also.rows) == ("likely_flipped", 8)
    assert found["likely_flipped"].overlaps[0].rows == 8


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.27753), (5, 10, 0.23659, 0.76341), (81, 263, 0.25527, 0.36621), (10, 10, 0.72247, 1.0)],
)
def test_wilson_interval_has_the_published_values(hits, n, low, high):
    share = numbers.wilson(hits, n)
    assert share.low == pytest.approx(low, abs=2e-5) and share.high == pytest.approx(high, abs=2e-5)


def test_length_share_leaves_out_ties_broken_rows_and_turns_swaps(tmp_path):
    made = facts(tmp_path)
    report = summarise(made)
    gap = made.signals.column("pair.chosen_words") - made.signals.column("pair.rejected_words")
    sound = np.array([r % 50 not in (9, 19) for r in range(400)])
    assert report.length.before.n == int((gap[sound] != 0).sum())
    assert report.length.before.hits == int((gap[sound] > 0).sum())
    kept = made.outcome.kept
    turned = np.where(made.outcome.swapped, -gap, gap)[kept]
    assert made.outcome.swapped[kept].any()
    assert report.length.after.hits == int((turned > 0).sum())


def test_what_if_agrees_with_counting_again(tmp_path):
    made = facts(tmp_path)
    stage = summarise(made).stages[1]
    score = made.decisions[1].score
    now = [w for w in stage.what_if if w.current]
    assert len(stage.what_if) == 6 and len(now) == 1
    assert now[0].acted == 20 and now[0].kept == len(score) - 20 and now[0].change == 0
    for w in stage.what_if:
        assert w.acted == int((score >= np.float32(w.limit)).sum()), w
        assert w.kept == len(score) - w.acted


def test_where_some_are_dropped_beyond_the_limit_the_limit_is_that_of_drops(tmp_path):
    """Most of the pairs beyond it may only be flagged, for want of a second vote."""
    made = facts(tmp_path)
    twins = made.decisions[1]
    beyond = np.flatnonzero(twins.of("drop"))
    twins.mark(beyond[:15], "flag", "near_duplicate")
    stage = summarise(replace(made, outcome=apply(400, made.decisions))).stages[1]
    assert stage.verb == "drop" and stage.beyond_kept == 15
    assert [w.acted for w in stage.what_if if w.current] == [5]


def test_what_if_keeps_drops_of_another_cause_and_rows_saved_by_another_condition():
    score = np.array([0.1, 0.5, 0.7, 0.9, np.nan, 0.95], np.float32)
    acted = np.array([True, False, False, True, True, False])  # first and fifth for another cause; the last was saved
    got = {w.limit: w.acted for w in numbers.what_if(score, acted, float(np.float32(0.8)), "above", True, 3, "drop")}
    assert got[0.8] == 3
    for limit, count in got.items():
        assert count == 2 + sum(limit <= s for s in (0.5, 0.7, 0.9) if not np.isnan(s)), limit


def test_histogram_counts_everything_and_shares_agree_with_the_limit(report):
    h = report.stages[1].histogram
    assert sum(h.before) == h.n_before == report.funnel[1].asked
    assert sum(h.after) == h.n_after == report.totals.kept
    assert (h.above, h.below) == (20, h.n_before - 20) and h.limit == 0.8
    assert any(e == pytest.approx(0.8) for e in h.edges)
    at = next(i for i, e in enumerate(h.edges) if e == pytest.approx(0.8))
    assert sum(h.before[at:]) == 20


def test_a_long_tail_does_not_squeeze_the_rest():
    values = np.concatenate([np.random.default_rng(0).normal(100, 10, 5000), [1e6]])
    h = numbers.histogram(values, values[:10])
    assert h.clipped_high and h.highest == 1e6 and h.edges[-1] < 1000 and sum(h.before) == 5001


@pytest.mark.parametrize("values", [[0.0], [5, 5, 5], [-1.0, 1.0], [1e-9, 2e-9], [np.nan], []])
def test_odd_scores_make_a_histogram_or_none(values):
    h = numbers.histogram(np.array(values, np.float64), np.array([]))
    assert h is None or sum(h.before) == len(values)


def test_worst_and_nearest_rows_are_the_right_ones(tmp_path):
    made = facts(tmp_path)
    stage, d = summarise(made).stages[2], made.decisions[2]
    by_row = dict(zip(d.rows.tolist(), d.score.tolist(), strict=True))
    assert all(by_row[r] >= np.float32(0.9) for r in stage.worst + stage.near_acted) and len(stage.worst) == 3
    within = sorted(s for s in by_row.values() if s < np.float32(0.9))[-3:]
    assert sorted(by_row[r] for r in stage.near_kept) == within
    assert [by_row[r] for r in stage.worst] == sorted(by_row.values())[:-4:-1]
    assert not set(stage.worst) & set(stage.near_acted)


def test_every_issue_has_rows_in_the_page_and_peers_come_along(report):
    assert all(i.embedded for i in report.issues)
    by_row = {r.row: r for r in report.rows}
    assert sum(r.listed for r in report.rows) <= 400
    peers = [m.peer for r in report.rows if r.listed for m in r.marks if m.peer is not None]
    assert peers and all(p in by_row for p in peers)


def test_long_texts_are_cut_and_the_page_stays_small(tmp_path):
    report = summarise(facts(tmp_path, long=2000))
    assert max(len(r.chosen) for r in report.rows) <= report.cut_at <= 4000
    page = render(report, RUN)
    assert len(page.encode()) < 3_000_000
    assert report.rows_not_shown and f"{report.rows_not_shown} more were left out" in plain(page)
    shown = {r.row for r in report.rows}
    assert all(r in shown for s in report.stages for r in s.worst)


def test_the_verdict_names_the_gate_and_what_was_not_checked(report, page):
    assert report.verdict.status == "gate_failed"
    assert report.verdict.sentence == "Gate failed: too_similar is 7.3 %, wanted at most 5 %."
    assert "Length was not checked: no tokenizer was given." in report.verdict.notes
    said = plain(page)
    assert "Gate failed: too_similar is 7.3 %, wanted at most 5 %." in said
    assert "✗ failed" in said and "✓ passed" in said


def test_an_audit_says_would_and_a_partial_run_says_so(tmp_path):
    source = {"files": [], "rows": 400, "pairs": 400, "partial": True}
    report = summarise(facts(tmp_path, action="audit", source=source))
    assert report.verdict.sentence.startswith("Would keep ") and report.verdict.partial
    assert "Partial: only the first 400 rows were read (--limit)." in report.verdict.notes
    assert "Partial run" in plain(render(report, {}))


def test_nothing_left_and_nothing_there(tmp_path):
    made = facts(tmp_path)
    d = Decisions(made.signals.index)
    d.mark(np.ones(400, bool), "drop", "empty_completion")
    none = Facts(**{**vars(made), "stages": [Broken()], "decisions": [d], "outcome": apply(400, [d])})
    report = summarise(none)
    assert report.verdict.status == "empty" and report.length.after.value is None
    assert "Nothing is left: all 400 pairs were dropped" in plain(render(report, {}))
    d = Decisions(np.arange(0))
    empty = Facts(**{**vars(made), "signals": Signals([]), "stages": [Broken()], "decisions": [d], "outcome": apply(0, [d]), "marked": np.zeros(0, bool), "read": lambda rows: []})  # fmt: skip
    assert "The input holds no pairs" in plain(render(summarise(empty), {}))


def test_no_stage_at_all_and_no_run_facts(tmp_path):
    made = facts(tmp_path)
    broken = np.isin(np.arange(400) % 50, (9, 19))  # no stage has dropped them, and nobody can judge them
    bare = replace(made, stages=[], decisions=[], outcome=apply(400, []), marked=broken)
    assert "No stage found anything." in plain(render(summarise(bare), {}))


def test_two_stages_of_one_name_keep_apart(tmp_path):
    made = facts(tmp_path)
    again = Decisions(made.decisions[-1].rows)
    again.mark(again.rows % 7 == 0, "flag", "near_duplicate")
    stages, decisions = [*made.stages, Twins()], [*made.decisions, again]
    report = summarise(
        Facts(**{**vars(made), "stages": stages, "decisions": decisions, "outcome": apply(400, decisions)})
    )
    assert {"near_duplicate", "near_duplicate-2"} <= {f.key for f in report.funnel}
    assert {"near_duplicate", "near_duplicate@near_duplicate-2"} <= {i.key for i in report.issues}
    ids = re.findall(r'\bid="([^"]+)"', render(report, RUN))
    assert len(ids) == len(set(ids))


def test_the_same_facts_give_the_same_bytes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = (summarise(facts(tmp_path / x)).model_dump_json() for x in "ab")
    assert one == two and str(tmp_path) not in one
    again = Report.model_validate_json(one)
    assert render(again, RUN) == render(again, RUN)
    assert again.model_dump_json() == one


def test_hostile_text_is_text(tmp_path):
    page = render(summarise(facts(tmp_path, hostile=True)), RUN)
    assert "&lt;script&gt;document.title=" in page
    assert "<script>document.title" not in page and "<img src=x" not in page and "<svg onload" not in page
    assert "&lt;/textarea&gt;&lt;img src=x onerror=" in page
    assert "&amp;lt;" in page and "&amp;amp;lt;" not in page
    assert "{{ 7 * 7 }}" in page
    assert "zero⟨U+200B⟩width and bell ⟨U+0007⟩" in page and "bidi ⟨U+202E⟩evil" in page
    assert "👨\u200d👩\u200d👧" in page  # a joiner that carries meaning stays
    assert len(re.findall(r"<script\b", page)) == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
    assert "<" not in data and "\u2028" not in data
    assert any("<script>document.title" in r.get("chosen", "") for r in json.loads(data)["rows"])


def test_the_page_needs_nothing_else_and_keeps_its_own_rules(page):
    assert "default-src 'none'" in page and page.count("sha256-") == 2 and "unsafe" not in page
    assert not re.search(r"""(src|href)="(https?:|//)""", page)
    body = page.split("</style>", 1)[1].split('<script type="application/json"')[0]
    assert " style=" not in body and not re.search(r"\son\w+=\"", re.sub(r">[^<]*<", "><", body))
    assert page.count("<h1") == 1 and '<html lang="en"' in page and "<title>Cleaning of hh &lt;b&gt;.jsonl" in page
    assert "Copyright (c) 2009-2015, Kevin Decker" in page
    assert str(Path.home()) not in page


def test_numbers_stand_in_the_page_without_script(page, report):
    said = plain(page)
    for text in (
        "Funnel",
        "near_duplicate",
        "What if the limit were",
        "Length bias",
        "ab" * 32,
        "412.0 MB",
        "2 workers",
    ):
        assert text in said, text
    assert f"{report.totals.kept} {report.totals.kept_share:.1%}".replace("%", "\u00a0%").split()[0] in said
    assert "Beside" in said and "Expecting &#39;,&#39; at column 12" in said


def test_a_page_of_numbers_only_holds_no_text_of_the_data(report):
    page = render(report, RUN, rows=False)
    assert "document.title" not in page and "Question " not in page and 'id="data"' not in page
    assert "numbers only" in plain(page)


def sound():
    return np.array([r % 50 not in (9, 19) for r in range(400)])


def test_the_spread_over_a_column_is_a_recount(tmp_path):
    made = facts(tmp_path)
    report = summarise(made)
    by_source, by_language = report.balance
    assert (by_source.key, by_language.key) == ("source", "language")
    mine = np.array([source_of(r) or "" for r in range(400)])
    kept = made.outcome.kept & sound()
    assert by_source.n_before == int((sound() & (mine != "")).sum())
    assert by_source.without_before == int((sound() & (mine == "")).sum())
    assert by_source.without_after == int((kept & (mine == "")).sum())
    gap = made.signals.column("pair.chosen_words") - made.signals.column("pair.rejected_words")
    turned = np.where(made.outcome.swapped, -gap, gap)
    assert by_source.values[0].name == "web" and len(by_source.values) == 4 and by_source.unlisted == 0
    for v in by_source.values:
        assert (v.before, v.after) == (int((sound() & (mine == v.name)).sum()), int((kept & (mine == v.name)).sum()))
        assert v.change == pytest.approx(v.after / by_source.n_after - v.before / by_source.n_before)
        assert v.longer_after.hits == int((turned[kept & (mine == v.name)] > 0).sum())
        assert v.longer_before.n == int((gap[sound() & (mine == v.name)] != 0).sum())
    assert [(v.name, v.before) for v in by_language.values] == [("en", int((sound() & (np.arange(400) % 7 > 0)).sum()))]
    said = plain(render(report, RUN))
    assert f"web {by_source.values[0].before} " in said and "without one" in said and "change in points" in said
    assert "there is nothing to balance" in said


def test_the_target_of_domain_balance_is_drawn(tmp_path):
    made = facts(tmp_path)
    made.decisions[-1].findings += [
        Finding("share.web", 0.5, 300, wanted=("the column 'source'", "web", 0.25)),
        Finding("share.en", 0.5, 300, wanted=("the column 'lang'", "en", 0.25)),
    ]
    report = summarise(made)
    assert {v.name: v.target for v in report.balance[0].values if v.target} == {"web": 0.25}
    assert all(v.target is None for v in report.balance[1].values)
    page = render(report, RUN)
    assert page.count('class="target"') == 1 and "red line target" in page
    assert "web is farthest from its target" in report.advice["balance.source"]


def test_where_no_column_tells_groups_apart_the_page_says_what_it_looks_for(tmp_path):
    made = facts(tmp_path)
    wanted = {"pair.fault", *(f"pair.{s}_words" for s in SIDES), *(f"pair.{s}_key" for s in SIDES), "pair.known"}
    parts = []
    for part in made.signals.parts:
        table = pa.ipc.open_file(part.path).read_all().select(sorted(wanted))
        table = table.set_column(table.column_names.index("pair.known"), "pair.known", [pa.StructArray.from_arrays([pa.nulls(part.n)] * 2, ["domain", "source"])])  # fmt: skip
        with pa.OSFile(part.path + "2", "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table)
        parts.append(Part(part.path + "2", part.start, part.n))
    report = summarise(replace(made, signals=Signals(parts, seed=1)))
    assert report.balance == []
    assert "looked for, with 2 to 1,000 different short texts: domain, source" in plain(render(report, RUN))


def test_words_are_counted_where_no_tokenizer_was_given(tmp_path):
    made = facts(tmp_path)
    t = summarise(made).tokens
    words = np.array([7 + max(c, j) for c, j in zip(*(made.signals.column(f"pair.{s}_words") for s in ("chosen", "rejected")), strict=True)])  # fmt: skip
    assert (t.unit, t.max_length, t.windows) == ("words", None, []) and t.n == int(sound().sum())
    assert t.quantiles[-1] == words[sound()].max() and sum(t.histogram.before) == t.n
    assert sum(t.histogram.after) == int(made.outcome.kept.sum()) and t.histogram.limit is None
    said = plain(render(summarise(made), RUN))
    assert "counted in words" in said and "--set token_length.tokenizer=NAME" in said


class Fitted(Fits):
    tokenizer: str | None = "somewhere"
    max_length: int = 300

    @classmethod
    def name(cls):
        return "token_length"


def test_tokens_are_held_against_the_window_of_the_trainer(tmp_path):
    made = facts(tmp_path)
    living = made.decisions[-1].rows
    size = 14 + 2 * np.maximum(*(made.signals.column(f"pair.{s}_words") for s in ("chosen", "rejected")))
    d = Decisions(living)
    d.mark(living % 40 == 1, "drop", "too_long")
    d.mark(living % 40 == 2, "flag", "identical_after_truncation")
    over = int((size[living] > 300).sum())
    d.findings = [Finding("truncated", over, len(living))] + [
        Finding(f"{word}_at_{at}", share, len(living)) for at, lost, cut in ((300, 0.05, 0.4), (512, 0.0, 0.01)) for word, share in (("loss", lost), ("cut", cut))
    ]  # fmt: skip
    decisions = [*made.decisions[:-1], d]
    report = summarise(replace(made, stages=[*made.stages[:-1], Fitted()], decisions=decisions, outcome=apply(400, decisions)))  # fmt: skip
    t = report.tokens
    assert (t.unit, t.max_length, t.n) == ("tokens", 300, len(living))
    assert (t.filled, t.identical) == (int((living % 40 == 1).sum()), int((living % 40 == 2).sum()))
    assert (t.cut, t.cut_share) == (over, over / len(living))
    assert t.histogram.limit == 300 and (t.histogram.above, t.histogram.below) == (over, len(living) - over)
    assert [(w.max_length, w.lost, w.cut, w.current) for w in t.windows] == [
        (300, 0.05, 0.4, True),
        (512, 0.0, 0.01, False),
    ]
    said = plain(render(report, RUN))
    assert "300 (now) 5.0 % 40.0 %" in said and "512 tokens is the smallest of these windows" in said
    assert f"{t.filled + t.identical} pairs cannot train in a window of 300 tokens and {over} more are cut" in said


def test_a_stage_that_acted_on_nothing_is_one_line_with_its_anchor(tmp_path):
    made = facts(tmp_path)
    page = render(summarise(made), RUN)
    assert '<details class="stage quiet" id="stage-token_length">' in page
    assert f"acted on none of {len(made.decisions[-1].rows)} pairs" in plain(page)
    assert '<section class="stage" id="stage-near_duplicate"' in page


def test_issues_are_errors_or_warnings_in_words(tmp_path):
    made = facts(tmp_path)
    report = summarise(made)
    assert {i.key: i.severity for i in report.issues} == {
        "empty_completion": "error", "parse_error": "error", "near_duplicate": "error", "too_similar": "error", "likely_flipped": "error",
    }  # fmt: skip
    flip = made.decisions[3]
    flip.action[flip.action == 3] = 1
    report = summarise(replace(made, outcome=apply(400, made.decisions)))
    assert {i.key: i.severity for i in report.issues}["likely_flipped"] == "warning"
    assert "! warning" in plain(render(report, RUN)) and "✗ error" in plain(render(report, RUN))


REVIEW = {
    "judged": 40, "decisions": {"accept": 28, "reject": 4}, "same": 0, "both_bad": 0,
    "reviewers": [{"name": n, "judged": 40, "counts": {"accept": 28}, "files": []} for n in ("anna", "<b>bo")],
    "agreement": {"value": 0.9, "kappa": 0.7, "pairs": [{"a": "anna", "b": "<b>bo", "n": 20, "agreement": 0.9, "kappa": 0.7}]},
    "label_agreement": {"value": None, "low": None, "high": None, "hits": 0, "n": 0}, "rows": [],
    "rejected": {"value": 0.125, "low": 0.05, "high": 0.28, "hits": 4, "n": 32},
    "by_reason": [{"issue": "too_similar", "state": "flagged", "judged": 5, "hits": 3, "n": 4, "value": 0.75, "low": 0.3, "high": 0.95, "look": False}],
}  # fmt: skip


def test_what_people_said_stands_in_the_tile_and_beside_the_issue(report):
    said = plain(render(report, RUN))
    assert "rejected by people" in said and "not judged yet" in said and "people agree" not in said
    other = plain(render(report, RUN, review={**REVIEW, "sheet": "another"}))
    assert "not judged yet" in other
    page = render(report, RUN, review={**REVIEW, "sheet": report.spotcheck.id})
    said = plain(page)
    assert "12.5 %" in said and "5.0–28.0 %; 4 of 32 kept pairs judged by anna, &lt;b&gt;bo" in said
    assert "people agree" in said and "flagged 75 % 3 of 4 30.0–95.0 %" in said and "not judged yet" not in said


def test_rows_carry_their_groups(report):
    for row in report.rows:
        wanted = {} if row.row % 50 in (9, 19) else {"source": source_of(row.row), "language": "en" if row.row % 7 else None}  # fmt: skip
        assert row.groups == {k: v for k, v in wanted.items() if v}


def test_every_figure_of_the_page_says_what_it_means(report, page):
    told = page.count('class="advice"')
    drawn = set(re.findall(r"stage-([\w-]+)", page))
    assert told == len(report.advice) and drawn
    for figure in ("funnel", "gates", "issues", "stage.near_duplicate.score", "stage.near_duplicate.what_if", "length.gap",
                   "length.share", "length.rule", "length.groups", "balance.source", "tokens.sizes"):  # fmt: skip
        assert report.advice[figure] and report.advice[figure].count(". ") == 0, figure
    assert "1 of 2 gates do not hold" in report.advice["gates"] or "1 of 2 gates" in report.advice["gates"]
    assert report.advice["issues"].startswith("Begin with near_duplicate (20 pairs, 20 dropped)")


@pytest.mark.parametrize(
    ("after", "before", "part"),
    [
        ((620, 1000), (610, 1000), "62.0\u00a0% of kept pairs prefer the longer answer (interval excludes 50\u00a0%): a model trained on them learns to write long; look at"),
        ((380, 1000), (390, 1000), "learns to write short;"),
        ((620, 1000), (505, 1000), "cleaning brought that in"),
        ((505, 1000), (505, 1000), "no length bias shows in 1,000 pairs"),
        ((6, 10), (6, 10), "10 pairs are too few to tell"),
        ((0, 0), (6, 10), "No kept pair has answers of different length"),
    ],
)  # fmt: skip
def test_the_sentence_on_length_follows_the_interval(after, before, part):
    assert part in advice._longer(numbers.wilson(*after), numbers.wilson(*before))


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ([("a", 50, 50, None), ("b", 50, 50, None), ("c", 50, 50, None)], "leaves the mix as it was"),
        ([("a", 50, 20, None), ("b", 50, 50, None)], "Cleaning moves a most, from 50.0\u00a0% to 28.6\u00a0%"),
        ([("a", 80, 80, None), ("b", 20, 20, None)], "a makes up 80.0\u00a0% of the kept pairs"),
        ([("a", 80, 80, None)], "there is nothing to balance"),
        ([("a", 80, 80, 0.5), ("b", 20, 20, 0.5)], "cap or weigh it"),
        ([("a", 60, 60, 0.7), ("b", 10, 10, 0.3)], "b is farthest from its target (14.3\u00a0%, wanted 30.0\u00a0%): collect more"),
        ([("a", 52, 52, 0.5), ("b", 48, 48, 0.5)], "near enough, nothing to do"),
        ([("a", 5, 0, None), ("b", 5, 0, None)], "No kept pair has a value here"),
    ],
)  # fmt: skip
def test_the_sentence_on_balance_follows_the_shares(values, part):
    n, m = sum(v[1] for v in values), sum(v[2] for v in values)
    none = numbers.wilson(0, 0)
    made = [
        Value(name=name, before=b, after=a, before_share=b / n, after_share=a / m if m else None, change=a / m - b / n if m else None,
              target=target, longer_before=none, longer_after=none)
        for name, b, a, target in values
    ]  # fmt: skip
    d = Dimension(key="k", title="column k", n_before=n, n_after=m, without_before=0, without_after=0, distinct=len(values), unlisted=0, values=made)  # fmt: skip
    assert part in advice._dimension(d)


def test_the_sentence_on_the_funnel_and_on_clean_sets(tmp_path):
    assert "would be dropped" in summarise(facts(tmp_path, action="audit")).advice["funnel"]
    made = facts(tmp_path)
    nothing = [Decisions(made.signals.index) for _ in made.stages]
    broken = ~sound()
    clean = summarise(replace(made, decisions=nothing, outcome=apply(400, nothing), marked=broken))
    assert clean.advice["funnel"] == "No stage drops a pair; none is flagged either."
    assert "issues" not in clean.advice and "gates" not in clean.advice and "stage.near_duplicate.score" not in clean.advice  # fmt: skip
