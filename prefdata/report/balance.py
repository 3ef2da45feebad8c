"""How the pairs are spread over domains, sources and languages, before and after; and does the longer answer win in each?

A language is known from a column, or where ``domain_balance`` has told it (it does where a row has no other known column): telling
it here would need the text a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from prefdata.decisions import Index, Signals
from prefdata.report import numbers
from prefdata.report.numbers import Floats, Mask
from prefdata.report.parts import Dimension, Share, Value

MOST_DIMENSIONS, MOST_VALUES, MOST_DISTINCT = 6, 12, 1000
LANGUAGE, NAMED = "domain_balance.language", "domain_balance.domain"
_NO_LANGUAGE = "unknown"


def balance(
    signals: Signals, sound: Index, kept: Mask, gap: Floats, swapped: Mask, named: str, wanted: Sequence[tuple[str, str, float]],
) -> list[Dimension]:  # fmt: skip
    """The dimensions with 2 to 1,000 values; the language with one, too. ``sound`` are row numbers; ``kept``, ``swapped`` (of all
    rows) and ``gap`` (words in chosen minus words in rejected, of the sound rows) say what became of them. ``named`` is the column
    that ``domain_balance`` was given, ``wanted`` what its findings want.
    """
    living = signals.living(sound)
    stay, turned = kept[sound], swapped[sound]
    out: list[Dimension] = []
    for key, (signal, field) in _dimensions(living, named).items():
        of, names = _coded(living, signal, field)
        if (1 if signal == LANGUAGE else 2) <= len(names) <= MOST_DISTINCT and len(out) < MOST_DIMENSIONS:
            title, source = (
                ("language of the prompt", "language")
                if signal == LANGUAGE
                else (f"column {key}", f"the column {key!r}")
            )
            target = {name: share for by, name, share in wanted if by == source}
            out.append(_dimension(key, title, of, names, stay, gap, np.where(turned, -gap, gap), target))
    return out


def groups(signals: Signals, rows: Sequence[int], named: str, keys: Sequence[str]) -> dict[int, dict[str, str]]:
    """Of each of these rows its value in these dimensions, where it has one."""
    living = signals.living(np.unique(np.asarray(rows, np.int64)))
    out: dict[int, dict[str, str]] = {int(row): {} for row in living.index}
    for key, (signal, field) in _dimensions(living, named).items():
        if key in keys:
            of, names = _coded(living, signal, field)
            for row, at in zip(living.index.tolist(), of.tolist(), strict=True):
                if at >= 0:
                    out[row][key] = names[at]
    return out


def looked_for(signals: Signals) -> list[str]:
    """The columns of known names that dimensions are made of, where the set has them."""
    if "pair.known" not in signals.names:
        return []
    _, got = next(iter(signals.batches(["pair.known"])), (None, None))
    return [] if got is None else [field.name for field in got["pair.known"].type]


def _dimensions(living: Signals, named: str) -> dict[str, tuple[str, str | None]]:
    """By key the signal, and the field of it, that holds the values."""
    out: dict[str, tuple[str, str | None]] = {named: (NAMED, None)} if named and NAMED in living.names else {}
    out |= {name: ("pair.known", name) for name in _known(living) if name not in out}
    if LANGUAGE in living.names and "language" not in out:
        out["language"] = (LANGUAGE, None)
    return out


def _known(living: Signals) -> Iterator[str]:
    """The columns of known names that the set has."""
    if "pair.known" not in living.names:
        return
    seen: dict[str, None] = {}
    for _, got in living.batches(["pair.known"]):
        held = got["pair.known"]
        for field, values in zip(held.type, held.flatten(), strict=True):
            if values.null_count < len(values):
                seen.setdefault(field.name)
    yield from seen


def _coded(living: Signals, signal: str, field: str | None) -> tuple[npt.NDArray[np.int64], list[str]]:
    of, codes = np.full(len(living), -1), dict[str, int]()
    for where, got in living.batches([signal]):
        held = got[signal] if field is None else pc.struct_field(got[signal], field)
        if field is None:
            held = pc.if_else(pc.equal(held, _NO_LANGUAGE), pa.scalar(None, pa.string()), held)
        if held.null_count == len(held):
            continue
        coded = held.dictionary_encode()
        here = [codes.setdefault(text, len(codes)) for text in coded.dictionary.to_pylist()]
        of[where] = np.array([*here, -1])[coded.indices.fill_null(len(here)).to_numpy(zero_copy_only=False)]
    return of, list(codes)


def _dimension(
    key: str, title: str, of: npt.NDArray[np.int64], names: list[str], stay: Mask, before: Floats, after: Floats,
    target: Mapping[str, float],
) -> Dimension:  # fmt: skip
    has = of >= 0
    size, left = (np.bincount(of[m], minlength=len(names)) for m in (has, has & stay))
    order = sorted(range(len(names)), key=lambda i: (-int(size[i]), names[i]))
    listed = order if len(order) <= MOST_VALUES else order[: MOST_VALUES - 1]
    n, m = int(size.sum()), int(left.sum())

    def value(name: str | None, mine: Mask) -> Value:
        inside, kept = int(mine.sum()), int((mine & stay).sum())
        return Value(
            name=name, before=inside, after=kept, before_share=inside / n, after_share=kept / m if m else None,
            change=kept / m - inside / n if m else None, target=target.get(name or ""), longer_before=_longer(before[mine]), longer_after=_longer(after[mine & stay]),
        )  # fmt: skip

    values = [value(names[i], of == i) for i in listed]
    if len(listed) < len(order):
        values.append(value(None, has & ~np.isin(of, listed)))
    return Dimension(
        key=key, title=title, n_before=n, n_after=m, without_before=int((~has).sum()), without_after=int((~has & stay).sum()),
        distinct=len(names), unlisted=len(order) - len(listed), values=values,
    )  # fmt: skip


def _longer(gap: Floats) -> Share:
    return numbers.wilson(int((gap > 0).sum()), int((gap != 0).sum()), int((gap == 0).sum()))
