"""Two finished runs, or two sets of pairs, compared: counts, rows, rates, distributions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from prefdata import diff_numbers, diff_rows
from prefdata.diff_match import Match, Rows, match
from prefdata.diff_side import Side, read
from prefdata.output import MANIFEST, is_ours
from prefdata.pipeline import Pipeline, load, parse
from prefdata.report.compare import KINDS, Compare, Compared, Kind, Rate, RowExample, RowKind, Texts, TextSide
from prefdata.result import Options, Progress

EXAMPLES = 50
TEXTS: tuple[TextSide, ...] = ("prompt", "chosen", "rejected")
TITLES: dict[Kind, str] = {
    "only_in_a": "only in {a}", "only_in_b": "only in {b}", "swapped": "label swapped", "changed": "text changed",
    "kept_to_dropped": "kept in {a}, dropped in {b}", "dropped_to_kept": "dropped in {a}, kept in {b}",
}  # fmt: skip
Places = tuple[Rows | None, Rows | None]


def sides(
    places: tuple[str, str], work: Path, pipeline: str | None, options: Options,
    check: Callable[[Iterable[str]], None] = lambda words: None, progress: Progress | None = None,
) -> tuple[Side, Side]:  # fmt: skip
    """Both sides. A place without a finished run is audited into ``work``, by ``pipeline``, else by that of the other side.

    ``check`` hears the reason words that there may be, before the work begins. Raises PrefdataError as ``audit`` does, and for a run that is not finished.
    """
    from prefdata.run import run

    names = titles(*places)
    done = [is_ours(Path(p)) for p in places]
    ready = {n: read(Path(p), n) for p, n, d in zip(places, names, done, strict=True) if d}
    steps, seed = _steps(next(iter(ready.values()), None), pipeline)
    words = [w for side in ready.values() for s in side.report.stages for w in s.reasons]
    check([*words, *(w for s in steps.stages for w in s.reasons)])
    for place, name in zip(places, names, strict=True):
        if name not in ready:
            into = work / str(len(ready))
            asked = replace(options, export="none", seed=options.seed if seed is None else seed, sample=0.0)
            run("clean", [place], into, steps, asked, progress, lambda text: None)
            ready[name] = read(into, name, audited_here=True)
    return ready[names[0]], ready[names[1]]


def _steps(finished: Side | None, asked: str | None) -> tuple[Pipeline, int | None]:
    """The pipeline to audit with, without its gates, and the seed that the other side had."""
    if finished is None or asked is not None:
        return replace(load(asked)[0], gates=[]), None if finished is None else finished.report.seed
    config = {**finished.manifest["config"], "gate": []}
    path = finished.out / MANIFEST
    return parse(json.dumps(config), path, finished.report.pipeline), finished.report.seed


def titles(a: str, b: str) -> tuple[str, str]:
    """Names for both places: the last parts of their paths, as many as tell them apart."""
    one, two = (Path(p).absolute().parts for p in (a, b))
    if one == two:
        return f"{one[-1]} (A)", f"{one[-1]} (B)"
    k = next(k for k in range(1, len(one) + len(two)) if one[-k:] != two[-k:])
    return "/".join(one[-k:]), "/".join(two[-k:])


def compare(a: Side, b: Side, examples: int = EXAMPLES) -> Compare:
    """A (then) and B (now), with at most ``examples`` pairs of each kind."""
    found = match(a.keys, b.keys)
    kinds, rows = list[RowKind](), list[RowExample]()
    for kind, places, reasons in _kinds(a, b, found):
        shown = _examples(kind, a, b, places, reasons, examples)
        kinds.append(_kind(kind, a, b, places, reasons, len(shown)))
        rows += shown
    same_kept = int((a.kept[found.same[0]] & b.kept[found.same[1]]).sum())
    about, told = (_about(a), _about(b)), diff_numbers.rates(a, b)
    return Compare(
        prefdata=version("prefdata"), a=about[0], b=about[1], sentence=_sentence(about, kinds, told, len(found.same[0])), notes=list(notes(a, b)), counts=diff_numbers.counts(a, b),
        same=len(found.same[0]), same_kept=same_kept, kinds=kinds, rates=told,
        spreads=diff_numbers.spreads(a, b), distributions=list(diff_numbers.distributions(a, b)), rows=_with_texts(a, b, rows),
    )  # fmt: skip


def _kinds(a: Side, b: Side, found: Match) -> Iterator[tuple[Kind, Places, list[str]]]:
    """Each kind with the rows of both sides, and the word that dropped each pair that moved."""
    both = tuple(np.concatenate([m[i] for m in (found.same, found.swapped, found.changed)]) for i in (0, 1))
    was, now = a.kept[both[0]], b.kept[both[1]]
    for kind in KINDS:
        if kind == "only_in_a":
            yield kind, (found.only_a, None), []
        elif kind == "only_in_b":
            yield kind, (None, found.only_b), []
        elif kind in ("swapped", "changed"):
            yield kind, found.swapped if kind == "swapped" else found.changed, []
        else:
            out = kind == "kept_to_dropped"
            moved, dropper = (was & ~now if out else ~was & now), b if out else a
            rows = both[0][moved], both[1][moved]
            words = [dropper.reason(int(r)) for r in rows[1 if out else 0]]
            order = np.argsort(np.array(words, dtype=object), kind="stable") if words else np.zeros(0, np.int64)
            yield kind, (rows[0][order], rows[1][order]), [words[i] for i in order]


def _kind(kind: Kind, a: Side, b: Side, places: Places, reasons: list[str], shown: int) -> RowKind:
    n = next(len(p) for p in places if p is not None)
    kept = None
    if not kind.endswith(("dropped", "to_kept")):
        stay = [s.kept[p] for s, p in zip((a, b), places, strict=True) if p is not None]
        kept = int(np.logical_and.reduce(stay).sum())
    of = a if kind == "only_in_a" else b
    return RowKind(
        kind=kind, title=TITLES[kind].format(a=a.name, b=b.name), all=n, kept=kept, shown=shown,
        share=n / len(of.kept) if len(of.kept) else None, reasons=dict(Counter(reasons).most_common()),
    )  # fmt: skip


def _examples(kind: Kind, a: Side, b: Side, places: Places, reasons: list[str], most: int) -> list[RowExample]:
    """Rows of a kind, evenly over all of them; their texts come later, all in one reading."""
    n = next(len(p) for p in places if p is not None)
    out = []
    for at in diff_rows.pick(n, most):
        rows = [None if p is None else int(p[at]) for p in places]
        one, two = rows
        differs: list[TextSide] = []
        if one is not None and two is not None and kind != "swapped":
            differs = [s for s in TEXTS if getattr(a.keys, s)[one] != getattr(b.keys, s)[two]]
        out.append(RowExample(kind=kind, differs=differs, a=_only(a, one), b=_only(b, two)))
    return out


def _only(side: Side, row: int | None) -> Texts | None:
    return None if row is None else diff_rows.told(side, row, None)


def _with_texts(a: Side, b: Side, rows: Sequence[RowExample]) -> list[RowExample]:
    one = diff_rows.texts(a, [r.a.row for r in rows if r.a is not None])
    two = diff_rows.texts(b, [r.b.row for r in rows if r.b is not None])
    return [r.model_copy(update={"a": r.a and one[r.a.row], "b": r.b and two[r.b.row]}) for r in rows]


def _sentence(about: tuple[Compared, Compared], kinds: Sequence[RowKind], told: Sequence[Rate], same: int) -> str:
    """What a reader takes away, in one sentence or two."""
    a, b = about
    found = "; ".join(f"{k.title}: {k.all:,}" for k in kinds if k.all)
    moved = [r.name for r in told if r.beyond]
    rates = f" More than chance: {', '.join(moved[:5])}{' ...' if len(moved) > 5 else ''}." if moved else ""
    if not found:
        flagged = "" if all(not r.change for r in told) else " Other pairs are flagged."
        return f"No pair differs: all {same:,} are in both, and kept or dropped alike.{flagged}{rates}"
    return f"{same:,} of {b.pairs - b.broken:,} sound pairs of {b.name} are in {a.name} as they are. {found[0].upper()}{found[1:]}.{rates}"


def _about(side: Side) -> Compared:
    report = side.report
    return Compared(
        name=side.name, audited_here=side.audited_here, action=report.action, pipeline=report.pipeline, seed=report.seed,
        prefdata=report.prefdata, files=[f["name"] for f in report.source.get("files", [])], partial=bool(report.source.get("partial")),
        pairs=report.totals.pairs, kept=report.totals.kept, broken=int((~side.keys.sound).sum()), no_texts=diff_rows.no_texts(side),
    )  # fmt: skip


def notes(a: Side, b: Side) -> Iterator[str]:
    """What else differs between the sides and may explain what is found."""
    here = [s.name for s in (a, b) if s.audited_here]
    if here:
        how = f"the pipeline {b.report.pipeline if b.audited_here else a.report.pipeline}"
        yield f"{' and '.join(here)}: audited for this comparison with {how}."
    other = list(_settings(_stages(a), _stages(b)))
    if other:
        more = f", and {len(other) - 5} more" if len(other) > 5 else ""
        yield f"Other pipelines, which explains differences: {'; '.join(other[:5])}{more}."
    for what, x, y in (
        ("seeds", a.report.seed, b.report.seed), ("versions of prefdata", a.report.prefdata, b.report.prefdata),
    ):  # fmt: skip
        if x != y:
            yield f"Other {what}: {x} and {y}."
    for side in (a, b):
        if side.report.source.get("partial"):
            yield f"{side.name} read the first rows only (--limit)."
    if diff_numbers.same_files(a, b):
        yield "Both read the same files, byte for byte: no change is chance."


def _stages(side: Side) -> dict[str, Mapping[str, Any]]:
    return {s.key: s.parameters for s in side.report.stages}


def _settings(a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """``near_duplicate.threshold 0.8, now 0.6``."""
    yield from (f"{s} ran in the first only" for s in a if s not in b)
    yield from (f"{s} ran in the second only" for s in b if s not in a)
    for stage in (s for s in b if s in a):
        for key in dict.fromkeys([*a[stage], *b[stage]]):
            x, y = a[stage].get(key), b[stage].get(key)
            if x != y:
                yield f"{stage}.{key} {json.dumps(x)}, now {json.dumps(y)}"
