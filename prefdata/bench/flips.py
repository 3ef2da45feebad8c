"""Runs with wrong labels planted in one set: how they rank, what is said of their number, and what removing them is worth.

A set is measured once. Turning a label round negates the differences it was measured by, so a run costs a fit and no reading; it
is also why sets of millions of pairs are better benched with ``--limit``.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.bench import peers, planting, worth
from prefdata.bench.detector import Detector
from prefdata.bench.public_sets import PairSet
from prefdata.bench.quality import calibration_error, flagging, ranking
from prefdata.noise import probability

LIKELY = 0.8  # the default of min_flip_prob


@dataclass(frozen=True)
class Noise:
    """One run: the file of a prepared set, the kind of wrong labels, their rate, the seed, whether the peers run
    too, on how many of the pairs, drawn by chance (None: all); without ``vectors`` as
    where no static word vectors are installed."""

    path: str
    fault: str
    rate: float
    seed: int
    peers: bool = False
    rows: int | None = None
    vectors: bool = True


@dataclass(frozen=True)
class Gain:
    """One run of what cleaning is worth: the file of a prepared set, the rate of uniform flips, the seed."""

    path: str
    rate: float
    seed: int


@dataclass(frozen=True)
class Prepared:
    """What runs need of a set: its evidence, prompts (n,), by how much chosen is longer (n,), and what learners see."""

    name: str
    detector: Detector
    groups: npt.NDArray[np.uint64]
    gap: npt.NDArray[np.int64]
    learners: dict[str, Any]

    def rows(self, at: npt.NDArray[np.int64]) -> Prepared:
        """Some of the pairs, without what learners see."""
        return Prepared(self.name, self.detector.rows(at), self.groups[at], self.gap[at], {})


def prepared(pairs: PairSet, path: Path, encoder: str | None = None, learners: bool = True) -> Path:
    """Write what runs need of a set to ``path``, for worker processes."""
    rows = pairs.rows()
    chosen, rejected = ([row[side] for row in rows] for side in ("chosen", "rejected"))
    seen: dict[str, Any] = {"characters": worth.characters(chosen, rejected)} if learners else {}
    if encoder and learners:
        seen["encoder"] = worth.encoded(chosen, rejected, encoder)
    gap = np.array([len(c) - len(r) for c, r in zip(chosen, rejected, strict=True)], np.int64)
    made = Prepared(pairs.name, Detector.of(pairs), pairs.signals.column("pair.prompt_key"), gap, seen)
    path.write_bytes(pickle.dumps(made))
    return path


@lru_cache(maxsize=2)
def _load(path: str) -> Prepared:
    made: Prepared = pickle.loads(Path(path).read_bytes())  # our own file, of this run
    return made


def do(task: Noise | Gain) -> Any:
    """The record of a ``Noise``, the records of a ``Gain``; on one thread, so that a fit adds up in one order."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return run(task) if isinstance(task, Noise) else gain(task)


def planted(of: Prepared, fault: str, rate: float, seed: int) -> planting.Mask:
    """Which labels are turned round."""
    if fault == "length":
        return planting.by_length(of.gap, rate, seed)
    if fault == "annotators":
        return planting.by_annotator(planting.annotators(of.groups, seed), rate, seed)
    return planting.uniform(len(of.groups), rate, seed)


def run(task: Noise) -> dict[str, Any]:
    """Plant, detect and compare with the truth: ``set``, ``n``, ``fault``, ``rate``, ``seed``, the share ``planted``, and

    - ``auroc``, ``ap``, ``pk``, ``p10`` of the score with the gate off (see ``quality.ranking``), ``signal`` (bool): the gate's verdict;
    - ``ece_given`` and ``ece_alone``: calibration of ``flip_prob`` with the rate given, and with what the tool finds itself;
    - ``estimate``, whether it is ``near`` (within 0.05), whether its 90 % interval ``covers``; None where it is not identifiable;
    - ``upper`` (``rate_upper``) and whether it ``holds``;
    - ``peers``, where asked for: AUROC, share flagged, precision and recall of ours and of others.
    """
    of = _load(task.path)
    if task.rows is not None:
        of = of.rows(np.sort(np.random.default_rng([task.seed, 8]).permutation(len(of.groups))[: task.rows]))
    wrong = planted(of, task.fault, task.rate, task.seed)
    detector = of.detector if task.vectors else of.detector.without_vectors()
    found, true = detector.detect(wrong, task.seed), float(wrong.mean())
    out: dict[str, Any] = {
        "set": of.name,
        "n": len(wrong),
        "fault": task.fault,
        "rate": task.rate,
        "seed": task.seed,
        "rows": task.rows,
        "vectors": task.vectors,
        "planted": true,
    }
    out |= {**ranking(wrong, -found.margins), "signal": found.signal}
    if task.fault == "random":
        return out
    given, rate = found.probability(true), probability.Rate.of(found.margins, found.group)
    out["ece_given"] = calibration_error(wrong, given)
    out["upper"], out["holds"] = rate.upper, rate.upper >= true
    if found.signal and rate.value is not None and rate.low is not None and rate.high is not None:
        out["ece_alone"] = calibration_error(wrong, found.probability(rate.value))
        out["estimate"], out["near"] = rate.value, abs(rate.value - true) <= 0.05
        out["covers"] = rate.low <= true <= rate.high
    if task.peers:
        out["peers"] = _peers(of, wrong, found.margins, given > 0.5, task.seed)
    return out


def _peers(
    of: Prepared, wrong: planting.Mask, margins: Any, ours: planting.Mask, seed: int
) -> dict[str, dict[str, float]]:
    told = {"ours": (ours, -margins)}
    if peers.has_cleanlab():
        told["cleanlab"] = peers.cleanlab(margins, seed)
    turned = of.detector.evidence.dense * np.where(wrong, -1, 1)[:, None]
    told["neighbours"] = peers.neighbours(turned, of.groups)
    return {
        name: {"auroc": ranking(wrong, by)["auroc"], **flagging(wrong, flagged)} for name, (flagged, by) in told.items()
    }


def gain(task: Gain) -> list[dict[str, Any]]:
    """What cleaning is worth to each learner; see ``worth.arms``. The detector sees the training rows alone."""
    of = _load(task.path)
    wrong = planted(of, "flips", task.rate, task.seed)
    test = worth.held_out(of.groups, task.seed)
    train = np.flatnonzero(~test)
    ruling = of.detector.rows(train).detect(wrong[train], task.seed).ruling(task.rate)
    removed = {name: np.zeros(len(wrong), bool) for name in ("cleaned", "likely")}
    if ruling.signal.there:
        removed["cleaned"][train] = ruling.top(task.rate)
        removed["likely"][train] = (ruling.flip >= LIKELY) & ruling.both
    return [
        {"set": of.name, "rate": task.rate, "seed": task.seed, "family": family, "learner": learner,
         **worth.arms(x, wrong, test, removed, c, task.seed)}
        for family, x in of.learners.items() for learner, c in worth.STRENGTHS[family].items()
    ]  # fmt: skip
