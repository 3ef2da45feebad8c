"""Splits: their names, cutting a test split by prompt group, so that no prompt and no near-duplicate stands on both sides,
and which prompts the splits of an input share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from prefdata.decisions import Decisions, Finding, Signals
from prefdata.errors import ConfigError

NAME = re.compile(r"\w+(\.\w+)*")  # what ``datasets`` takes for the name of a split: never a path
MOST = np.iinfo(np.int8).max


def in_order(names: Iterable[str]) -> list[str]:
    """Splits in the order in which they are read and written: as they come, but ``train`` first."""
    return sorted(dict.fromkeys(names), key=lambda name: name != "train")


def parse(text: str) -> dict[str, float]:
    """``test=0.02,validation=0.01`` as ``{"test": 0.02, ...}``; what is left is ``train``."""
    out: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        if name.strip() in out:
            raise ConfigError(f"--split {text}: {name.strip()} stands there twice", hint="One share for each name.")
        try:
            out[name.strip()] = float(share.rstrip("% ")) / (100 if share.rstrip().endswith("%") else 1)
        except ValueError:
            raise ConfigError(f"--split {part}: not a share", hint="For example: --split test=0.02") from None
    bad = next((n for n, s in out.items() if not 0 < s < 1 or not n.isidentifier() or n == "train"), None)
    if bad is not None or sum(out.values()) >= 1:
        raise ConfigError(
            f"--split {text}: shares lie between 0 and 1, and names are words other than train",
            hint="For example: --split test=0.02",
        )
    return out


def assign(signals: Signals, shares: Mapping[str, float], near: Decisions | None, seed: int) -> npt.NDArray[np.int8]:
    """The split of each row of the set: 0 for train, 1, 2, ... for the named ones, in their order.

    Rows of one prompt, and prompts joined by a near-duplicate link, share a group; a group's place is a hash of the
    seed and its smallest prompt key, so that neither row order nor chunking matters.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    keys = signals.column("pair.prompt_key").astype(np.uint64)
    prompts, prompt_of = np.unique(keys, return_inverse=True)
    group: npt.NDArray[Any] = np.arange(len(prompts))
    if near is not None and (linked := near.peer >= 0).any():
        place = np.full(signals.total, -1)
        place[signals.index] = prompt_of
        a, b = place[near.rows[linked]], place[near.peer[linked]]
        graph = coo_matrix((np.ones(len(a), bool), (a, b)), shape=(len(prompts), len(prompts)))
        group = connected_components(graph, directed=False)[1]
    smallest = np.full(group.max(initial=0) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, group, prompts)
    hashed = [xxhash.xxh3_64_intdigest(k.to_bytes(8, "little"), seed) for k in smallest.tolist()]
    edges = np.cumsum(list(shares.values()))
    of_group = np.searchsorted(edges, np.array(hashed, np.uint64) / 2.0**64, side="right")
    of_group = np.where(of_group == len(edges), 0, of_group + 1)  # beyond the last edge: train
    out = np.zeros(signals.total, np.int8)
    out[signals.index] = of_group[group][prompt_of]
    return out


def only_once(shares: Mapping[str, float], names: Sequence[str]) -> None:
    """Refuse to cut an input that came in splits."""
    if shares and len(names) > 1:
        hint = "Leave --split out, or choose one: --input-split NAME"
        raise ConfigError(f"--split: the input has the splits {', '.join(names)} already", hint=hint)


def shared_prompts(
    signals: Signals, sound: Decisions, kept: npt.NDArray[np.bool_] | None, splits: npt.NDArray[np.int8], names: Sequence[str]
) -> list[Finding]:  # fmt: skip
    """How many rows of the other splits have a prompt (in normal form) that a row of the first one has too.

    ``splits`` and ``kept`` have one entry a row of the set. The splits of an input are compared over all ``sound`` rows; what
    was cut here over the ``kept`` ones, since rows that were dropped before the cut have no split. Nothing where there is one split.
    """
    if len(names) < 2:
        return []
    living = signals.living(np.flatnonzero(~sound.of("drop") if kept is None else kept))
    keys, of = living.column("pair.prompt_key"), splits[living.index]
    shared = (of != 0) & np.isin(keys, keys[of == 0])
    count, others = int(shared.sum()), int((of != 0).sum())
    by_name = ", ".join(f"{name} {n:,}" for i, name in enumerate(names) if (n := int((shared & (of == i)).sum())))
    text = f"{count:,} of {others:,} rows outside {names[0]} have a prompt that stands in {names[0]} too ({by_name})"
    text = text if count else f"no prompt of {names[0]} stands in another split"
    when: Literal["all", "kept"] = "all" if kept is None else "kept"
    return [Finding("shared_prompts", count, others, text, rows=tuple(living.index[shared][:50].tolist()), when=when)]
