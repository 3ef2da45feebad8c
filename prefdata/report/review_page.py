"""The spot-check as a page of its own, to send to a reviewer: blind, the labels are not in the file at all."""

from __future__ import annotations

from typing import Any

from prefdata.report.model import Example, Report
from prefdata.report.parts import SheetRow
from prefdata.report.render import assets, digest, embedded, environment, for_script
from prefdata.report.sheet import as_it_leaves


def render(report: Report, blind: bool = True) -> str:
    """The page: left and right, and nothing on what was chosen or thought of a pair; ``blind=False``: with labels and reasons."""
    style, script = assets()
    page = environment().get_template("review.html.j2")
    return page.render(
        report=report, alone=True, blind_only=blind, style=style, script=script, style_hash=digest(style),
        script_hash=digest(script), data=embedded(_sealed(report) if blind else _open(report)),
    )  # fmt: skip


def _sealed(report: Report) -> dict[str, Any]:
    """Texts without labels of the pairs that are not dropped; no seed, from which the sides could be told."""
    shown = {r.row: r for r in report.rows}
    asked = [r for r in report.spotcheck.rows if report.spotcheck.strata[r.stratum].state != "dropped"]
    return {
        "sealed": True, "rows": [_unlabelled(shown[r.row], r) for r in asked], "issues": {},
        "sheet": {"id": report.spotcheck.id, "rows": [{"row": r.row, "pd_id": r.pd_id, "key": r.key} for r in asked]},
    }  # fmt: skip


def _unlabelled(pair: Example, asked: SheetRow) -> dict[str, Any]:
    """A pair on the sides that the sheet says."""
    row = for_script(as_it_leaves(pair))
    sides = ["chosen", "rejected"] if asked.left == "chosen" else ["rejected", "chosen"]
    names = {"prompt": "prompt", sides[0]: "left", sides[1]: "right"}
    lengths = {names[side]: n for side, n in row.get("lengths", {}).items() if side in names}
    return {"row": pair.row, "lengths": lengths} | {to: row[side] for side, to in names.items() if side in row}


def _open(report: Report) -> dict[str, Any]:
    """The sheet's pairs and their peers, with all that was found of them."""
    own = {r.row for r in report.spotcheck.rows}
    peers = {m.peer for r in report.rows if r.row in own for m in r.marks}
    return {
        "rows": [for_script(r) for r in report.rows if r.row in own or r.row in peers],
        "issues": {i.key: {"reason": i.reason, "title": i.title, "rows": i.rows} for i in report.issues},
        "sheet": report.spotcheck.model_dump(mode="json"),
    }
