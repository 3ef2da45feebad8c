"""Pairs that are there more than once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from prefdata.decisions import Decisions, Signals
from prefdata.pairs import SIDES
from prefdata.stage import Stage


class ExactDuplicate(Stage):
    """Is the same prompt with the same chosen and the same rejected answer there already?

    Why it matters: a repeated pair weighs double in every epoch, and a copy of a test row in the training part spoils
    the test.

    How it decides: prompt, chosen and rejected are compared in their normal form (NFC, without hidden marks, line ends
    as one sign, no trailing or outer white space), by three hashes of 64 bits. All rows but the first are dropped; the
    first one is named. Case, punctuation and white space inside a line count as differences.

    What it misses: pairs that differ in a word (see near_duplicate) and pairs with the answers the other way round (see
    contradiction). Repeated votes on one pair lose their number: where votes should weigh, use a votes column.

    References: ChenghaoMou/text-dedup#77, joshuaswarren/remnic#2359, Tatoeba/tatoeba2#2151
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "exact_duplicate": "The same pair stands earlier in the set (named as peer)."
        " Nothing to do, unless repeated rows are votes.",
    }
    measured: ClassVar[frozenset[str]] = frozenset()

    action: Literal["drop", "flag"] = "drop"

    def decide(self, signals: Signals) -> Decisions:
        """All but the first of the rows whose three keys are equal."""
        out = Decisions(signals.index)
        keys = [signals.column(f"pair.{side}_key") for side in SIDES]
        order = np.lexsort(keys)  # stable: rows of one pair stay in row order
        new = np.ones(len(order), bool)
        new[1:] = np.logical_or.reduce([k[order[1:]] != k[order[:-1]] for k in keys])
        first = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
        again = order[~new]
        out.mark(again, self.action, "exact_duplicate", peer=signals.index[first[~new]])
        return out
