"""One Arrow type for a column of the whole set, whatever its chunks held; values never change.

Where no plain type can hold all values unchanged, a column becomes JSON (``datasets`` gives the values back as they were).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prefdata.errors import InputError
from prefdata.pairs import dump
from prefdata.reading import LONG_NUMBER

JSON = pa.json_()
AS_TEXT = {b"holds": b"JSON"}  # marks a text column whose values are JSON: integers that no Json column may hold
_EXACT = 1 << 53  # the largest integer up to which a float holds every integer


def check_names(names: Sequence[str], where: str) -> None:
    """Raise InputError where two columns have one name, or one has a name that prefdata needs for itself."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"has two columns named {name!r}", where=where, hint="Rename one of them.")
        if str(name).startswith("pd$"):
            raise InputError(f"has the column {name!r}, a name of prefdata's own", where=where, hint="Rename it.")


def column_of(values: Sequence[Any]) -> pa.Array:
    """An Arrow array of plain Python values, of the narrowest type that holds them unchanged."""
    kinds = {type(v) for v in values}
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    if kinds <= {int, float} and kinds != {int}:
        whole = [v for v in values if type(v) is int]
        if all(-_EXACT <= v <= _EXACT for v in whole):
            return pa.array(values, pa.float64())
    elif kinds == {int} and all(v is None or -(1 << 63) <= v < 1 << 63 for v in values):
        return pa.array(values, pa.int64())
    elif kinds == {str}:
        return pa.array(values, pa.string())
    elif kinds == {bool}:
        return pa.array(values, pa.bool_())
    elif kinds == {list}:
        inner = {type(x) for v in values if v for x in v}
        if inner in ({str}, {int}, {float}, {bool}):
            try:
                return pa.array(values)
            except (pa.ArrowInvalid, OverflowError):
                pass
    return as_json(values)


def as_json(values: Sequence[Any]) -> pa.Array:
    """The values as JSON text with their own keys in their own order."""
    texts = [None if v is None else dump(v, ordered=False) for v in values]
    return pa.ExtensionArray.from_storage(JSON, pa.array(texts, pa.string()))


def not_finite(values: Sequence[Any], texts: pa.Array) -> int:
    """How many of the values hold NaN or infinity at any depth, which their JSON texts say as null."""
    maybe = np.flatnonzero(pc.match_substring(texts, "null").fill_null(False)).tolist()
    return sum(_not_finite(values[i]) for i in maybe)


def _not_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_not_finite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


def holds_map(kind: pa.DataType) -> bool:
    """True for a map, or a type with one inside, which ``datasets`` cannot read."""
    return pa.types.is_map(kind) or any(holds_map(kind.field(i).type) for i in range(kind.num_fields))


def beyond_64_bits(array: pa.Array) -> bool:
    """True if a JSON column holds integers that ``datasets`` cannot read out of it."""
    if not isinstance(array.type, pa.JsonType):
        return False
    long = pc.match_substring_regex(array.storage, LONG_NUMBER)
    return any(_beyond(json.loads(text)) for text in array.storage.filter(long).to_pylist())


def _beyond(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_beyond, value.values() if isinstance(value, dict) else value))
    return type(value) is int and not -(1 << 63) <= value < 1 << 64


def merge(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type that holds the values of all of these unchanged; all-null columns become strings."""
    left = [t for t in dict.fromkeys(types) if not pa.types.is_null(t)]
    if not left:
        return pa.string()
    if len(left) == 1:
        return left[0]
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in left):
        if any(pa.types.is_floating(t) for t in left):
            return pa.float64()
        if pa.uint64() not in left:
            return pa.int64()
        return JSON if any(pa.types.is_signed_integer(t) for t in left) else pa.uint64()
    if all(pa.types.is_string(t) or pa.types.is_large_string(t) for t in left):
        return pa.string()
    return JSON


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; the one chunk of a mapped file stays where it lies, ``combine_chunks`` would copy it."""
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.chunks
        else column.combine_chunks()
    )


def fits(array: pa.Array, kind: pa.DataType) -> bool:
    """False where an integer of the array would lose digits as a float."""
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind) and len(array) > array.null_count:
        values = array.drop_null().to_numpy(zero_copy_only=False)
        return bool(values.min() >= -_EXACT and values.max() <= _EXACT)
    return True


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """The array in the set's type; to JSON value by value, and on to its text where the field is marked so."""
    kind = field.type
    if field.metadata == AS_TEXT:
        return cast(array, field.with_type(JSON).remove_metadata()).storage
    if array.type == kind:
        return array
    if isinstance(kind, pa.JsonType):
        if isinstance(array.type, pa.JsonType):
            return array
        return as_json(array.to_pylist())
    return array.cast(kind)


def to_text(schema: pa.Schema) -> str:
    """A schema as text that a JSON file can hold."""
    import base64

    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def from_text(text: str) -> pa.Schema:
    """The schema of ``to_text``."""
    import base64

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
