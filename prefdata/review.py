"""What people said of the pairs of a spot-check, put together: decisions, how sure they are, and how far people agree."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

from prefdata.errors import InputError
from prefdata.files import put
from prefdata.intervals import wilson
from prefdata.report.model import Report
from prefdata.report.render import visible
from prefdata.review_file import (
    PLACE,
    Agreement,
    Apply,
    Decision,
    Judged,
    Pairing,
    Rate,
    Review,
    Reviewer,
    Said,
    Stratum,
    read,
)
from prefdata.review_sheet import Place, beyond, of_page
from prefdata.review_verdicts import Bad, Sheet
from prefdata.review_verdicts import read as verdicts_of

FOLDER = "audit/verdicts"
Numbers = Callable[[set[str]], dict[str, int]]
"""Row numbers of kept pairs by their ``pd_id``."""


@dataclass(frozen=True)
class Imported:
    """The review as it is now, and what a reader must know of the import."""

    review: Review
    said: tuple[str, ...]


def sheet_of(out: Path, report: Report, numbers: Numbers) -> Sheet:
    """What the verdicts on this run must fit."""

    def find(ids: set[str]) -> dict[str, Place]:
        found = numbers(ids)
        return {p.pd_id: p for p in beyond(out, report, found)} if found else {}

    return Sheet(report.spotcheck.id, report.spotcheck.seed, of_page(report), find)


def held(out: Path, report: Report) -> Review | None:
    """What was imported before for this sheet, if anything."""
    if not (out / PLACE).is_file():
        return None
    found, _ = read(out / PLACE)
    return found if found.sheet == report.spotcheck.id else None


def take(out: Path, report: Report, files: Sequence[Path], reviewer: str | None, numbers: Numbers) -> Imported:
    """Add the verdicts of these files to what was imported before, and write ``audit/review.json``.

    The files are copied to ``audit/verdicts/``. Raises InputError with every line that is no verdict on this sheet; then nothing
    is written.
    """
    sheet, bad = sheet_of(out, report, numbers), Bad()
    before = held(out, report)
    new = [(path, verdicts_of(path, sheet, reviewer, bad)) for path in files]
    bad.stop()
    if not any(made for _, made in new):
        what = "holds no verdict" if len(files) == 1 else "hold no verdict"
        raise InputError(what, where=", ".join(map(str, files)), hint="Judge some pairs and export them again.")
    rows = {r.row: r for r in before.rows} if before else {}
    places = {n: Place(r.row, r.pd_id, r.key, r.issue, r.state, r.base, r.left) for n, r in rows.items()}
    said = {(n, s.reviewer): s for n, r in rows.items() for s in r.verdicts}
    sources = {r.name: list(r.files) for r in before.reviewers} if before else {}
    again = _merge(new, sheet, places, said, sources)
    made = figures(sheet.name, places, said, sources)
    for path in files:
        _copy(path, out / FOLDER)
    if before is None and (out / PLACE).is_file():  # of an earlier run in this folder: the work of people is put aside
        (out / PLACE).rename(out / f"audit/review-{read(out / PLACE)[0].sheet[:40]}.json")
    put(out / PLACE, made.model_dump_json(indent=1) + "\n")
    told = [
        f"{visible(name)} judged {n} pair{'' if n == 1 else 's'} more than once, differently: the later verdict counts"
        for name, n in again.items()
    ]
    return Imported(made, tuple(told))


def _merge(
    new: Iterable[tuple[Path, list[tuple[Place, Said]]]], sheet: Sheet, places: dict[int, Place],
    said: dict[tuple[int, str], Said], sources: dict[str, list[dict[str, str]]],
) -> Counter[str]:  # fmt: skip
    """Add verdicts to ``places``, ``said`` and ``sources``; how many were replaced by others, by reviewer."""
    again: Counter[str] = Counter()
    for path, made in new:
        mark = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for place, one in made:
            places[place.row] = place
            old = said.get((place.row, one.reviewer))
            if old is None or not _later(old, one):
                said[place.row, one.reviewer] = one
            again[one.reviewer] += old is not None and (old.mode, old.verdict) != (one.mode, one.verdict)
            if mark not in (known := sources.setdefault(one.reviewer, [])):
                known.append(mark)
    return +again


def _later(old: Said, new: Said) -> bool:
    """True if the old verdict was given later than the new one; without times the place decides."""
    times = []
    for text in (old.time, new.time):
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return False
        times.append(time if time.tzinfo else time.replace(tzinfo=UTC))
    return times[0] > times[1]


def _copy(path: Path, folder: Path) -> None:
    """A copy of the file in the folder; another file of that name there keeps its own."""
    if path.resolve().parent == folder.resolve():
        return
    content = path.read_bytes()
    target = folder / path.name
    if target.exists() and target.read_bytes() != content:
        target = folder / f"{path.stem}-{hashlib.sha256(content).hexdigest()[:8]}{path.suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copyfile(path, target)


def meaning(place: Place, said: Said) -> Decision:
    """What one verdict says of the pair as it leaves."""
    if said.mode == "open":
        return said.verdict  # type: ignore[return-value]
    if said.verdict == "both_bad":
        return "reject"
    if said.verdict == "same":
        return "unsure"
    return "accept" if preferred(place.left, said) == "chosen" else "wrong_label"


def preferred(left: str, said: Said) -> str:
    """The side that a blind verdict prefers; nothing for one that prefers none."""
    if said.mode == "open" or said.verdict not in ("left", "right"):
        return ""
    return left if said.verdict == "left" else "rejected" if left == "chosen" else "chosen"


def majority(votes: Iterable[Decision]) -> Decision:
    """Of those who are sure: bad pair or good pair, and if it is bad what most of these say. A tie is ``disputed``."""
    counts = Counter(votes)
    good, bad = counts["accept"], counts["reject"] + counts["wrong_label"]
    if good == bad:
        return "disputed" if good else "unsure"
    return "accept" if good > bad else "wrong_label" if counts["wrong_label"] > counts["reject"] else "reject"


def action(state: str, decision: Decision) -> Apply | None:
    """What ``clean --verdicts`` is to do. A swapped pair whose label is wrong was rightly labelled before: it is spared."""
    if decision not in ("reject", "wrong_label"):
        return None
    if state == "dropped":
        return "keep"
    return "drop" if decision == "reject" else "keep" if state == "swapped" else "wrong_label"


def figures(
    sheet: str, places: Mapping[int, Place], said: Mapping[tuple[int, str], Said], sources: Mapping[str, list[dict[str, str]]]
) -> Review:  # fmt: skip
    """The whole review out of the verdicts by row and reviewer."""
    votes: dict[int, dict[str, Said]] = {}
    for (row, name), one in sorted(said.items()):
        votes.setdefault(row, {})[name] = one
    rows = []
    for n, mine in votes.items():
        place = places[n]
        decision = majority(meaning(place, one) for one in mine.values())
        rows.append(Judged(
            row=n, pd_id=place.pd_id, key=place.key, issue=place.issue, state=place.state, base=place.base, left=place.left,
            decision=decision, apply=action(place.state, decision), verdicts=list(mine.values()),
        ))  # fmt: skip
    rejected = _rate([r.decision != "accept" for r in rows if r.base and _sure(r)])
    blind = [s for r in rows for s in r.verdicts if s.mode == "blind"]
    return Review(
        sheet=sheet, reviewers=[_reviewer(name, places, votes, files) for name, files in sorted(sources.items())],
        judged=len(rows), decisions=dict(Counter(r.decision for r in rows)), rejected=rejected,
        label_agreement=_rate(list(_preferences(rows))), same=sum(s.verdict == "same" for s in blind),
        both_bad=sum(s.verdict == "both_bad" for s in blind), agreement=_agreement(places, votes),
        by_reason=list(_strata(rows, rejected)), rows=rows,
    )  # fmt: skip


def _sure(row: Judged) -> bool:
    return row.decision in ("accept", "reject", "wrong_label")


def _rate(hits: Sequence[bool]) -> Rate:
    if not hits:
        return Rate(value=None, low=None, high=None, hits=0, n=0)
    low, high = wilson(sum(hits) / len(hits), len(hits))
    return Rate(value=sum(hits) / len(hits), low=low, high=high, hits=sum(hits), n=len(hits))


def _preferences(rows: Iterable[Judged]) -> Iterator[bool]:
    """Of each pair of the sample on which a majority has a preference, judged blind: is it that of the label?"""
    for row in rows:
        found = Counter(preferred(row.left, s) for s in row.verdicts)
        if row.base and found["chosen"] != found["rejected"]:
            yield found["chosen"] > found["rejected"]


def _reviewer(
    name: str, places: Mapping[int, Place], votes: Mapping[int, Mapping[str, Said]], files: list[dict[str, str]]
) -> Reviewer:
    counts = Counter(meaning(places[row], mine[name]) for row, mine in votes.items() if name in mine)
    return Reviewer(name=name, judged=sum(counts.values()), counts=dict(sorted(counts.items())), files=files)


def _agreement(places: Mapping[int, Place], votes: Mapping[int, Mapping[str, Said]]) -> Agreement:
    """Good, bad or unsure: do people who judged the same pairs say the same?"""
    short: dict[Decision, str] = {"accept": "good", "reject": "bad", "wrong_label": "bad"}
    names = sorted({name for mine in votes.values() for name in mine})
    pairs = []
    for a, b in combinations(names, 2):
        both = [(n, mine) for n, mine in votes.items() if a in mine and b in mine]
        if not both:
            continue
        one, two = ([short.get(meaning(places[n], mine[name]), "unsure") for n, mine in both] for name in (a, b))
        same = sum(x == y for x, y in zip(one, two, strict=True)) / len(both)
        pairs.append(Pairing(a=a, b=b, n=len(both), agreement=same, kappa=_kappa(one, two)))
    kappas = [p.kappa for p in pairs if p.kappa is not None]
    return Agreement(
        value=sum(p.agreement for p in pairs) / len(pairs) if pairs else None,
        kappa=sum(kappas) / len(kappas) if kappas else None, pairs=pairs,
    )  # fmt: skip


def _kappa(one: Sequence[str], two: Sequence[str]) -> float | None:
    if len({*one, *two}) < 2:  # all say the same of all pairs: chance would too
        return None
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(one, two))


def _strata(rows: Iterable[Judged], overall: Rate) -> Iterator[Stratum]:
    """By issue and outcome, those with an issue first. A stratum is worth a look where its interval lies above the overall share."""
    by: dict[tuple[bool, str, str], list[Judged]] = {}
    for row in rows:
        by.setdefault((row.issue is None, row.issue or "", row.state), []).append(row)
    for (_, issue, state), mine in sorted(by.items()):
        rate = _rate([(r.decision == "accept") == (state == "dropped") for r in mine if _sure(r)])
        bad = rate.low if state != "dropped" else None if rate.high is None else 1 - rate.high
        look = bool(issue) and bad is not None and bad > (overall.value or 0.0) and rate.n > 0
        yield Stratum(**rate.model_dump(), issue=issue or None, state=mine[0].state, judged=len(mine), look=look)


def lines(found: Review, said: Iterable[str] = ()) -> Iterator[str]:
    """The review for people."""
    n = len(found.reviewers)
    head = [f"judged {found.judged:,} by {n} reviewer{'' if n == 1 else 's'}", f"rejected {_told(found.rejected)}"]
    if found.label_agreement.n:
        head.append(f"label preferred {_told(found.label_agreement)}")
    if (value := found.agreement.value) is not None:
        kappa = "not defined" if found.agreement.kappa is None else f"{found.agreement.kappa:.2f}"
        head.append(f"agreement {value:.2f}, kappa {kappa}")
    yield "   ".join(head)
    yield from said
    for one in found.by_reason:
        if one.issue is not None and one.n:
            words = "dropped rightly" if one.state == "dropped" else "rejected"
            look = "  ← look here" if one.look else ""
            yield f"by issue: {one.issue}, {one.state}: {one.hits} of {one.n} {words} ({100 * (one.value or 0):.0f} %){look}"
    if disputed := found.decisions.get("disputed"):
        yield f"disputed {disputed:,}: as many say yes as no, and nothing is applied"


def _told(rate: Rate) -> str:
    """``23 of 400 = 5.8 % (3.9-8.5)``."""
    if rate.value is None or rate.low is None or rate.high is None:
        return "none decided"
    return f"{rate.hits:,} of {rate.n:,} = {100 * rate.value:.1f} % ({100 * rate.low:.1f}-{100 * rate.high:.1f})"
