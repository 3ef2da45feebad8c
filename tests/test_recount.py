"""Every number of report.json is counted again, in plain pandas, from what a run leaves behind: decisions, signals and the input."""

import json
import math
import random
from pathlib import Path

import labelled
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest

import prefdata
from prefdata.bench.corpus import Maker, Plan, Shares
from prefdata.bench.sentences import read

SAMPLE = Path(prefdata.__file__).parent / "samples/planted.jsonl"
STATES = ("kept", "flagged", "swapped", "dropped")
ACTING = ("label_noise.action=swap", "label_noise.rate=0.1", "label_noise.min_flip_prob=0.5", "near_duplicate.threshold=0.7", "reverse_pairs.mode=raw",
          "reverse_pairs.fraction=0.2", "token_length.max_length=150", "token_length.action=flag")  # fmt: skip


def large(path):
    """2,400 pairs of many kinds: learnable labels of which some are wrong, copies, contradictions, broken lines, domains."""
    maker = Maker(read([]), Plan.of(800, 5, Shares(exact=0.1, near=0.1, contradiction=0.05, identical=0.05)), 5, 600)
    rows = [dict(zip(("prompt", "chosen", "rejected"), maker.row(i), strict=True)) for i in range(800)]
    labels, wrong = labelled.pairs(1600, flips=0.15, of_prompt=1)
    for texts, turned in zip(
        labels, wrong, strict=True
    ):  # a second opinion that knows: only then a label is turned round
        scores = {"chosen_score": 0.5 if turned else 1.5, "rejected_score": 1.5 if turned else 0.5}
        rows.append({**dict(zip(("prompt", "chosen", "rejected"), texts, strict=True)), **scores})
    rng = random.Random(3)
    rng.shuffle(rows)
    for i, row in enumerate(rows):
        if i % 9:
            row["source"] = f" site {min(rng.randrange(20), rng.randrange(20))} " if i % 5 else "wiki"
        if i % 3 == 0:
            row["category"] = "long" if len(row["chosen"]) > 400 else "short"
    lines = [json.dumps(row) for row in rows]
    lines[7], lines[70] = '{"prompt": "cut', json.dumps({"prompt": "Is it?", "chosen": "", "rejected": "No."})
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


class Run:
    """A finished run: its report, and all that a recount begins with."""

    def __init__(self, out, source):
        self.report = json.loads((out / "audit/report.json").read_bytes())
        self.manifest = json.loads((out / "manifest.json").read_bytes())
        made = pq.read_table(out / "audit/decisions.parquet").to_pandas()
        self.made = made.astype(dict.fromkeys(("stage", "action", "reason"), object))
        self.signals = pq.read_table(out / "audit/signals.parquet").to_pandas().set_index("row")
        self.source = [_line(line) for line in source.read_text("utf-8").split("\n") if line.strip()]
        self.n, self.stages = len(self.signals), list(self.manifest["stages"])
        self.dropped = self.made[self.made.action == "drop"].set_index("row").stage
        rows = pd.Series(False, self.signals.index)
        self.kept = ~rows.index.to_series().isin(self.dropped.index)
        self.has = {
            a: rows.index.to_series().isin(self.made[self.made.action == a].row) for a in ("flag", "swap", "add")
        }
        self.mirror = self.signals.get("pair.reversed", rows) == True  # noqa: E712 - nulls
        first = dict.fromkeys(zip(self.made.stage, self.made.reason, strict=True))
        words = {}  # the key of an issue: the word, with the stage where an earlier stage has the word as well
        for stage in self.stages:
            for word in {r for s, r in first if s == stage and isinstance(r, str)}:
                words[stage, word] = f"{word}@{stage}" if any(w == word for _, w in words) else word
        self.made["issue"] = [words.get((s, r)) if a != "keep" else None for s, r, a in zip(self.made.stage, self.made.reason, self.made.action, strict=True)]  # fmt: skip

    def of(self, stage):
        return self.made[self.made.stage == stage].set_index("row")

    @property
    def sound(self):
        return self.signals["pair.fault"].isna()

    def gap(self, turned):
        gap = self.signals["pair.chosen_words"] - self.signals["pair.rejected_words"]
        return gap.where(~self.has["swap"], -gap) if turned else gap


def _line(line):
    try:
        return json.loads(line)
    except ValueError:
        return {}


@pytest.fixture(scope="module", params=["audit", "planted", "large"])
def run(request, tmp_path_factory, tokenizer):
    home = tmp_path_factory.mktemp(request.param)
    if request.param == "audit":
        prefdata.audit(SAMPLE, home / "out", "default", workers=1)
        return Run(home / "out", SAMPLE)
    if request.param == "planted":
        prefdata.clean(SAMPLE, home / "out", "full", workers=1, gate=["kept>=10%", "too_similar<=0"])
        return Run(home / "out", SAMPLE)
    path = large(home / "in.jsonl")
    prefdata.clean(
        path, home / "out", "full", set=[*ACTING, f"token_length.tokenizer={tokenizer}"], split="test=0.1", workers=1
    )
    return Run(home / "out", path)


def test_the_large_set_leaves_no_stage_idle(run):
    if run.n > 1000:
        acted = run.made[run.made.action != "keep"].groupby("stage").size()
        assert {"malformed", "contradiction", "exact_duplicate", "near_duplicate", "similar_responses", "token_length", "label_noise",
                "reverse_pairs"} <= set(acted.index), acted  # fmt: skip
        assert {"flag", "drop", "swap", "add"} <= set(run.made.action)


def test_totals_funnel_and_splits(run):
    told, n, kept = run.report, run.n, run.kept
    count = {
        "source_rows": len(run.source), "pairs": n, "kept": kept.sum(), "dropped": n - kept.sum(), "flagged": (kept & run.has["flag"]).sum(),
        "swapped": (kept & run.has["swap"]).sum(), "added": (kept & run.has["add"]).sum(),
        "kept_share": kept.sum() / n, "dropped_share": 1 - kept.sum() / n,
    }  # fmt: skip
    assert told["totals"] == pytest.approx(count)
    living = set(run.signals.index)
    for line, stage in zip(told["funnel"], run.stages, strict=True):
        mine = run.of(stage)
        assert set(mine.index) == living and not mine.index.duplicated().any()
        living -= set(mine.index[mine.action == "drop"])
        by = mine.action.value_counts()
        assert line == pytest.approx({
            "key": stage, "name": stage, "asked": len(mine), "dropped": by.get("drop", 0), "flagged": by.get("flag", 0),
            "swapped": by.get("swap", 0), "added": by.get("add", 0), "kept": len(living), "share": len(living) / n, "before_share": len(mine) / n,
        })  # fmt: skip
    assert living == set(kept.index[kept])
    split = run.signals.get("pair.split", pd.Series(0, kept.index))[kept & ~run.mirror]
    assert told["splits"] == {name: (split == i).sum() for i, name in enumerate(told["splits"])}


def test_issues_their_actions_and_their_overlaps(run):
    marked = run.made.dropna(subset=["issue"])
    told = {i["key"]: i for i in run.report["issues"]}
    assert set(told) == set(marked.issue)
    assert [i["rows"] for i in told.values()] == sorted((i["rows"] for i in told.values()), reverse=True)
    rows = {key: set(of.row) for key, of in marked.groupby("issue")}
    shown = [r for r in run.report["rows"] if r["listed"]]
    for key, issue in told.items():
        mine = marked[marked.issue == key]
        by = set(mine.action)
        assert issue["severity"] == ("error" if by & {"drop", "swap"} else "warning" if "flag" in by else "note")
        assert issue["rows"] == len(mine) and issue["share"] == pytest.approx(len(mine) / run.n)
        assert issue["actions"] == mine.action.value_counts().to_dict()
        also = {k: len(rows[key] & rows[k]) for k in rows if k != key and rows[key] & rows[k]}
        most = sorted(also.items(), key=lambda item: (-item[1], item[0]))[:3]
        assert [(o["key"], o["rows"]) for o in issue["overlaps"]] == most
        assert [o["share"] for o in issue["overlaps"]] == pytest.approx([c / len(mine) for _, c in most])
        assert issue["embedded"] == sum(any(m["issue"] == key for m in r["marks"]) for r in shown)


def held(histogram, before, after):
    """Whether the bars hold these values: up to each edge as many as lie below it, give or take what lies on the edge."""
    edges, step = np.array(histogram["edges"]), histogram["edges"][1] - histogram["edges"][0]
    for name, values in (("before", before), ("after", after)):
        assert histogram[f"n_{name}"] == len(values) == sum(histogram[name])
        for i, edge in enumerate(edges[1:-1], 1):
            least, most = (values < edge - 2e-4 * step).sum(), (values < edge + 1e-6 * max(1, abs(edge))).sum()
            assert least <= sum(histogram[name][:i]) <= most, (name, edge)
    assert histogram["lowest"] == pytest.approx(before.min(), rel=1e-5)
    assert histogram["highest"] == pytest.approx(before.max(), rel=1e-5)


def test_histograms_limits_and_other_limits(run):
    seen = 0
    for stage in run.report["stages"]:
        mine, told = run.of(stage["name"]), stage["histogram"]
        scored = mine[mine.score.notna()]
        assert (told is None) == (not len(scored))
        if told is None:
            continue
        held(told, scored.score, scored.score[run.kept[scored.index]])
        if told["limit"] is None or told["drops"] is None:
            continue
        seen += 1
        limit = np.float32(mine.limit.mode()[0])
        assert told["limit"] == pytest.approx(limit, rel=1e-5)
        up, acted = told["drops"] == "above", mine.action == stage["verb"]
        touched = (mine.action != "keep") & (mine.score == limit)
        on_it = touched.any() or not (mine.score == limit).any()

        def beyond(at):
            there = mine.score > at if up else mine.score < at  # noqa: B023 - called at once
            return there | (np.isclose(mine.score, at, rtol=1e-7, atol=0) if on_it else False)  # noqa: B023

        now = beyond(limit)
        assert told["above" if up else "below"] == now.sum() and told["below"] + told["above"] == len(scored)
        assert stage["beyond_kept"] == (now & ~acted).sum()
        gone = (mine.action == "drop").sum()
        for other in stage["what_if"]:
            there = now if other["current"] else beyond(np.float32(other["limit"]))
            would = ((acted & ~now) | (there & (acted | ~now))).sum()
            kept = len(mine) - gone - (would - acted.sum() if stage["verb"] == "drop" else 0)
            assert other == pytest.approx({
                "limit": other["limit"], "acted": would, "acted_share": would / len(mine), "kept": kept, "kept_share": kept / len(mine),
                "change": would - acted.sum(), "current": other["limit"] == pytest.approx(limit, rel=1e-5),
            })  # fmt: skip
        rest = scored[~scored.index.isin(stage["worst"])]
        away = (rest.score - rest.limit.fillna(limit)).abs()
        for name, side in (("near_acted", now[rest.index]), ("near_kept", ~now[rest.index])):
            assert sorted(away[stage[name]]) == pytest.approx(sorted(away[side])[:3], abs=1e-6), (stage["key"], name)
    assert seen >= (3 if run.n > 1000 else 1)


def agrees(told, gap):
    """A share of pairs whose longer answer is chosen, with its interval."""
    hits, n, ties = (gap > 0).sum(), (gap != 0).sum(), (gap == 0).sum()
    assert (told["hits"], told["n"], told["ties"]) == (hits, n, ties)
    if n:
        low, high = binomtest(int(hits), int(n)).proportion_ci(method="wilson")
        assert [told["value"], told["low"], told["high"]] == pytest.approx([hits / n, low, high])
    else:
        assert told["value"] is told["low"] is told["high"] is None


def test_length_bias_and_the_rule_of_length_alone(run):
    told, kept = run.report["length"], run.sound & run.kept
    before, after = run.gap(False)[run.sound], run.gap(True)[kept]
    held(told["histogram"], before, after)
    for name, gap in (("before", before), ("after", after)):
        agrees(told[name], gap)
        p, n, z = ((gap > 0).sum() + (gap == 0).sum() / 2) / len(gap), len(gap), 1.959964
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        found = [p, (p + z * z / (2 * n) - half) / (1 + z * z / n), (p + z * z / (2 * n) + half) / (1 + z * z / n), n]
        assert [told[f"rule_{name}"][k] for k in ("value", "low", "high", "n")] == pytest.approx(found)


def test_the_spread_over_columns_of_the_input_and_languages(run):
    names = [d["key"] for d in run.report["balance"]]
    assert (
        names == (["category", "source", "language"] if run.n > 1000 else ["source"])[: len(names)]
        and "source" in names
    )
    for told in run.report["balance"]:
        if told["key"] == "language":
            value = run.signals["domain_balance.language"].astype(object)
            value = value.where(value != "unknown", None)
        else:
            value = pd.Series([row.get(told["key"]) for row in run.source], run.signals.index).str.strip()
        value, after = value[run.sound], run.kept[run.sound]
        counts = value.value_counts()
        order = sorted(counts.index, key=lambda v: (-counts[v], v))
        listed = order if len(order) <= 12 else order[:11]
        assert told["unlisted"] == len(order) - len(listed)
        assert [v["name"] for v in told["values"]] == listed + [None] * (len(order) > len(listed))
        assert (
            told["distinct"] == len(order)
            and told["n_before"] == value.notna().sum()
            and told["n_after"] == (value.notna() & after).sum()
        )
        assert told["without_before"] == value.isna().sum() and told["without_after"] == (value.isna() & after).sum()
        for v in told["values"]:
            mine = value == v["name"] if v["name"] else value.notna() & ~value.isin(listed)
            assert (v["before"], v["after"]) == (mine.sum(), (mine & after).sum())
            assert v["before_share"] == pytest.approx(mine.sum() / told["n_before"])
            assert v["after_share"] == pytest.approx((mine & after).sum() / told["n_after"])
            assert v["change"] == pytest.approx(v["after_share"] - v["before_share"])
            agrees(v["longer_before"], run.gap(False)[run.sound][mine])
            agrees(v["longer_after"], run.gap(True)[run.sound][mine & after])


def test_how_long_the_pairs_are_and_what_the_window_does_to_them(run):
    told, asked = run.report["tokens"], run.of("token_length")
    counted = "token_length.prompt_tokens" in run.signals
    name, rows = ("token_length.{}_tokens", asked.index) if counted else ("pair.{}_words", run.signals.index[run.sound])
    p, c, r = (run.signals[name.format(side)][rows] for side in ("prompt", "chosen", "rejected"))
    size = (p + np.maximum(c, r)).dropna()
    assert told["unit"] == ("tokens" if counted else "words") and told["n"] == len(size)
    assert told["quantiles"] == [size.quantile(q, interpolation="higher") for q in (0.5, 0.9, 0.99, 1)]
    held(told["histogram"], size, size[run.kept[size.index]])
    words = asked.reason.value_counts()
    for key, word in (("filled", "too_long"), ("identical", "identical_after_truncation")):
        assert told[key] == words.get(word, 0)
    if counted:
        over = size[told["max_length"] < size]
        assert told["histogram"]["above"] == len(over) and told["max_length"] == 150
        assert 0 < told["cut"] <= len(over) and told["cut_share"] == pytest.approx(told["cut"] / len(asked))
        gone = [w["lost"] + w["cut"] for w in sorted(told["windows"], key=lambda w: w["max_length"])]
        assert gone == sorted(gone, reverse=True)
        for w in told["windows"]:
            assert w["lost"] + w["cut"] == pytest.approx((size > w["max_length"]).mean())


def test_the_spot_check_is_in_proportion_to_its_strata(run):
    told = run.report["spotcheck"]
    stratum = {}
    for row, marks in run.made[run.made.issue.notna() & run.made.action.isin(["flag", "swap", "drop"])].groupby("row"):
        state = "dropped" if row in run.dropped.index else "swapped" if run.has["swap"][row] else "flagged"
        by = marks if state == "flagged" else marks[marks.action == {"dropped": "drop", "swapped": "swap"}[state]]
        one = by.sort_values("stage", key=lambda s: s.map(run.stages.index)).iloc[0]
        if state == "dropped" and one.stage in (
            run.stages[0],
            "domain_balance",
        ):  # what is no pair, or dropped for no fault, is not judged
            stratum[row] = None
        else:
            stratum[row] = (one.issue, state)
    clean = [(None, "kept")] * (run.kept & ~run.kept.index.to_series().isin(stratum)).sum()
    sizes = pd.Series([*filter(None, stratum.values()), *clean]).value_counts()
    assert {(s["issue"], s["state"]): s["population"] for s in told["strata"]} == sizes.to_dict()
    judged = run.kept & ~run.mirror
    assert told["kept"] == judged.sum()
    assert (
        told["base"]
        == min(judged.sum(), 400, max(50, round(0.05 * judged.sum())))
        == sum(r["base"] for r in told["rows"])
    )
    assert len({r["row"] for r in told["rows"]}) == len(told["rows"])
    for i, s in enumerate(told["strata"]):
        mine = [r for r in told["rows"] if r["stratum"] == i]
        assert all(stratum.get(r["row"], (None, "kept")) == (s["issue"], s["state"]) for r in mine)
        assert (s["base"], s["extra"]) == (sum(r["base"] for r in mine), sum(not r["base"] for r in mine))
        of_kept = sum(judged[r] and stratum.get(r, (None, "kept")) == (s["issue"], s["state"]) for r in judged.index)
        assert abs(s["base"] - told["base"] * of_kept / judged.sum()) < 2
        if s["issue"] and len(run.report["rows"]) < 800:  # the page has room for all
            assert s["base"] + s["extra"] >= min(20, of_kept or s["population"])


def test_states_marks_and_gates(run):
    made = {(r.row, r.stage): r for r in run.made.itertuples()}
    for row in run.report["rows"]:
        at = row["row"]
        dropped, flags = at in run.dropped.index, (run.has["flag"][at], run.has["swap"][at])
        assert row["state"] == STATES[3 if dropped else 2 if flags[1] else 1 if flags[0] else 0]
        for mark in row["marks"]:
            said = made[at, mark["stage"]]
            assert (mark["action"], mark["issue"]) == (said.action, None if said.action == "keep" else said.issue)
            for name in ("score", "limit", "peer"):
                mine = getattr(said, name)
                assert mark[name] == (None if pd.isna(mine) else pytest.approx(mine, rel=1e-5))
        assert set(row["groups"]) <= {d["key"] for d in run.report["balance"]}
        if "source" in row["groups"]:
            assert row["groups"]["source"] == run.source[at]["source"].strip()
        acted = {s for (r, s), d in made.items() if r == at and d.action != "keep"} if run.n < 1000 else set()
        assert acted <= {m["stage"] for m in row["marks"]}
    found = {"kept": run.kept.mean(), "too_similar": (run.made.issue == "too_similar").sum() / run.n}
    for gate in run.report["gates"]:
        word = gate["gate"].split("<")[0].split(">")[0]
        assert gate["value"] == pytest.approx(found[word] * (100 if "%" in gate["gate"] else run.n))
