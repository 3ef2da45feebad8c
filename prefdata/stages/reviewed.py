"""Pairs that people have judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from prefdata import review_file
from prefdata.decisions import Decisions, Finding, Index, Signals
from prefdata.identity import content_keys
from prefdata.stage import Stage

_EXAMPLES = 50


class Reviewed(Stage):
    """What have people said of this pair?

    Why it matters: a person who has read a pair knows better than a statistic; what they said must hold when the set is cleaned
    again, and must be on record.

    How it decides: the verdicts come from ``audit/review.json`` of runs that were reviewed (``clean --verdicts``). A pair is known
    by a hash of its three texts, so verdicts still hold when rows were added or stand in another order. A pair that was rejected
    is dropped. A pair of which people said that the rejected answer is the better one is dropped, swapped or flagged
    (``wrong_label``). A dropped pair that should have stayed is spared, and so is a swapped one whose label was right: a later
    stage that would drop or swap it flags it, with its own reason. What ``malformed`` drops is no pair and cannot be spared. Of
    several pairs with the same texts as many are spared, from the last, as people judged. Of several files that say different
    things of a pair the last one counts.

    What it misses: pairs whose texts were changed since, if only by a word; disputed and unsure verdicts, which are left alone.

    References: none
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "rejected_by_review": "People who read the pair rejected it; the review that is named in manifest.json says who, and holds"
        " their notes.",
        "wrong_label_by_review": "People who read both answers without knowing the label preferred the rejected one. It is"
        " dropped unless --set reviewed.wrong_label=swap says to turn it round.",
    }
    measured: ClassVar[frozenset[str]] = frozenset()
    judged: ClassVar[bool] = False  # people have been asked

    verdicts: tuple[str, ...] = ()
    """Files that ``prefdata review OUT --import`` wrote: ``OUT/audit/review.json``."""
    wrong_label: Literal["drop", "swap", "flag"] = "drop"

    @cached_property
    def held(self) -> list[tuple[str, review_file.Review, str]]:
        """Name, review and sha256 of each file; read once, so that what is applied is what is recorded."""
        return [(path, *review_file.read(Path(path))) for path in self.verdicts]

    def depends_on(self) -> str:
        """Nothing that ``measure`` reads; a file that cannot be used is told here, before the work."""
        assert self.held is not None
        return ""

    def decide(self, signals: Signals) -> Decisions:
        """Look each judged pair up."""
        out = Decisions(signals.index)
        if not self.verdicts:
            out.findings.append(Finding("no_verdicts", 0, len(out), "no review was given: nothing was applied"))
            return out
        wanted: dict[int, str] = {}
        people: Counter[int] = Counter()  # rows of the same texts that people want to stay
        for _, review, _ in self.held:
            said = [(int(row.key, 16), row.apply) for row in review.rows if row.apply is not None]
            for key in {key for key, _ in said}:
                people[key] = 0
            for key, apply in said:
                wanted[key] = apply
                people[key] += apply == "keep"
        found = _places(content_keys(signals), list(wanted)) if wanted and len(out) else {}
        spared = np.zeros(len(out), bool)
        for key, places in found.items():
            if wanted[key] == "drop":
                out.mark(places, "drop", "rejected_by_review")
            elif wanted[key] == "wrong_label":
                out.mark(places, self.wrong_label, "wrong_label_by_review")
            else:
                spared[places[-people[key] :]] = True
        if spared.any():
            out.spared = spared
        return self._told(out, spared, len(wanted), len(wanted) - len(found))

    def _told(self, out: Decisions, spared: Any, judged: int, missing: int) -> Decisions:
        """With the findings: how many verdicts were applied, and how many found no pair."""
        acted = out.action != 0
        rows = tuple(out.rows[np.flatnonzero(acted | spared)[:_EXAMPLES]].tolist())
        text = f"{judged - missing} of {judged} verdicts of people are applied: {int(acted.sum())} pairs by their reason, {int(spared.sum())} spared from later stages"
        out.findings.append(Finding("verdicts_applied", judged - missing, judged, text, rows=rows))
        if missing:
            text = f"{missing} of {judged} verdicts are on pairs that are not in this input, or are no sound pairs"
            out.findings.append(Finding("verdicts_without_pair", missing, judged, text))
        return out

    def record(self) -> list[dict[str, Any]]:
        """The files that were applied, as ``manifest.json`` names them."""
        return [
            {
                "file": Path(path).name, "sha256": sha256, "sheet": review.sheet,
                "reviewers": [r.name for r in review.reviewers], "judged": review.judged,
                "apply": dict(sorted(Counter(r.apply for r in review.rows if r.apply is not None).items())),
            }
            for path, review, sha256 in self.held
        ]  # fmt: skip


def _places(keys: Any, wanted: list[int]) -> dict[int, Index]:
    """Where each wanted key stands among the keys, in row order; those that are not there are left out."""
    at = np.flatnonzero(np.isin(keys, np.array(wanted, np.uint64)))
    out: dict[int, list[int]] = {}
    for place in at.tolist():
        out.setdefault(int(keys[place]), []).append(place)
    return {key: np.array(places, np.int64) for key, places in out.items()}
