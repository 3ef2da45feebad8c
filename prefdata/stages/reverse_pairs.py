"""Reversed pairs: the other presentation order, the label smoothing that equals them, or the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import xxhash
from pydantic import Field

from prefdata.decisions import Decisions, Finding, Index, Signals
from prefdata.near import combined
from prefdata.noise.traits import keys
from prefdata.stage import Stage


class ReversePairs(Stage):
    """Should the model see some pairs the other way round?

    Why it matters: reversed pairs (prompt, rejected, chosen) are advised as "negatives" against overconfidence. As rows
    for DPO they are contradictions by construction: of n rows and f n reversed ones the loss is n l(m) + f n l(-m) for
    a margin m, so per row it is (1 - e) l(m) + e l(-m) with e = f / (1 + f). That is label smoothing (conservative DPO)
    to the letter: its best margin is ln((1 - e) / e) = -ln f, 2.3 for f = 0.1, and it costs no rows. A pairwise
    classifier or a judge has another use for them: shown both ways round, it cannot learn the position.

    How it decides: ``fraction`` is the number of reversed rows for each training row. ``smoothing``, the mode to use for
    DPO, adds nothing: the finding label_smoothing is e, and the manifest (``train``) and the recipes carry it to the
    trainers that can use it. ``order`` writes the configuration ``ab`` beside the set (prompt, output_1, output_2,
    label): every kept training pair once, in an order that a hash of its texts decides, and for the fraction once more
    in the other order, with the label that goes with it. ``raw`` writes the configuration ``reversed``: the literal rows
    with the worse answer under chosen, marked by ``pd_reversed``, with the ``pd_id`` of their source in
    ``pd_source_row``, for losses that read the mark; plain DPO must not see them. Neither is ever in ``data/``. The
    pairs with the smallest seeded hashes of their texts are taken, whatever the order of rows. Rows of a test split,
    ties, marked rows and rows whose mirror is in the set are never reversed: a second time adds nothing.

    What it misses: whether a set needs it. Smoothing caps the margin of good labels as well as of wrong ones; soft labels
    of label_noise (``pd_flip_prob``) say the same pair by pair, and the two together smooth twice.

    References: arXiv:2305.18290 (DPO), ericmitchell.ai/cdpo.pdf (conservative DPO), arXiv:2306.05685 (position bias of
    judges), samsledje/D-SCRIPT#13, advait/c4a0#22
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "reversed": "One more row is made of this pair, the other way round and marked. It stands beside the set (in"
        " the configuration ab or reversed), never in it: do not train plain DPO on the rows of reversed.",
    }
    measured: ClassVar[frozenset[str]] = frozenset()
    adds: ClassVar[bool] = True
    train_only: ClassVar[bool] = True

    mode: Literal["smoothing", "order", "raw"] = "smoothing"
    fraction: float = Field(0.1, gt=0, le=0.2)

    def decide(self, signals: Signals) -> Decisions:
        """Which pairs are reversed; in the mode ``smoothing`` what to smooth by instead."""
        out = Decisions(signals.index)
        marked = signals.mask("pair.reversed")
        able = np.flatnonzero(~marked & ~signals.mask("pair.tie"))
        if not len(able):
            return out
        if self.mode == "smoothing":
            smoothing = round(self.fraction / (1 + self.fraction), 6)
            text = f"train DPO with label smoothing {smoothing:.4g}"
            text += f": the same as {self.fraction:g} reversed rows for each row, and none is added"
            out.findings.append(Finding("label_smoothing", smoothing, len(able), text))
            return out
        prompt, good, bad = keys(signals)
        own, mirrored = combined([prompt, good, bad]), combined([prompt, bad, good])
        there = np.isin(own[able], mirrored[marked])
        free = able[~there]
        wanted = int(self.fraction * len(able) + 1e-9) - int(there.sum())
        rank = [xxhash.xxh3_64_intdigest(k.to_bytes(8, "little"), signals.seed) for k in own[free].tolist()]
        order = np.lexsort((free, np.array(rank, np.uint64)))  # equal pairs by row
        picked: Index = np.sort(free[order[: max(0, wanted)]])
        out.mark(picked, "add", "reversed")
        said = f"rows are added the other way round, beside the set ({self.mode})"
        out.findings.append(Finding("reversed_pairs", len(picked), len(able), said))
        return out
