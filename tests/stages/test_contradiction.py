"""Contradictions: planted ones are found, nothing else is, and what is left has no cycle."""

import graphlib
import itertools
import random
import time
from collections import Counter

import numpy as np
import pytest
from frame import decide, having, signals
from hypothesis import given, settings
from hypothesis import strategies as st
from written import dropped, write_lines

from prefdata import acyclic
from prefdata.errors import ConfigError
from prefdata.stages.contradiction import Contradiction

NAMES = ["Walk.", "Swim.", "Stretch.", "Dance.", "Sleep.", "Read.", "Rest."]
VOTE = st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda v: v[0] != v[1])


def votes(pairs, prompt="Suggest one habit."):
    return [(prompt, NAMES[a], NAMES[b]) for a, b in pairs]


def assert_acyclic(edges):
    sorter = graphlib.TopologicalSorter()
    for a, b in edges:
        sorter.add(b, a)
    sorter.prepare()


def cheapest(counts):
    """The least number of votes to drop, over all orders, once votes both ways are settled."""
    settled = {e: n for e, n in counts.items() if n > counts.get(e[::-1], 0)}
    lost = sum(n for e, n in counts.items() if e not in settled)
    nodes = sorted({n for e in counts for n in e})
    return lost + min(
        sum(n for (a, b), n in settled.items() if order.index(a) > order.index(b))
        for order in itertools.permutations(nodes)
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(VOTE, min_size=1, max_size=14), st.randoms(use_true_random=False))
def test_least_cost_no_cycle_and_no_matter_the_order(pairs, dice):
    rows = votes(pairs)
    made = decide(rows, Contradiction())
    kept = made.action < 2
    assert_acyclic({p for p, k in zip(pairs, kept, strict=True) if k})
    assert (~kept).sum() == cheapest(Counter(pairs))
    order = list(range(len(rows)))
    dice.shuffle(order)
    again = decide([rows[i] for i in order], Contradiction(), batch=3)
    assert np.array_equal(again.action, made.action[order])
    assert np.array_equal(again.score, made.score[order], equal_nan=True)
    words = [[None if r < 0 else m.reasons[r] for r in m.reason] for m in (made, again)]
    assert words[1] == [words[0][i] for i in order]
    for i in np.flatnonzero(made.action):
        assert made.peer[i] >= 0
        assert made.peer[i] != i


def planted(dice):
    """Rows without contradiction, and the numbers of those planted ones that must be looked at."""
    rows, wrong = [], set()
    for p in range(60):
        answers = [f"answer {p} " + "".join(dice.choices("abcdefgh ", k=30)) for _ in range(6)]
        order = list(itertools.combinations(answers, 2))
        rows += [(f"prompt {p}", a, b) for a, b in dice.sample(order, dice.randrange(1, 12))]
    for p in range(60, 100):
        n = dice.randrange(2, 7)
        answers = [f"answer {p} " + "".join(dice.choices("abcdefgh ", k=30)) for _ in range(n)]
        wrong |= set(range(len(rows), len(rows) + n))
        rows += [(f"prompt {p}", a, b) for a, b in zip(answers, [*answers[1:], answers[0]], strict=True)]
    return rows, wrong


@pytest.mark.parametrize("seed", range(3))
def test_planted_ones_and_no_others(seed):
    rows, wrong = planted(random.Random(seed))
    made = decide(rows, Contradiction(), batch=50)
    assert set(np.flatnonzero(made.action).tolist()) == wrong
    assert not made.findings


def test_votes_both_ways(case):
    ids, rows = case("08-contradictory-pairs")
    made = decide(rows, Contradiction())
    assert having(made, ids, "drop") == ["c1", "c2", "v4"]
    assert having(made, ids, "flag") == ["v1", "v2", "v3"]
    assert made.score.tolist() == [0.5, 0.5, 0, 0.25, 0.25, 0.25, 0.75]


def test_cycle_inside_one_prompt(case):
    ids, rows = case("09-preference-cycle")
    made = decide(rows, Contradiction())
    assert len(having(made, ids, "drop")) == 1
    assert set(np.flatnonzero(made.action)) == {0, 1, 2}
    assert made.by_reason() == {"cycle": {"drop": 1, "flag": 2}}


BASE = "rinse the rice in cold water until it runs clear then simmer it slowly with the lid on for a good while and let it rest"
BAD = "put the rice in a dry pan on high heat and walk away from the stove until the smoke tells you that dinner is finally done"


def test_near_answers_are_one_answer():
    near = BASE + " well"
    assert decide([("p", BASE, BAD), ("p", BAD, near)], Contradiction()).count("drop") == 2
    assert decide([("p", BASE, BAD), ("p", BAD, near)], Contradiction(near=1)).count("drop") == 0
    assert decide([("p", BASE, BAD), ("q", BAD, near)], Contradiction()).count("drop") == 0
    assert decide([("p", BASE + " 5", BAD), ("p", BAD, BASE + " 6")], Contradiction()).count("drop") == 0


def test_near_sides_of_a_pair_stay_apart():
    near = BASE + " well"
    assert not decide([("p", BASE, near), ("p", BASE, BAD), ("p", near, BAD)], Contradiction()).action.any()
    assert decide([("p", BASE, near), ("p", near, BASE)], Contradiction()).count("drop") == 2


def test_what_is_not_asked_here():
    assert not decide([("p", "a", "a"), ("p", "a", "b"), ("p", "b", "c")], Contradiction()).action.any()
    assert not decide([("p", "a", "b")] * 4, Contradiction()).action.any()


def test_scores():
    rows = [(f"p{i}", "a", "b") for i in range(4)]
    scores = {"score_chosen": [8.0, 7.0, 3.0, None], "score_rejected": [8.0, 3.0, 9.0, 1.0]}
    assert decide(rows, Contradiction(), **scores).by_reason() == {"score_inverted": {"flag": 1}}
    assert not decide(rows, Contradiction(inverted="keep"), **scores).action.any()


def test_only_flags_when_asked():
    made = decide(votes([(0, 1), (1, 0), (1, 2), (2, 3), (3, 1)]), Contradiction(action="flag"))
    assert made.count("drop") == 0
    assert made.count("flag") == 5


def test_large_prompt_in_seconds():
    dice = random.Random(0)
    answers = [
        " ".join(dice.choices(["sun", "moon", "star", "sky", "sea", "hill", "tree", "leaf"], k=20)) for _ in range(1500)
    ]
    rows = [("p", *dice.sample(answers, 2)) for _ in range(6000)]
    seen, start = signals(rows), time.process_time()
    made = Contradiction().decide(seen)
    assert time.process_time() - start < 20
    assert_acyclic({r[1:] for r, a in zip(rows, made.action, strict=True) if a < 2})


def graphs(dice, n):
    for a, b in itertools.combinations(range(n), 2):
        if dice.random() < 0.8:
            yield ((a, b) if dice.random() < 0.5 else (b, a)), dice.randrange(1, 4)


@pytest.mark.parametrize("exact", [acyclic.EXACT, 1])
def test_feedback_against_all_orders(exact, monkeypatch):
    monkeypatch.setattr(acyclic, "EXACT", exact)
    dice, above = random.Random(5), 0
    for _ in range(60):
        edges = dict(graphs(dice, dice.randrange(3, 7)))
        out = acyclic.feedback(edges)
        assert_acyclic(edges.keys() - out.keys())
        for edge, path in out.items():
            assert [path[0][0], path[-1][1]] == [edge[1], edge[0]]
            assert all(a[1] == b[0] for a, b in itertools.pairwise(path))
            assert edges.keys() - out.keys() >= set(path)
        above += sum(edges[e] for e in out) - cheapest_edges(edges)
    assert above <= (0 if exact > 1 else 3)


def cheapest_edges(edges):
    nodes = sorted({n for e in edges for n in e})
    return min(
        (sum(n for (a, b), n in edges.items() if o.index(a) > o.index(b)) for o in itertools.permutations(nodes)),
        default=0,
    )


def test_sides_that_are_near_each_other_are_nobody_elses():
    """Both rows prefer an answer to a light edit of it; which edit is nearer to which says nothing about the labels."""
    words = [f"word{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(200)]
    text = " ".join(words)
    rows = []
    for n in range(12):  # which text comes first is a matter of hashes: try several
        first, other = f"{text} end{chr(97 + n)}x", f"{text} anyone end{chr(97 + n)}x"
        less = first.replace(words[20] + " ", "")
        also = other.replace(words[20] + " ", "").replace(words[50], "religion").replace(words[80], "substance")
        rows += [(f"prompt {n}", first, less), (f"prompt {n}", other, also)]
    assert decide(rows, Contradiction()).count("drop") == 0


def test_small_margins():
    """Ahead by less than the limit; the limit itself stays, and so does the wrong way round, which has its own word."""
    rows = [(f"p{i}", "a", "b") for i in range(6)]
    scores = {"score_chosen": [8.0, 8.0, 8.0, 3.0, 5.0, None], "score_rejected": [7.75, 7.5, 8.0, 9.0, 1.0, 1.0]}
    made = decide(rows, Contradiction(min_margin=0.5), **scores)
    words = [None if r < 0 else made.reasons[r] for r in made.reason]
    assert words == ["small_margin", None, "small_margin", "score_inverted", None, None]
    assert made.action.tolist() == [2, 0, 2, 1, 0, 0] and np.isnan(made.score[0])
    assert [(f.name, f.value, f.n) for f in made.findings] == [("margin_unknown", 1, 6)]
    flagged = decide(rows, Contradiction(min_margin=0.5, action="flag"), **scores)
    assert flagged.by_reason()["small_margin"] == {"flag": 2}
    assert "small_margin" not in decide(rows, Contradiction(), **scores).by_reason()


def test_a_pair_dropped_for_its_margin_has_no_vote():
    rows = [("p", "a", "b"), ("p", "b", "a")]
    scores = {"score_chosen": [5.1, 9.0], "score_rejected": [5.0, 1.0]}
    assert decide(rows, Contradiction(), **scores).count("drop") == 2
    made = decide(rows, Contradiction(min_margin=1), **scores)
    assert made.action.tolist() == [2, 0] and made.by_reason() == {"small_margin": {"drop": 1}}
    assert decide(rows, Contradiction(min_margin=1, action="flag"), **scores).by_reason() == {
        "contradiction": {"flag": 2}
    }


def test_a_margin_without_scores_is_refused():
    for scores in ({}, {"score_chosen": [1.0, None], "score_rejected": [None, 1.0]}):
        with pytest.raises(ConfigError, match="no pair has two scores"):
            decide([("p", "a", "b"), ("q", "a", "b")], Contradiction(min_margin=0.5), **scores)


def test_min_margin_of_the_command_line(cli, tmp_path):
    rows = [
        {"prompt": "What do bees make?", "chosen": "Honey.", "rejected": "Milk.", "score_chosen": 4, "score_rejected": 3.5},
        {"prompt": "Where do owls sleep?", "chosen": "In trees.", "rejected": "At sea.", "score_chosen": 4, "score_rejected": 1},
    ]  # fmt: skip
    path = write_lines(tmp_path / "rows.jsonl", rows)
    ended = cli("clean", path, tmp_path / "out", "--min-margin", 1)
    assert ended.code == 0 and "small_margin 1" in ended.out
    (lost,) = dropped(tmp_path / "out")
    assert lost["pd_code"] == "small_margin" and lost["score_chosen"] - lost["score_rejected"] == 0.5
    assert "small_margin" not in cli("audit", path, "--min-margin", 0.5).out
    write_lines(path, [{k: r[k] for k in ("prompt", "chosen", "rejected")} for r in rows])
    for argv in (
        ("--min-margin", 1),
        ("--min-margin", "nan"),
        ("--min-margin", -1),
        ("--min-margin", 1, "--skip", "contradiction"),
    ):
        ended = cli("audit", path, *argv)
        assert ended.code == 2 and "min" in ended.err and "Traceback" not in ended.err, argv
    assert cli("audit", path, "--min-margin", 0).code == 0
