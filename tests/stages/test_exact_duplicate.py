"""Exact duplicates against a dictionary of normal forms."""

import random

from frame import decide, having
from hypothesis import given, settings
from hypothesis import strategies as st

from prefdata.stages.exact_duplicate import ExactDuplicate
from prefdata.text import normal

TEXT = st.sampled_from(["a", "b", "a ", "A", "caf\u00e9", "cafe\u0301", "a\u200b", "x\r\ny", "x\ny", "?", "!"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=40), st.integers(1, 50))
def test_all_but_the_first(rows, batch):
    first: dict[tuple[str, ...], int] = {}
    for i, row in enumerate(rows):
        first.setdefault(tuple(map(normal, row)), i)
    made = decide(rows, ExactDuplicate(), batch=batch)
    for i, row in enumerate(rows):
        earlier = first[tuple(map(normal, row))]
        assert (made.action[i] != 0) == (earlier < i)
        assert made.peer[i] == (earlier if earlier < i else -1)


def test_the_answers_alone_do_not_make_a_duplicate(case):
    ids, rows = case("11-short-answers-and-emoji")
    assert having(decide(rows, ExactDuplicate()), ids, "drop") == ["y5"]


def test_only_flags_when_asked():
    made = decide([("p", "a", "b")] * 3 + [("p", "b", "a")], ExactDuplicate(action="flag"))
    assert made.by_reason() == {"exact_duplicate": {"flag": 2}}


def test_living_rows_only():
    from frame import signals

    rows = [("p", "a", "b")] * 5
    seen = signals(rows, batch=2)
    living = seen.living(seen.index[[1, 2, 4]])
    made = ExactDuplicate().decide(living)
    assert made.peer.tolist() == [-1, 1, 1]


def test_the_order_of_other_rows_does_not_matter():
    rng = random.Random(0)
    rows = [(rng.choice("pq"), rng.choice("ab"), rng.choice("cd")) for _ in range(50)]
    kept = {rows[i] for i in decide(rows, ExactDuplicate()).of("keep").nonzero()[0]}
    assert kept == set(rows)
    assert decide(rows, ExactDuplicate()).count("keep") == len(kept)
