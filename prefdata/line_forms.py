"""Pairs as JSON lines in the forms of others: what a form cannot hold of a pair, and the rows that it makes of one.

Values go from the spool to the line as the JSON that they are there, so that none is changed on the way.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import xxhash

from prefdata import schema, sharegpt
from prefdata.errors import InputError
from prefdata.making import Form
from prefdata.measuring import VERDICT
from prefdata.pairs import SIDES, Fault, Message, dump
from prefdata.reading import values
from prefdata.shapes import Asked, find_reading, sides

LINES = ("jsonl", "kto", "ab")
# The names that a form makes itself: columns beside the pair that have them get a ``pd_``.
_MADE = {
    "jsonl": (),
    "kto": ("completion", "label", "pd_chosen_info", "pd_rejected_info"),
    "ab": ("output_1", "output_2", "label"),
    "llamafactory": ("instruction", "conversations", "system"),
    "skipped": VERDICT,
}
_SAMPLE = 200  # lines that are looked at to see how they are read
MOVED = "both answers begin with the same messages: readers of this form count those to the prompt"
_DEVELOPER = "developer message written as system text"
_CALLS = "tool calls written as LLaMA-Factory's function_call, without their ids"


# ---------------------------------------------------------------------------------------------- what a form can hold


def check(to: str, prompt: list[Message], chosen: list[Message], rejected: list[Message]) -> list[str]:
    """What happens to a chat pair in this form, to be told. Raises NoPlace for what the form cannot hold."""
    if to == "hf-text":
        for side, role in ((prompt, "user"), (chosen, "assistant"), (rejected, "assistant")):
            _single(side, role)
    elif to == "hf-implicit":
        again = sides.split(prompt + chosen, prompt + rejected)
        if isinstance(again, Fault):
            raise sharegpt.NoPlace("turns from which the prompt cannot be told")
        return [] if again.prompt == prompt else [MOVED]
    elif to == "llamafactory":
        turns = sharegpt.row_of(prompt, chosen, rejected)
        said = [*turns["conversations"], turns["chosen"], turns["rejected"]]
        calls = [_CALLS] if any(t["from"] in ("function_call", "observation") for t in said) else []
        return calls + ([_DEVELOPER] if prompt[0]["role"] == "developer" else [])
    return []


def _single(side: list[Message], role: str) -> None:
    """One message of this role that is a text and nothing else."""
    if any(m.get("tool_calls") for m in side):
        raise sharegpt.NoPlace("tool calls")
    if any(m["role"] == "system" for m in side):
        raise sharegpt.NoPlace("a system message")
    if len(side) != 1 or side[0]["role"] != role:
        raise sharegpt.NoPlace("several turns")
    if not isinstance(side[0].get("content"), str):
        raise sharegpt.NoPlace("a message that is no text")
    if len(side[0]) > 2:
        raise sharegpt.NoPlace("message keys beside role and content")


# ---------------------------------------------------------------------------------------------- rows


@dataclass
class Lines:
    """Writes pairs as lines of one form: ``schema`` are their columns beside the pair, ``spooled`` says whether sides are text
    or messages, ``pairs`` how many there are, ``system`` whether some have a system text. ``renamed`` are columns that get a
    ``pd_`` besides those whose names the form needs.
    """

    to: str
    spooled: Form
    schema: pa.Schema
    seed: int
    pairs: int
    where: str
    system: bool = False
    renamed: frozenset[str] = frozenset()
    changes: Counter[str] = field(default_factory=Counter, init=False)
    _answers: dict[bool, array[int]] = field(default_factory=lambda: {True: array("Q"), False: array("Q")}, init=False)

    def __post_init__(self) -> None:
        """Name the columns; raises InputError for one that no line can hold, or whose new name another one has."""
        self.names: dict[str, str] = {}
        for column in self.schema:
            old = column.name
            bytes_ = _holds(column.type, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
            if self.to == "skipped" and bytes_:
                continue
            if self.to == "kto" and old == "pd_rows":
                self.changes["column 'pd_rows' left out: it numbers rows of another set"] = self.pairs
                continue
            name = self.names[old] = f"pd_{old}" if old in self.renamed or old in _MADE[self.to] else old
            if name != old and name in self.schema.names:
                raise InputError(f"has the columns {old!r} and {name!r}", where=self.where, hint="Rename one.")
            if bytes_:
                hint = "Write Parquet: --to hf-chat or hf-text."
                raise InputError(f"the column {old!r} holds bytes, which JSON cannot", where=self.where, hint=hint)
            if name != old:
                self.changes[f"column {old!r} is carried as {name!r}: its name says something else there"] = self.pairs
            if _holds(column.type, pa.types.is_temporal, pa.types.is_decimal):
                self.changes[f"column {old!r} ({column.type}) is written as text"] = self.pairs
            elif self.to == "llamafactory" and (old == "tools" or isinstance(column.type, pa.JsonType)):
                self.changes[f"column {old!r} is written as JSON text, which LLaMA-Factory can read"] = self.pairs

    def of(self, table: pa.Table, ids: Sequence[str], numbers: Sequence[int]) -> Iterator[bytes]:
        """The lines of these spooled pairs, ``numbers`` in the whole input."""
        beside = {new: self._column(table, self.schema.field(old)) for old, new in self.names.items()}
        beside["pd_id"] = [dump(i) for i in ids]
        sides = (table.column(side).to_pylist() for side in SIDES)
        for i, pair in enumerate(zip(*sides, strict=True)):
            more = {name: orjson.Fragment(values[i]) for name, values in beside.items()}
            for row in self._rows(numbers[i], *pair):
                yield orjson.dumps({**row, **more}, option=orjson.OPT_APPEND_NEWLINE)

    def _rows(self, number: int, prompt: str, chosen: str, rejected: str) -> list[dict[str, Any]]:
        """What a pair becomes, without its further columns."""
        if self.to == "llamafactory" and self.spooled == "text":
            return [{"instruction": prompt, "chosen": chosen, "rejected": rejected}]
        if self.to == "llamafactory":
            row = sharegpt.row_of(*map(orjson.loads, (prompt, chosen, rejected)))
            return [row if self.system else {k: v for k, v in row.items() if k != "system"}]
        if self.to == "kto":
            for label, answer in ((True, chosen), (False, rejected)):
                self._answers[label].append(xxhash.xxh3_64_intdigest(f"{len(prompt)} {prompt}{answer}".encode()))
        chat = self.spooled == "chat"
        asked, better, worse = (orjson.Fragment(s) if chat and s is not None else s for s in (prompt, chosen, rejected))
        if self.to in ("jsonl", "skipped"):
            return [{"prompt": asked, "chosen": better, "rejected": worse}]
        if self.to == "kto":
            return [{"prompt": asked, "completion": a, "label": good} for a, good in ((better, True), (worse, False))]
        second = xxhash.xxh3_64_intdigest(str(number).encode(), self.seed) & 1
        first, other = (worse, better) if second else (better, worse)
        return [{"prompt": asked, "output_1": first, "output_2": other, "label": 1 + second}]

    def _column(self, table: pa.Table, column: pa.Field) -> list[str]:
        """The JSON of each value of a column; for LLaMA-Factory in the one type of the set, which its loader can read."""
        name = column.name
        if name not in table.column_names:
            return ["null"] * len(table)
        held = table.column(name)
        if self.to == "llamafactory" and name == "tools":
            return [dump(sharegpt.tools_text(tools)) for tools in values(held)]
        array = schema.whole(held)
        if self.to == "llamafactory":
            array = schema.cast(array, column)
            array = array.storage if isinstance(array.type, pa.JsonType) else array
        if lost := schema.lost_as_json(array):
            self.changes[f"NaN or infinity in column {name!r} written as null"] += lost
        if array.type == schema.NUMBERS:  # as they were spelled; NaN and infinity end in a letter
            return [t if t and t[-1].isdigit() else "null" for t in array.storage.to_pylist()]
        made = array if isinstance(array.type, pa.JsonType) else schema.as_json(values(pa.chunked_array([array])))
        return [t or "null" for t in made.storage.to_pylist()]

    def told(self) -> dict[str, int]:
        """Changes of form, and what there is to know of the rows of ``kto``."""
        good, bad = (np.frombuffer(self._answers[label], np.uint64) for label in (True, False))
        repeated = len(good) + len(bad) - len(np.unique(good)) - len(np.unique(bad))
        both = len(np.intersect1d(good, bad))
        told = {"rows that repeat an earlier one": repeated, "answers that one pair chooses and another rejects": both}
        return {**self.changes, **{text: n for text, n in told.items() if n}}


def safe(lines: Lines, table: pa.Table, ids: Sequence[str]) -> Lines:
    """The same with names under which no further column is taken for a part of the pair when the lines are read again; these
    pairs show how that is done.
    """
    few = table.slice(0, _SAMPLE)
    for _ in lines.schema:  # each round renames a column at least
        rows = [orjson.loads(line) for line in replace(lines).of(few, ids, range(len(few)))]
        try:
            found = find_reading(list(rows[0]), Asked(), rows, lines.where).layouts
        except InputError:  # said of columns that a reader of this form has to be told of
            return lines
        parts = [(c, part) for c in found for part in c.parts if (c.shape, part) != ("pair_columns", "scores")]
        taken = {name.split(".")[0] for c, part in parts for name in c.all(part)}
        wrong = {old for old, new in lines.names.items() if new == old and new in taken}
        if not wrong:
            break
        lines = replace(lines, renamed=lines.renamed | wrong)
    return lines


def _holds(kind: pa.DataType, *tests: Callable[[pa.DataType], bool]) -> bool:
    """True for a type that passes one of the tests, or has one inside that does."""
    return any(t(kind) for t in tests) or any(_holds(kind.field(i).type, *tests) for i in range(kind.num_fields))
