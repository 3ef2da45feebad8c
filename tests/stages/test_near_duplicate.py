"""Near duplicates against every pair of rows compared exactly."""

import itertools
import random
import time

import numpy as np
import pyarrow as pa
import pytest
from frame import decide, having, signals

from prefdata.stages.near_duplicate import NearDuplicate
from prefdata.text import words

rng = random.Random(7)
ENGLISH = ["".join(rng.choices("etaoinshrdlu", k=rng.randrange(3, 9))) for _ in range(1500)]
CHINESE = [
    chr(c) for c in rng.sample(range(0x5000, 0x9000), 1200) if chr(c) not in "不没沒無无非未别別勿莫弗否禁两千萬亿億"
]
THAI = ["".join(chr(rng.randrange(0x0E01, 0x0E2F)) for _ in range(4)) for _ in range(600)]
SPEECH = {"en": (ENGLISH, " "), "zh": (CHINESE, ""), "th": (THAI, "")}


def row(language, dice, sizes=(40, 90, 80)):
    vocabulary, _ = SPEECH[language]
    return [dice.choices(vocabulary, k=n) for n in sizes]


def edited(sides, language, dice, share):
    vocabulary, _ = SPEECH[language]
    return [[dice.choice(vocabulary) if dice.random() < share else w for w in side] for side in sides]


def spoken(sides, language):
    return tuple(SPEECH[language][1].join(side) for side in sides)


@pytest.fixture(scope="module")
def corpus():
    """330 rows, and 300 edits of them from hardly to well beyond the limit."""
    dice = random.Random(11)
    made = [(language, row(language, dice)) for language in ("en", "zh", "th") for _ in range(110)]
    made += [
        (lang, edited(sides, lang, dice, dice.choice([0.01, 0.03, 0.06, 0.12])))
        for lang, sides in dice.sample(made, 300)
    ]
    dice.shuffle(made)
    return [spoken(sides, language) for language, sides in made]


def exact(rows):
    """The lowest index of the three sides and equal content, of every pair of rows that share a word pair."""
    sets = [[pairs_of(words(pa.array([side])).hashes.tolist()) for side in r] for r in rows]
    content = [[int(words(pa.array([side])).content[0]) for side in r] for r in rows]
    for j, i in itertools.combinations(range(len(rows)), 2):
        if content[i] == content[j] and sets[i][1] & sets[j][1]:
            yield j, i, min(len(a & b) / len(a | b) for a, b in zip(sets[i], sets[j], strict=True))


def pairs_of(hashes):
    return set(itertools.pairwise(hashes)) or set(hashes)


def test_recall_and_precision_against_all_pairs(corpus):
    near = {(i, j): score for j, i, score in exact(corpus)}
    limit = 0.8
    made = decide(corpus, NearDuplicate(), batch=137)
    kept = made.of("keep")
    for i in np.flatnonzero(~kept):
        peer = int(made.peer[i])
        assert peer < i
        assert kept[peer]
        assert near[i, peer] >= limit
        assert made.score[i] == pytest.approx(near[i, peer])
    lost = [(i, j) for (i, j), s in near.items() if s >= limit and kept[i] and kept[j]]
    found = int((~kept).sum())
    assert found > 100
    assert len(lost) <= 0.01 * found


def test_batches_do_not_matter(corpus):
    some = [decide(corpus[:300], NearDuplicate(), batch=b) for b in (7, 300)]
    assert np.array_equal(some[0].action, some[1].action)
    assert np.array_equal(some[0].score, some[1].score, equal_nan=True)
    assert np.array_equal(some[0].peer, some[1].peer)


def test_scripts_without_spaces(case):
    ids, rows = case("10-near-duplicates-without-spaces")
    made = decide(rows, NearDuplicate())
    assert having(made, ids, "drop") == ["z2", "t2"]
    assert [ids[p] for p in made.peer[made.of("drop")]] == ["z1", "t1"]


def test_short_answers_are_no_evidence(case):
    ids, rows = case("11-short-answers-and-emoji")
    assert having(decide(rows, NearDuplicate()), ids, "drop") == ["y5"]
    long = "please answer with a single word and nothing else whatever you think of it, is the following creature a "
    assert decide([(long + "cat", "Yes", "Maybe"), (long + "dog", "Yes", "Maybe")], NearDuplicate()).count("drop") == 0


def test_a_template_is_no_duplicate(case):
    _, rows = case("12-template-is-not-duplicate")
    assert decide(rows, NearDuplicate()).count("drop") == 0


@pytest.mark.parametrize("file", ["chain.jsonl", "chain_reversed.jsonl"])
def test_a_chain_does_not_collapse(case, file):
    ids, rows = case("13-chain-of-near-duplicates", file)
    made = decide(rows, NearDuplicate())
    kept = having(made, ids, "keep")
    assert {"r01", "r18"} <= set(kept)
    assert 4 < len(kept) < 18
    for i in np.flatnonzero(made.of("drop")):
        assert ids[made.peer[i]] in kept
        assert made.score[i] >= 0.8


@pytest.mark.parametrize(
    ("one", "other"), [("seven", "eight"), ("really", "not"), ("`sort`", "`sorted`"), ("12", "21"), ("+", "-5")]
)
def test_numbers_negation_and_code_are_content(one, other):
    dice = random.Random(1)
    p, c, r = spoken(row("en", dice), "en")
    assert decide([(p, c + " " + one, r), (p, c + " " + other, r)], NearDuplicate()).count("drop") == 0
    assert decide([(p, c + " " + one, r), (p, c + " " + one + " ok", r)], NearDuplicate()).count("drop") == 1


def test_swapped_answers_are_no_duplicate():
    dice = random.Random(2)
    sides = row("en", dice)
    p, a = spoken(sides[:2], "en")
    b = spoken([edited([sides[1]], "en", dice, 0.03)[0]], "en")[0]
    c = spoken([edited([sides[1]], "en", dice, 0.03)[0]], "en")[0]
    assert decide([(p, a, b), (p, b, a)], NearDuplicate()).count("drop") == 0
    assert decide([(p, a, b), (p, a + " ok", b)], NearDuplicate()).count("drop") == 1
    assert decide([(p, a, b), (p, c, a + " ok")], NearDuplicate()).count("drop") == 0


def test_threshold_and_action():
    dice = random.Random(3)
    sides = row("en", dice)
    rows = [spoken(sides, "en"), spoken(edited(sides, "en", dice, 0.05), "en")]
    score = float(decide(rows, NearDuplicate(threshold=0.5)).score[1])
    assert 0.5 < score < 1
    assert decide(rows, NearDuplicate(threshold=score - 0.01)).count("drop") == 1
    assert decide(rows, NearDuplicate(threshold=min(1, score + 0.01))).count("drop") == 0
    assert decide(rows, NearDuplicate(threshold=0.5, action="flag")).by_reason() == {"near_duplicate": {"flag": 1}}


def test_one_bucket_of_thousands():
    dice = random.Random(4)
    sides, n = row("en", dice, (40, 60, 60)), 3000
    same = [spoken(edited(sides, "en", dice, 0.01), "en") for _ in range(n)]
    apart = [spoken([*sides[:2], row("en", dice, (60,))[0]], "en") for _ in range(n)]
    for rows, least, said in ((same, n * 0.95, False), (apart, 0, True)):
        seen, start = signals(rows, NearDuplicate()), time.process_time()
        made = NearDuplicate().decide(seen)
        assert time.process_time() - start < 10
        assert made.count("drop") >= least
        assert made.findings or not said
