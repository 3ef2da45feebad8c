"""Pairs of invented sentences whose labels are known: kind answers win over curt ones, by so much and so often."""

import math
import random

_FILL = (
    "people often keep them near the old house because every summer their neighbours ask about it and nobody remembers where the "
    "first one stood or who had brought such things along the road"
)
_NAMED = "bread rain boats wool tea maps clocks bridges gardens bees salt glass paper trains music soil bells lamps"
_NEAR = "winter spring town school Norway Peru Kenya Japan office kitchen"
FILL, TOPICS, PLACES = _FILL.split(), _NAMED.split(), _NEAR.split()
ASKS = ("How do people make {} in {}", "Explain {} to a child from {}", "Write about {} and {}", "What of {} by the {}")
KIND = (
    "certainly", "happy to help", "for example", "first of all", "please note", "in detail", "thank you", "step by step",
)  # fmt: skip
CURT = (
    "whatever", "dunno", "who cares", "obviously", "just google it", "boring", "no idea", "stupid question",
)  # fmt: skip
MARKS = 4


def prompt(rng):
    """A question; hardly two are alike."""
    asked = rng.choice(ASKS).format(rng.choice(TOPICS), rng.choice(PLACES))
    return f"{asked} {' '.join(rng.choices(FILL, k=5))}?"


def said(rng, least=18, most=40, marks=()):
    """An answer of so many words, with these phrases somewhere in it."""
    words = rng.choices(FILL, k=rng.randint(least, most))
    for mark in marks:
        words.insert(rng.randrange(len(words)), mark)
    return " ".join(words).capitalize() + "."


def pairs(n, beta=2.0, flips=0.0, seed=0, of_prompt=3):
    """``(rows, wrong)``: n rows (prompt, chosen, rejected), ``of_prompt`` of each prompt, and which labels were turned round.

    Each answer has 0 to 4 kind phrases and curt ones up to 4; one that has k more wins with probability 1 / (1 + exp(-beta k)).
    With a ``beta`` of infinity the kinder one always wins, and no two are equally kind.
    """
    rng = random.Random(seed)
    rows, wrong, asked = [], [], ""
    for i in range(n):
        if i % of_prompt == 0:
            asked = prompt(rng)
        a, b = rng.sample((0, MARKS), 2) if math.isinf(beta) else (rng.randint(0, MARKS), rng.randint(0, MARKS))
        one, two = (said(rng, marks=[*rng.sample(KIND, k), *rng.sample(CURT, MARKS - k)]) for k in (a, b))
        first = a > b if math.isinf(beta) else rng.random() < 1 / (1 + math.exp(-beta * (a - b)))
        better, worse = (one, two) if first else (two, one)
        wrong.append(rng.random() < flips)
        rows.append((asked, *((worse, better) if wrong[-1] else (better, worse))))
    return rows, wrong


def dicts(rows, **columns):
    """The rows as a user has them, with further columns."""
    return [
        {"id": f"r{i}", "prompt": p, "chosen": c, "rejected": r, **{n: v[i] for n, v in columns.items()}}
        for i, (p, c, r) in enumerate(rows)
    ]
