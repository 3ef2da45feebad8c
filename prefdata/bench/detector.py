"""The detector of ``label_noise`` with its gate off: measured once, asked again and again with other labels turned round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from prefdata.bench.planting import Mask
from prefdata.bench.public_sets import PairSet
from prefdata.noise import probability
from prefdata.noise.crossfit import Scorer
from prefdata.noise.evidence import Array, Evidence, Features, pair_hash, prompt_groups
from prefdata.noise.ruling import Ruling
from prefdata.stage import stage_class
from prefdata.style import NAMES

Floats = npt.NDArray[np.float64]
STAGE = "label_noise"


@cache
def _folds() -> int:
    return int(stage_class(STAGE).model_fields["folds"].default)


@dataclass(frozen=True)
class Found:
    """What the detector says of a set: ``margins`` (n,), above 0 where the rest of the set agrees with the label; ``side`` and
    ``group`` as in ``Evidence``.
    """

    margins: Floats
    side: Array
    group: npt.NDArray[np.uint64]

    @cached_property
    def signal(self) -> bool:
        """Whether the gate lets anything be said of single labels."""
        return probability.Signal.of(self.margins, self.group).there

    def ruling(self, rate: float | None = None) -> Ruling:
        """What the stage makes of these margins, the rate given or not."""
        return Ruling.of(self.margins, self.side, self.group, rate)

    def probability(self, rate: float) -> Floats:
        """``flip_prob`` (n,) where ``rate`` of the labels are wrong, gate off."""
        steepness, _ = probability.fitted(self.margins, rate)
        return probability.flip_probability(self.margins, steepness, rate)


@dataclass(frozen=True)
class Detector:
    """The evidence of a set, in the order of its rows."""

    evidence: Evidence

    @classmethod
    def of(cls, pairs: PairSet) -> Detector:
        """From a set that was measured with the stage; no further votes."""
        none = np.empty((len(pairs), 0), np.float32)
        _, evidence = Features.fitted(pairs.signals, STAGE, prompt_groups(pairs.signals), none)
        place = np.argsort(pair_hash(pairs.signals), kind="stable")  # evidence comes in the order of the pairs' hashes
        return cls(evidence.rows(np.argsort(place)))

    def without_vectors(self) -> Detector:
        """As it would be without the extra ``[embed]``: style counts (and their signs) and words."""
        return Detector(replace(self.evidence, dense=self.evidence.dense[:, : 2 * len(NAMES)]))

    def rows(self, at: npt.NDArray[np.int64]) -> Detector:
        """Some of the pairs."""
        return Detector(self.evidence.rows(at))

    def detect(self, wrong: Mask, seed: int = 0) -> Found:
        """Fit to the labels with those of ``wrong`` (n,) turned round; ``seed`` draws the folds."""
        order = np.argsort(self.evidence.order, kind="stable")
        turned = self.evidence.flipped(wrong)
        margins = np.empty(len(wrong))
        margins[order] = Scorer.fitted(turned.rows(order), _folds(), seed)[1]
        return Found(margins, turned.side, turned.group)
