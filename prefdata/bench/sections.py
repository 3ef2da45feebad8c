"""The sections of a report on wrong labels, as Markdown, from the records of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefdata.bench import worth
from prefdata.bench.tables import Record, markdown, number, of, over_seeds, percent, spread

FIGURES = (
    "auroc", "ap", "pk", "p10", "signal", "ece_given", "ece_alone", "estimate", "covers", "near", "upper", "holds",
)  # fmt: skip
"""Figures of a run with planted flips, see ``flips.run``."""
PEERS = ("ours", "cleanlab", "neighbours")


def flips(records: Sequence[Record]) -> list[str]:
    """How planted flips rank, and what is said of their number: a line a set, kind of noise and rate."""
    found = over_seeds([r for r in records if r["fault"] != "random"], ("set", "n", "fault", "rate"), FIGURES)
    return markdown(
        "set, n, noise, rate, runs, AUROC, AP, P@k, P10, signal, ECE (rate given), ECE (alone), estimate, 90 % covers, at most U, U holds",
        (
            [f["set"], f["n"], f["fault"], percent(f["rate"]), f["runs"],
             *(spread(f[name]) for name in ("auroc", "ap", "pk", "p10")), of(f["signal"]),
             *(spread(f[name]) for name in ("ece_given", "ece_alone", "estimate")), of(f["covers"]),
             spread(f["upper"], 2), of(f["holds"])]
            for f in found
        ),
    )  # fmt: skip


FLIPS_SAY = """AUROC, average precision (AP), precision at k (P@k, k = number flipped) and at 10 % recall (P10) of "was flipped" are those
of the score with the gate off; mean ± standard deviation over seeds. *signal*: in how many runs the stage spoke at all. ECE: ten bins of
equally many pairs, of `flip_prob` with the rate given and without one (only where the stage gives probabilities then). *estimate*
and its interval: only where the rate is identifiable. U is `rate_upper`. Labels as published are taken as the truth, which
they are not quite: errors of their own cap the AUROC and raise the estimate."""


def control(records: Sequence[Record]) -> list[str]:
    """What the detector makes of labels that mean nothing."""
    found = over_seeds([r for r in records if r["fault"] == "random"], ("set", "n"), ("auroc", "signal"))
    return markdown(
        "set, n, runs, AUROC, no_signal",
        (
            [f["set"], f["n"], f["runs"], spread(f["auroc"]), f"{f['runs'] - round(f['signal']['mean'] * f['runs'])}/{f['runs']}"]
            for f in found
        ),
    )  # fmt: skip


def peers(records: Sequence[Record]) -> list[str]:
    """Three detectors on the same features, side by side."""
    rows = []
    for name in PEERS:
        some = [{"set": r["set"], "fault": r["fault"], "rate": r["rate"], **r["peers"][name]} for r in records if name in r.get("peers", {})]  # fmt: skip
        rows += [
            (f, name) for f in over_seeds(some, ("set", "fault", "rate"), ("auroc", "share", "precision", "recall"))
        ]
    return markdown(
        "set, rate, detector, AUROC, flagged, precision, recall",
        (
            [f["set"], percent(f["rate"]), name, spread(f["auroc"]), *(spread(f[x], 2) for x in ("share", "precision", "recall"))]
            for f, name in sorted(rows, key=lambda row: (row[0]["set"], row[0]["rate"]))
        ),
    )  # fmt: skip


PEERS_SAY = """All three see the same features. *ours* flags where `flip_prob` with the rate given is above one half;
*cleanlab* is `find_label_issues` on our cross-fitted probabilities (it has no task of pairs: each is shown in an order drawn by chance), so
that its ranking is ours; *neighbours* is a vote of the 15 nearest pairs of other prompts, as Docta and SimiFeat do."""


def gains(records: Sequence[Record]) -> list[str]:
    """What cleaning is worth: held-out accuracy by set, rate, learner and treatment."""
    rows = []
    for key in dict.fromkeys((r["set"], r["rate"], r["family"], r["learner"]) for r in records):
        some = [r for r in records if (r["set"], r["rate"], r["family"], r["learner"]) == key]
        s = worth.summary(some)
        for name in worth.TREATMENTS:
            t = s[name]
            rows.append(
                [key[0], percent(key[1]), f"{key[2]}, {key[3]}", s["seeds"], _TREATED[name], number(s["noisy"]), number(t["accuracy"]),
                 number(s["oracle"]), f"{t['gain']:+.3f} ± {t['sd']:.3f}", f"±{s['a_a']:.3f}", number(t["recovery"], 2), t["verdict"]]
            )  # fmt: skip
    return markdown(
        "set, rate, learner, seeds, treatment, noisy, treated, oracle, gain, A/A, recovery, against noisy", rows
    )


_TREATED = {"cleaned": "`drop_top`", "likely": "`drop` at 0.8", "random": "as many at random"}
WORTH_SAY = """A preference classifier learns from seven tenths of the prompts, with flips planted and then treated with the rate given, and is
asked about the true labels of the rest. *overfits*: C = 30; *regularised*: C = 0.1, both on character 2-4-grams, which the detector does
not see. Recovery is (treated - noisy) / (oracle - noisy), where oracle has the flips undone; "-" where the loss itself is within the
A/A interval. A/A: 95 % interval of the difference of two learners that lost as many rows at random; inside it there is no winner."""


def rows(records: Sequence[Record]) -> list[str]:
    """Precision and recall of the stages that find faults of rows."""
    found = over_seeds(records, ("set", "fault", "stage"), ("planted", "precision", "recall"))
    return markdown(
        "set, fault, stage, planted, runs, precision, recall",
        (
            [f["set"], f["fault"], f"`{f['stage']}`", number(f["planted"]["mean"], 0), f["runs"], spread(f["precision"]), spread(f["recall"])]
            for f in found
        ),
    )  # fmt: skip


def shortcuts(records: Sequence[Record]) -> list[str]:
    """How strong a planted shortcut is said to be."""
    found = over_seeds(records, ("set", "strength"), ("told", "error", "phrases"))
    return markdown(
        "set, planted strength, runs, named in, told, largest error, all stock phrases together",
        (
            [f["set"], number(f["strength"], 2), f["runs"], f["told"]["n"] if f["told"] else 0, spread(f["told"]),
             number(max((abs(r["error"]) for r in records if (r["set"], r["strength"]) == (f["set"], f["strength"]) and r["error"] is not None), default=None)), spread(f["phrases"])]
            for f in found
        ),
    )  # fmt: skip


SHORTCUTS_SAY = """One answer of every pair gets a stock opening, the chosen one in the given share of them. *told*: in what share
`label_shortcut` says the opening wins, in the runs in which it names it; *all stock phrases together*: the accuracy of all of them."""


def left_out(sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many pairs of each set were measured on."""
    return markdown(
        "set, pairs, malformed, equal answers, repeated", ([s["set"], s["n"], *s["left_out"].values()] for s in sets)
    )
