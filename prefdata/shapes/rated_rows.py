"""One answer a row with a score of its own, several rows a prompt (HelpSteer, Prometheus): rows of one prompt are read together.

Pairs are chosen by score as in a list of answers (see ``ranking``). Prompts are the same where their texts, system texts,
tools, images and rubrics are, character by character. Several scores of one answer count by their mean. Of HelpSteer's five
ratings ``helpfulness`` decides, as it does in its authors' own pairs; of other ratings by aspect none does unless it is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prefdata.errors import InputError
from prefdata.pairs import Fault, Pair
from prefdata.shapes import one_answer, ranking
from prefdata.shapes.answers import SCORES, score_of
from prefdata.shapes.columns import PROMPTS, Asked, Columns, Row, Shown, value
from prefdata.shapes.labels import told
from prefdata.shapes.ranking import Answer
from prefdata.shapes.sides import pair_of

SHOWN = (
    Shown("rated_rows", "one answer a row with a score, several rows a prompt", (
        {"prompt": "What do bees make?", "response": "Honey.", "score": 4.5},
        {"prompt": "What do bees make?", "response": "Milk.", "score": [1, 2]},
    )),
    Shown("prometheus", "a rated answer inside an evaluation template", tuple(
        {"instruction": "###Task Description:\nScore it.\n\n###The instruction to evaluate:\nWhat do bees make?\n\n"
         f"###Response to evaluate:\n{answer}\n\n###Score Rubrics:\n[Is it right?]\n\n###Feedback: ", "gpt4_score": score}
        for answer, score in (("Honey.", [5, 4, 5]), ("Milk.", [1, 1, 2]))
    )),
)  # fmt: skip
PARTS = (*one_answer.PARTS, "score")
_SCORES = (
    "orig_score", "gpt4_score", "human_score", "judge_score", *SCORES, "overall", "grade", "stars", "helpfulness",
)  # fmt: skip
_ASPECTS = (
    "correctness", "coherence", "complexity", "verbosity", "honesty", "harmlessness", "truthfulness", "instruction_following",
    "relevance", "accuracy", "fluency", "creativity", "safety", "clarity", "factuality",
)  # fmt: skip
_TEMPLATE = re.compile(
    r"###\s*The instruction to evaluate:\n(.*?)\n\n###\s*Response to evaluate:\n(.*?)\n\n(###\s*(?:Reference|Score|Feedback).*)",
    re.DOTALL,
)
_RUBRIC = re.compile(r"###\s*Score Rubrics?:.*", re.DOTALL)
_MANY = 1000  # rows in which a prompt would stand twice if any did; where there are fewer, these are all


def find(names: Sequence[str], asked: Asked, head: Sequence[Row]) -> Columns | None:
    """An answer, or a text that holds one in a known template, and a column of scores; and a prompt that stands twice."""
    score = asked.columns.get("score") or next((n for n in _SCORES if n in names and _rated(head, n)), None)
    mark = score or next((n for n in _ASPECTS if n in names and _rated(head, n)), None)
    if mark is None:
        return None
    columns = _columns(names, asked, head, mark)
    if columns is None:
        return None
    if score is None:
        some = ", ".join(n for n in _ASPECTS if n in names)
        raise InputError(
            f"which rating says what answer is better is not clear ({some})", hint=f"Name it: --columns score={mark}"
        )
    keys = [found for r in head if (found := key(r, columns)) is not None]
    if len(set(keys)) == len(keys) and len(head) < _MANY:
        raise InputError(
            f"has one rated answer ({columns.named().get('completion', columns['prompt'])}, {score}) for each prompt, "
            "so that there is nothing to compare it with",
            hint="A pair takes two answers to the same prompt.",
        )
    return columns


def _columns(names: Sequence[str], asked: Asked, head: Sequence[Row], score: str) -> Columns | None:
    known = () if "orig_response" in names else (asked.columns.get("prompt", ""), *PROMPTS)
    for name in (n for n in known if n in names):
        if any(isinstance(v := value(r, name), str) and _TEMPLATE.search(v) for r in head[:50]):
            return Columns("rated_rows", {"prompt": name, "score": score}, (name,), (name,), scored=True, grouped=True)
    if (got := one_answer.parts_of(names, asked, head, score)) is None or not got[1]:
        return None
    parts, answer = {**got[0], "score": score}, got[0]["completion"]
    if "orig_criteria" in names:
        parts["rubric"] = "orig_criteria"
    taken = tuple(c for part, c in parts.items() if c in names and part not in ("score", "rubric"))
    return Columns("rated_rows", parts, (answer.split(".")[0],), taken, scored=True, grouped=True)


def _rated(head: Sequence[Row], name: str) -> bool:
    return any(_score(value(r, name)) is not None for r in head)


def _score(given: Any) -> float | None:
    """A score, of a list of them the mean; None where there is none, or something else among them."""
    if not isinstance(given, list):
        return score_of(given)
    found = [n for v in given if (n := score_of(v)) is not None]
    return sum(found) / len(found) if found and len(found) == len(given) else None


def _half(row: Row, columns: Columns) -> Pair | Fault:
    """What the row asks and its answer (see ``one_answer.half``), out of the template where that holds them."""
    if columns["completion"] is not None:
        return one_answer.half(row, columns)
    name = str(columns["prompt"])
    text = value(row, name)
    found = _TEMPLATE.search(text) if isinstance(text, str) else None
    if found is None:
        return Fault("missing_field", f"{name} holds no instruction and response to evaluate")
    got = one_answer.checked(pair_of(found[1], found[2], found[2])[1], row, "the response to evaluate")
    return (
        replace(got, changes=("prompt and answer taken out of an evaluation template",))
        if isinstance(got, Pair)
        else got
    )


def key(row: Row, columns: Columns) -> str | None:
    """The prompt and the rubric of a sound row with a score; other rows stand alone."""
    half = _half(row, columns)
    if isinstance(half, Fault) or _score(value(row, columns["score"])) is None:
        return None
    rubric = value(row, columns["rubric"])
    if columns["completion"] is None and (found := _RUBRIC.search(str(value(row, columns["prompt"])))):
        rubric = found[0]
    return one_answer.key(row, half, rubric)


def read_group(rows: Sequence[Row], columns: Columns, asked: Asked) -> tuple[str, list[Pair | Fault]]:
    """Rows of one prompt: the pairs that their scores give, and a fault for each row that cannot be in one."""
    name = "rated_rows" if columns["completion"] else "prometheus"
    out: list[Pair | Fault] = []
    answers: list[Answer] = []
    halves: dict[int, Pair] = {}
    names = one_answer.told_apart(rows, columns)
    for i, row in enumerate(rows):
        half, given = _half(row, columns), value(row, columns["score"])
        if isinstance(half, Fault):
            out.append(replace(half, members=(i,)))
        elif (score := _score(given)) is None:
            out.append(Fault("missing_label", told(columns["score"], given), (i,)))
        else:
            halves[i] = half
            answers.append(Answer(half.chosen, score, f"answer {i + 1}", {n: row.get(n) for n in names}, i))
    if len(answers) == 1:
        out.append(Fault("unpaired", "no other rated answer to the same prompt", (next(iter(halves)),)))
    elif answers:
        out += ranking.ranked(answers, asked, "the prompt", lambda a, b: one_answer.joined(*_of(halves, a, b)))
    return name, sorted(out, key=lambda one: one.members)


def _of(halves: dict[int, Pair], a: Answer, b: Answer) -> tuple[Pair, Pair, tuple[int, int]]:
    i, j = int(a.member or 0), int(b.member or 0)
    return halves[i], halves[j], (i, j)
