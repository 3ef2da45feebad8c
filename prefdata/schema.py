"""One Arrow type for a column of the whole set, whatever its chunks held; values never change.

Where no plain type can hold all values unchanged, a column becomes JSON (``datasets`` gives the values back as they were).
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prefdata.errors import InputError
from prefdata.json_rows import LONG_NUMBER
from prefdata.pairs import dump

JSON = pa.json_()
NUMBERS = pa.json_(pa.large_string())  # of a part: integers and floats that floats hold exactly, each as it was spelled
AS_TEXT = {b"holds": b"JSON"}  # marks a text column whose values are JSON: integers that no Json column may hold
_NOTHING = pa.list_(pa.null())  # empty lists only
_LOST = ("NaN", "Infinity", "-Infinity")
_EXACT = 1 << 53  # the largest integer up to which a float holds every integer


def mapped(path: str) -> pa.Table:
    """The table of an Arrow file; its values stay in the file until they are looked at."""
    return pa.ipc.open_file(pa.memory_map(path)).read_all()


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
        if not whole:
            return pa.array(values, pa.float64())
        if all(-_EXACT <= v <= _EXACT for v in whole):
            texts = pa.array([None if v is None else _number(v) for v in values], pa.large_string())
            return pa.ExtensionArray.from_storage(NUMBERS, texts)
    elif kinds == {int} and all(v is None or -(1 << 63) <= v < 1 << 63 for v in values):
        return pa.array(values, pa.int64())
    elif kinds == {str}:
        return pa.array(values, pa.string())
    elif kinds == {bool}:
        return pa.array(values, pa.bool_())
    elif kinds == {list}:
        inner = {type(x) for v in values if v for x in v}
        if not inner:
            return pa.array(values, _NOTHING)
        if inner in ({str}, {int}, {float}, {bool}):
            try:
                return pa.array(values)
            except (pa.ArrowInvalid, OverflowError):
                pass
    return as_json(values)


def _number(value: float) -> str:
    """A number as JSON says it, and what JSON cannot say as ``float`` reads it."""
    return dump(value) if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity")


def several(values: Sequence[Any]) -> bool:
    """True if values that became JSON are of several types, each of which could have stood in a column of its own."""
    return len({_sort(v) for v in values if v is not None and v != []}) > 1


def _sort(value: Any) -> str:
    if isinstance(value, list):
        return f"list {sorted({_sort(v) for v in value})}"
    wide = type(value) is int and not -(1 << 63) <= value < 1 << 63
    return "wide" if wide else type(value).__name__


def as_json(values: Sequence[Any]) -> pa.Array:
    """The values as JSON text with their own keys in their own order."""
    texts = [None if v is None else dump(v, ordered=False) for v in values]
    return pa.ExtensionArray.from_storage(JSON, pa.array(texts, pa.string()))


def not_finite(values: Sequence[Any], texts: pa.Array) -> int:
    """How many of the values hold NaN or infinity at any depth, which their JSON texts say as null."""
    maybe = np.flatnonzero(pc.match_substring(texts, "null").fill_null(False)).tolist()
    return sum(_holds(values[i], _not_finite) for i in maybe)


def _holds(value: Any, test: Callable[[Any], bool]) -> bool:
    """Whether a value, or one inside of it, is so."""
    if isinstance(value, dict | list):
        return any(_holds(v, test) for v in (value.values() if isinstance(value, dict) else value))
    return test(value)


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def lost_as_json(array: pa.Array) -> int:
    """In how many rows of a part's column stands NaN or infinity, which JSON says as null."""
    if array.type == NUMBERS:
        return sum(text in _LOST for text in array.storage.to_pylist())
    floats = type_holds(array.type, pa.types.is_floating)
    return sum(_holds(v, _not_finite) for v in array.to_pylist()) if floats else 0


def type_holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one inside of it, is so."""
    return test(kind) or any(type_holds(kind.field(i).type, test) for i in range(kind.num_fields))


def beyond_64_bits(array: pa.Array) -> bool:
    """True if a JSON column holds integers that ``datasets`` cannot read out of it."""
    if not isinstance(array.type, pa.JsonType):
        return False
    long = pc.match_substring_regex(array.storage, LONG_NUMBER)
    return any(_holds(json.loads(text), _beyond) for text in array.storage.filter(long).to_pylist())


def _beyond(value: Any) -> bool:
    return type(value) is int and not -(1 << 63) <= value < 1 << 64


def settle(parts: Sequence[pa.ChunkedArray]) -> pa.DataType:
    """The type of a column of the whole set, of its parts. The same however the rows were cut into parts; JSON where no other
    holds all values unchanged.
    """
    kind = merge([p.type for p in parts])
    checked = [p for p in parts if p.type not in (kind, NUMBERS) and not pa.types.is_null(p.type)]
    return kind if kind == JSON or all(fits(p, kind) for p in checked) else JSON


def merge(types: Sequence[pa.DataType]) -> pa.DataType:
    """The type that may hold the values of all of these unchanged (see ``fits``); all-null columns become strings."""
    left = [t for t in dict.fromkeys(types) if not pa.types.is_null(t)]
    if not left:
        return pa.string()
    if left == [_NOTHING]:
        return JSON
    if len(left) == 1:
        return pa.float64() if left == [NUMBERS] else left[0]
    if all(pa.types.is_integer(t) or pa.types.is_floating(t) or t == NUMBERS for t in left):
        if any(pa.types.is_floating(t) or t == NUMBERS for t in left):
            return pa.float64()
        return pa.uint64() if all(pa.types.is_unsigned_integer(t) for t in left) else pa.int64()
    if all(map(_is_list, left)):
        inner = dict.fromkeys(_narrow(t.value_type) for t in left if t != _NOTHING)
        return pa.list_(next(iter(inner))) if len(inner) == 1 else JSON
    if len({_narrow(t) for t in left}) == 1:
        return _narrow(left[0])
    for alike in (pa.types.is_decimal, pa.types.is_duration, pa.types.is_time, pa.types.is_timestamp):
        if all(map(alike, left)) and len({getattr(t, "tz", None) for t in left}) == 1:
            fields = [pa.schema([("", t)]) for t in left]
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError):
                return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    return JSON


def differ(types: Sequence[pa.DataType]) -> bool:
    """Whether parts in which values stand that say a type say different ones."""
    return len({t for t in types if not pa.types.is_null(t) and t != _NOTHING}) > 1


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _narrow(kind: pa.DataType) -> pa.DataType:
    """The type without the width of its offsets, in which the types of two files often differ."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; the one chunk of a mapped file stays where it lies, ``combine_chunks`` would copy it."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.chunks else pa.array([], column.type)


def fits(array: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """False where a value would change in the other type, such as an integer that loses digits as a float."""
    try:
        array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """The array in the set's type; to JSON value by value, and on to its text where the field is marked so."""
    kind = field.type
    if field.metadata == AS_TEXT:
        return cast(array, field.with_type(JSON).remove_metadata()).storage
    if array.type == kind:
        return array
    if array.type == NUMBERS:
        texts = array.storage.to_pylist()
        if kind != JSON:
            return pa.array([None if t is None else float(t) for t in texts], kind)
        said = ["null" if t in _LOST else t for t in texts]
        return pa.ExtensionArray.from_storage(JSON, pa.array(said, pa.string()))
    if isinstance(kind, pa.JsonType):
        return array if isinstance(array.type, pa.JsonType) else as_json(array.to_pylist())
    return array.cast(kind)
