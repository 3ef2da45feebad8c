"""One answer a row with a score of its own, several rows a prompt (HelpSteer, Prometheus): rows of one prompt are read together.

Pairs are chosen by score as in a list of answers (see ``ranking``). Prompts are the same where their texts, system texts,
tools, images and rubrics are, character by character. Several scores of one answer count by their mean. Of HelpSteer's five
ratings ``helpfulness`` decides, as it does in its authors' own pairs; of other ratings by aspect none does unless it is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from prefdata.errors import InputError
from prefdata.pairs import Fault, Pair
from prefdata.shapes import one_answer
from prefdata.shapes.answers import SCORES, Answer, mean, ranked, score_of
from prefdata.shapes.columns import PROMPTS, Asked, Columns, Parts, Row, Shown, value
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
            parts: Parts = {"prompt": name, "score": score}
            return Columns.of("rated_rows", names, parts, (name,), scored=True, grouped=True)
    if (got := one_answer.parts_of(names, asked, head, score)) is None or not got[1]:
        return None
    rubric = {"rubric": "orig_criteria"} if "orig_criteria" in names else {}
    parts = {**got[0], "score": score, **rubric}
    return Columns.of("rated_rows", names, parts, (got[0]["completion"],), scored=True, grouped=True)


def _rated(head: Sequence[Row], name: str) -> bool:
    return any(_score(value(r, name)) is not None for r in head)


def _score(given: Any) -> float | None:
    """A score, of a list of them the mean; None where there is none, or something else among them."""
    return mean([score_of(v) for v in given]) if isinstance(given, list) else score_of(given)


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
    if isinstance(got, Pair):
        got.changes = ("prompt and answer taken out of an evaluation template",)
    return got


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
    halves, out = one_answer.halves(rows, str(columns["score"]), lambda row: _half(row, columns), _score)
    told_of = one_answer.told_apart(rows, columns)
    answers = [Answer(half, score, f"answer {i + 1}", told_of[i], i) for i, (half, score) in halves.items()]
    if len(answers) == 1:
        out.append(Fault("unpaired", "no other rated answer to the same prompt", (min(halves),)))
    elif answers:
        out += ranked(answers, asked, "the prompt", lambda a, b: one_answer.joined(a.side, b.side))
    return name, sorted(out, key=lambda one: one.members)
