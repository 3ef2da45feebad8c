"""Real wrong labels of known truth: the votes of language models as judges on pairs whose better answer is known.

Expects rows ``{input, output_1, output_2, gold: 1|2, votes: [{judge, order, vote: 1|2|null}]}``, votes in the order of the columns.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from prefdata.bench import faults
from prefdata.bench.detector import STAGE, Detector
from prefdata.bench.public_sets import read_set
from prefdata.bench.quality import ranking
from prefdata.bench.tables import markdown, number
from prefdata.errors import InputError
from prefdata.noise.annotators import Votes, dawid_skene, majority
from prefdata.noise.ruling import Ruling

FILE = "llmbar/judge_votes_with_gold.jsonl.gz"
Floats = npt.NDArray[np.float64]


def measure(data: Path, work: Path) -> dict[str, Any]:
    """Accuracy of majority and of Dawid-Skene, and whether the classifier, fitted to the labels that each gives, adds to it.

    ``alone`` is the AUROC of "this label is wrong" by the votes alone, ``classifier`` by the classifier, ``both`` by the ``flip_prob`` that
    the stage makes of them; ``right`` is the share of gold labels that each has right, ``signal`` the gate's verdict.
    """
    path = data / FILE
    if not path.is_file():
        raise InputError("is not there", where=str(path))
    items = [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    # The row number goes along as a column: pairs that are left out leave their votes out too.
    rows = [
        {"prompt": r["input"], "chosen": r["output_1"], "rejected": r["output_2"], "number": i}
        for i, r in enumerate(items)
    ]
    pairs = read_set("judges", rows, work, faults.pipeline(STAGE))
    kept = [items[int(i)] for i in pairs.column("number") or []]
    gold = np.array([1 if r["gold"] == 1 else -1 for r in kept])
    # A judge asked in the other order is another annotator: what it has is a taste for a place, not for an answer.
    votes = Votes.of([
        {f"{v['judge']} {v['order']}": 1 if v["vote"] == 1 else -1 for v in r["votes"] if v["vote"] is not None} for r in kept
    ])  # fmt: skip
    detector = Detector.of(pairs)
    out: dict[str, Any] = {"n": len(kept), "votes": len(votes.vote), "judges": len(np.unique(votes.annotator))}
    for name, share in (("majority", majority(votes)), ("dawid_skene", dawid_skene(votes).right)):
        out[name] = _judged(share, gold, detector)
    return out


def _judged(share: Floats, gold: npt.NDArray[np.int64], detector: Detector) -> dict[str, Any]:
    """``share`` (n,): how sure the votes are that the first answer is better. A tie is no label and counts one half right."""
    label = np.where(share > 0.5, 1, -1)
    right = np.where(share == 0.5, 0.5, label == gold)
    wrong = label != gold
    found = detector.detect(label < 0)
    doubt = np.clip(np.where(label > 0, 1 - share, share), 1e-6, 1 - 1e-6)  # how likely the votes think the label wrong
    ruling = Ruling.of(found.margins, found.side, found.group, wrong=doubt)
    turned = np.where(ruling.flip > 0.5, -label, label)
    return {
        "right": float(right.mean()), "signal": found.signal, "right_both": float((turned == gold).mean()),
        "alone": ranking(wrong, doubt)["auroc"], "classifier": ranking(wrong, -found.margins)["auroc"],
        "both": ranking(wrong, ruling.flip)["auroc"],
    }  # fmt: skip


def section(found: dict[str, Any]) -> list[str]:
    """The figures as lines of Markdown."""
    said = (
        f"{found['votes']:,} votes of {found['judges']} judges (a judge in another order is another one) on {found['n']} pairs. The label "
        'is what the votes say, the truth is gold. AUROC is of "this label is wrong".'
    )
    return [said, "", *markdown(
        "label by, right, AUROC of the votes, of the classifier, of both, signal, right with both",
        (
            [name.replace("_", "-"), number(found[name]["right"]), *(number(found[name][k]) for k in ("alone", "classifier", "both")),
             "yes" if found[name]["signal"] else "no_signal", number(found[name]["right_both"])]
            for name in ("majority", "dawid_skene")
        ),
    )]  # fmt: skip
