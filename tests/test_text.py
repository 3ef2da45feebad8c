"""Normal forms and their hashes."""

import unicodedata

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from prefdata.text import keys, normal


def key(value):
    return int(keys([value], pa.array([value], pa.string()))[0])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=20))
@settings(max_examples=300)
def test_a_key_is_the_hash_of_the_normal_form(values):
    expected = [xxhash.xxh3_64_intdigest(normal(v).encode()) for v in values]
    assert keys(values, pa.array(values, pa.string())).tolist() == expected


def test_every_character_takes_the_way_it_needs():
    """The quick way leaves texts alone: it may not be taken by any character that the normal form changes."""
    alone = [f"a{chr(i)}b" for i in range(0x30000) if not 0xD800 <= i < 0xE000]
    joined = [unicodedata.normalize("NFD", v) for v in alone]
    for values in (alone, joined):
        got = keys(values, pa.array(values, pa.string())).tolist()
        wrong = [v for v, k in zip(values, got, strict=True) if k != xxhash.xxh3_64_intdigest(normal(v).encode())]
        assert wrong == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("café", "cafe\u0301"),
        ("a\nb", "a\r\nb"),
        ("a\nb", "a \t\nb"),
        ("The Baltic Sea.", "The Baltic\u200b Sea."),
        ("ab", "a\u200db"),
        ("ab", " ab\n"),
    ],
)
def test_the_same_text_in_other_bytes(one, other):
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Turkey", "turkey"), ("42", "42."), ("a b", "a  b"), ("👍🏽", "👍"), ("👨\u200d👩", "👨👩"), ("a\n  b", "a\nb")],
)
def test_a_difference_that_counts(one, other):
    assert key(one) != key(other)
