"""Every reason word that occurs: how often, what was done, and which other words the same rows have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from prefdata.decisions import Decisions
from prefdata.report.model import Issue, Overlap, Severity
from prefdata.stage import Stage


def keys_of(names: Sequence[str], decisions: Sequence[Decisions]) -> list[list[str]]:
    """By stage and reason: the reason word, with the stage's name where another stage uses the word too."""
    seen: set[str] = set()
    out = []
    for name, made in zip(names, decisions, strict=True):
        out.append([r if r not in seen else f"{r}@{name}" for r in made.reasons])
        seen.update(made.reasons)
    return out


def issues_of(
    n: int, names: Sequence[str], keys: Sequence[Sequence[str]], stages: Sequence[Stage], decisions: Sequence[Decisions]
) -> list[Issue]:
    """Every reason that occurs, the most frequent first."""
    over = _overlaps(n, keys, decisions)
    out = []
    for name, stage, made, words in zip(names, stages, decisions, keys, strict=True):
        for reason, counts in made.by_reason().items():
            counts = {a: c for a, c in counts.items() if a != "keep"}
            rows, key = sum(counts.values()), words[made.reasons.index(reason)]
            if not rows:
                continue
            text = " ".join(stage.reasons.get(reason, "").split())
            most = sorted(over.get(key, {}).items(), key=lambda item: (-item[1], item[0]))[:3]
            out.append(Issue(
                key=key, reason=reason, stage=name, severity=_severity(counts), title=_title(text, reason), text=text, action=max(counts, key=lambda a: counts[a]),
                actions=counts, rows=rows, share=rows / n, embedded=0,
                overlaps=[Overlap(key=k, reason=k.split("@")[0], rows=c, share=c / rows) for k, c in most],
            ))  # fmt: skip
    return sorted(out, key=lambda issue: -issue.rows)


def _severity(actions: Mapping[str, int]) -> Severity:
    return "error" if actions.keys() & {"drop", "swap"} else "warning" if "flag" in actions else "note"


def _title(text: str, reason: str) -> str:
    """The first sentence of a reason's text."""
    first = re.split(r"(?<=[.;:])\s", text, maxsplit=1)[0].rstrip(".;:")
    return first or reason.replace("_", " ").capitalize()


def _overlaps(n: int, keys: Sequence[Sequence[str]], decisions: Sequence[Decisions]) -> dict[str, dict[str, int]]:
    """How many rows of an issue have an issue of another stage as well: ``{key: {other key: rows}}``."""
    out: dict[str, dict[str, int]] = {}
    found = [np.flatnonzero((d.action != 0) & (d.reason >= 0)) for d in decisions]
    code = np.empty(n, np.int16)
    for i, (first, at) in enumerate(zip(decisions, found, strict=True)):
        if not len(at) or not any(len(later) for later in found[i + 1 :]):
            continue
        code.fill(-1)
        code[first.rows[at]] = first.reason[at]
        for j in range(i + 1, len(decisions)):
            other, there = decisions[j], found[j]
            mine = code[other.rows[there]]
            both = mine.astype(np.int64) * len(other.reasons) + other.reason[there]
            for pair, count in zip(*np.unique(both[mine >= 0], return_counts=True), strict=True):
                a, b = keys[i][int(pair) // len(other.reasons)], keys[j][int(pair) % len(other.reasons)]
                out.setdefault(a, {})[b] = out.setdefault(b, {})[a] = int(count)
    return out
