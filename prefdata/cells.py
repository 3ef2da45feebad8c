"""Carried columns as labels or as numbers, whatever their type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from prefdata.pairs import dump


def find(columns: Mapping[str, pa.Array], name: str) -> pa.Array | None:
    """The column of that name, or the value inside of one (``meta.domain``); None where there is none."""
    if name in columns:
        return columns[name]
    head, _, rest = name.partition(".")
    column = columns.get(head)
    if column is None or not rest:
        return None
    if pa.types.is_struct(column.type):
        return find({f.name: pc.struct_field(column, f.name) for f in column.type}, rest)
    if isinstance(column.type, pa.JsonType):
        return _each(column.storage, lambda text: _label(_inside(orjson.loads(text), rest)))
    return None


def labels(column: pa.Array) -> pa.StringArray:
    """Each value as a trimmed text: numbers as they are written, lists and objects as JSON; blank and NaN are null."""
    kind = column.type
    if isinstance(kind, pa.JsonType):
        column = _each(column.storage, lambda text: _label(orjson.loads(text)))
    elif pa.types.is_nested(kind):
        column = pa.array([_label(v) for v in column.to_pylist()], pa.string())
    elif pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), None, column)
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Each value as a number, texts that spell one too; NaN for all else."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    texts = labels(column).dictionary_encode()
    values = np.array([*map(_number, texts.dictionary.to_pylist()), np.nan])
    return np.asarray(values[texts.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)])


def _each(texts: pa.Array, turned: Any) -> pa.Array:
    """A function of every different text."""
    coded = texts.cast(pa.string()).dictionary_encode()
    return pa.array([turned(t) for t in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _inside(value: Any, path: str) -> Any:
    if not isinstance(value, dict) or not path:
        return None if path else value
    if path in value:
        return value[path]
    head, _, rest = path.partition(".")
    return _inside(value.get(head), rest) if rest else None


def _label(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return None if isinstance(value, float) and math.isnan(value) else dump(value)


def _number(text: str) -> float:
    try:
        return float({"true": "1", "false": "0"}.get(text, text))
    except ValueError:
        return math.nan
