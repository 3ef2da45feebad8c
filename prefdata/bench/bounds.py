"""What ``label_noise`` must reach on the published sets, and what was measured beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from prefdata.bench import tables, worth
from prefdata.bench.public_sets import SETS
from prefdata.bench.quality import mean_sd
from prefdata.bench.tables import Record

AUROC = {
    "hh_harmless": 0.69, "hh_helpful": 0.66, "dpo_en": 0.66, "dpo_zh": 0.69, "llmbar": 0.57, "pandalm": 0.735, "oasst": 0.69,
    "openinstruct": 0.765, "davinci001": 0.885, "codecorrect": 0.94, "tone": 0.965, "jade": 0.995,
}  # fmt: skip
"""Least AUROC at 20 % flips."""
MEAN_AUROC = 0.76
PRECISION = {"hh_harmless": 0.37, "pandalm": 0.42, "davinci001": 0.65, "tone": 0.80}
CALIBRATED = ("hh_harmless", "hh_helpful", "davinci001", "tone", "pandalm")
SIGNAL = (("hh_harmless", 1500), ("pandalm", None), ("davinci001", 200))
"""Where the gate must open at 20 %: the set, and how many of its pairs (None: all)."""
WORTH = ("pandalm", "davinci001", "hh_harmless")
RATES, AT = (0.05, 0.1, 0.2, 0.3), 0.2


class Bound(NamedTuple):
    """A figure, what was measured (None: nothing), its bound, and whether that is the least it may be, or the most."""

    name: str
    measured: float | None
    bound: float
    least: bool = True

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bound; one that was not measured is not."""
        return self.measured is not None and (
            self.measured >= self.bound if self.least else self.measured <= self.bound
        )


def all_of(found: Mapping[str, Any]) -> list[Bound]:
    """Every bound, from the records of ``label_report.measure``."""
    labels = [r for r in found["flips"] if r["vectors"]]
    uniform = [r for r in labels if r["fault"] == "flips"]
    return [
        *_ranking([r for r in uniform if r["rate"] == AT]), *_gate(labels, uniform, found["sampled"]), *_rate(uniform),
        *_worth(found["worth"]), *_other(found),
    ]  # fmt: skip


def _ranking(at: Sequence[Record]) -> Iterator[Bound]:
    auroc = {name: _mean([r for r in at if r["set"] == name], "auroc") for name in SETS}
    yield from (Bound(f"AUROC at 20 %, {name}", auroc[name], least) for name, least in AUROC.items())
    known = [value for value in auroc.values() if value is not None]
    yield Bound(
        f"AUROC at 20 %, mean of {len(SETS)}", sum(known) / len(known) if len(known) == len(SETS) else None, MEAN_AUROC
    )
    for name, least in PRECISION.items():
        yield Bound(f"P@k at 20 %, {name}", _mean([r for r in at if r["set"] == name], "pk"), least)


def _gate(labels: Sequence[Record], uniform: Sequence[Record], sampled: Sequence[Record]) -> Iterator[Bound]:
    random = [r for r in labels if r["fault"] == "random"]
    for f in tables.over_seeds(random, ("set",), ("signal",)):
        yield Bound(f"no_signal on random labels, {f['set']} ({f['runs']} runs)", 1 - f["signal"]["mean"], 0.97)
    # A set has one direction that can be learnt, so that the AUROC of single runs is far from 0.5 either way: over all sets.
    auroc = _mean(random, "auroc")
    yield Bound("distance of AUROC from 0.5 on random labels", None if auroc is None else abs(auroc - 0.5), 0.03, False)
    for name, n in SIGNAL:
        some = [r for r in (sampled if n else uniform) if r["set"] == name and r["rate"] == AT]
        yield Bound(f"signal at 20 %, {name}{f', {n:,} pairs' if n else ''}", _mean(some, "signal"), 0.95)


def _rate(uniform: Sequence[Record]) -> Iterator[Bound]:
    for name, rate in product(CALIBRATED, RATES[:3]):
        some = [r for r in uniform if (r["set"], r["rate"]) == (name, rate)]
        yield Bound(f"ECE with the rate given, {name} at {rate:.0%}", _mean(some, "ece_given"), 0.05, False)
    known = [r for r in uniform if r["rate"] in RATES]
    for f in tables.over_seeds(known, ("set", "rate"), ("near", "covers")):
        if f["covers"]:  # a point estimate was told
            of = f"{f['set']} at {f['rate']:.0%} (told in {f['covers']['n']} of {f['runs']})"
            yield Bound(f"estimate within 0.05, {of}", f["near"]["mean"], 0.9)
            yield Bound(f"90 % interval covers, {of}", f["covers"]["mean"], 0.9)
    for f in tables.over_seeds(known, ("set",), ("holds",)):
        yield Bound(f"`rate_upper` holds at 5 to 30 %, {f['set']}", f["holds"]["mean"], 1)


def _worth(records: Sequence[Record]) -> Iterator[Bound]:
    for name, rate, learner in product(WORTH, (0.2, 0.3), (worth.OVERFITS, worth.REGULARISED)):
        key = (name, rate, learner, "characters")
        some = [r for r in records if (r["set"], r["rate"], r["learner"], r["family"]) == key]
        cleaned = worth.summary(some)["cleaned"] if some else {"recovery": None, "gain": None}
        if learner == worth.OVERFITS:
            yield Bound(f"recovery by `drop_top`, {name} at {rate:.0%}", cleaned["recovery"], 0.4)
        else:
            yield Bound(f"gain of a regularised learner, {name} at {rate:.0%}", cleaned["gain"], -0.02)


def _other(found: Mapping[str, Any]) -> Iterator[Bound]:
    yield from (Bound(f"dropped at the defaults, {r['set']}", r["dropped"], 0.02, False) for r in found["defaults"])
    votes = found["judges"]
    better = votes["dawid_skene"]["right"] - votes["majority"]["right"]
    yield Bound("labels right by Dawid-Skene, less by majority", better, 0)
    for name, strength in dict.fromkeys((r["set"], r["strength"]) for r in found["shortcuts"]):
        some = [r["error"] for r in found["shortcuts"] if (r["set"], r["strength"]) == (name, strength)]
        far = None if None in some else max(map(abs, some))
        yield Bound(f"error of a planted shortcut, {name} at {strength:g}", far, 0.03, False)


def _mean(records: Sequence[Record], name: str) -> float | None:
    mean, _, n = mean_sd(r.get(name) for r in records)
    return mean if n else None


def table(bounds: Sequence[Bound]) -> list[str]:
    """Measured, bound, and whether it is reached, side by side."""
    return tables.markdown(
        "figure, measured, must be, reached, by",
        (
            [b.name, tables.number(b.measured), f"{'≥' if b.least else '≤'} {b.bound:g}", "yes" if b.holds else "**no**",
             "-" if b.measured is None else f"{b.measured - b.bound:+.3f}"]
            for b in bounds
        ),
    )  # fmt: skip
