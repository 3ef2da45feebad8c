"""The signals of one batch: what every stage may use of a pair, then each stage's own."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from prefdata.domains import known_columns
from prefdata.near import combined, woven
from prefdata.pairs import SIDES, Pairs
from prefdata.stage import Stage, blaming


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for circles of objects: rows make none, and to walk over all of them again and again only costs time."""
    there = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if there:
            gc.enable()


def measure_pairs(pairs: Pairs, stages: Sequence[Stage], clock: Callable[[str], None] = lambda name: None) -> pa.Table:
    """One row a sound pair. ``clock`` is told the name of each step when it is done.

    ``pair.known`` are the columns of known names (``domains.COLUMNS``), ``pair.*_key`` hashes of the sides' normal forms, ``pair.*_words`` word counts, ``pair.*_content`` hashes
    of what is never a small edit (``pair.content`` of all three); ``pair.words`` the word hashes, side after side.
    """
    keys, words = pairs.keys, pairs.words
    columns: dict[str, pa.Array] = {f"pair.{side}_key": pa.array(keys[side]) for side in SIDES}
    columns |= {f"pair.{side}_words": pa.array(words[side].counts) for side in SIDES}
    flat, offsets = woven([words[s].hashes for s in SIDES], [words[s].offsets for s in SIDES])
    columns["pair.words"] = pa.ListArray.from_arrays(offsets.astype(np.int32), flat)
    columns["pair.content"] = pa.array(combined([words[s].content for s in SIDES]))
    columns |= {f"pair.{side}_content": pa.array(words[side].content) for side in SIDES}
    columns["pair.known"] = known_columns(pairs)
    clock("words")
    for stage in stages:
        with blaming(stage):
            own = stage.measure(pairs)
            if not isinstance(own, pa.Table):
                raise TypeError(f"measure must return a pyarrow.Table, not {type(own).__name__}")
            if own.num_columns and len(own) != len(pairs):
                raise ValueError(f"measure must return one row a pair: {len(own)} rows for {len(pairs)} pairs")
            for name in own.column_names:
                columns[f"{stage.name()}.{name}"] = own.column(name).combine_chunks()
        clock(stage.name())
    return pa.table(columns)
