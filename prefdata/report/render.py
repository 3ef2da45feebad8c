"""From a Report to one page that needs nothing else: charts are measured here, markup is in the templates."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from prefdata.pairs import readable
from prefdata.report.compare import FILTERS, as_now
from prefdata.report.model import Example, FindingReport, Report
from prefdata.report.numbers import nice
from prefdata.report.parts import Dimension, Histogram, Share

HOME = Path(__file__).parent / "templates"
JSDIFF = "vendor/jsdiff-9.0.0.min.js"
JSDIFF_SHA256 = "b51a9d2885f2c090dc97b981027395f7e7e6558a46c75ae3747db267913a89ab"
COMPARED = 10  # pairs of each kind in section 10
WIDTH, HEIGHT, BASE = 520.0, 150.0, 128.0

# What a reader cannot see or what turns text round; joiners only where they hide (after a Latin letter).
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<=[\u0000-\u024f])[\u200c\u200d]"
)


def visible(text: str) -> str:
    """The text with every unseen character spelled as ``⟨U+200B⟩``."""
    return UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def count(value: float) -> str:
    """A whole number with thousands set apart."""
    return f"{value:,.0f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as ``18.1 %``; a share that is neither none nor all is never shown as 0 or 100."""
    if value is None:
        return "–"
    text = f"{100 * value:.{digits}f}"
    if 0 < value < 1 and float(text) in (0.0, 100.0):
        sign, bound = ("<", 10**-digits) if value < 0.5 else (">", 100 - 10**-digits)
        return f"{sign}\u202f{bound:.{digits}f}\u00a0%"
    return f"{text}\u00a0%"


def change(value: int) -> str:
    """A difference with its sign; none is a dash."""
    return f"+{value:,}" if value > 0 else f"−{-value:,}" if value else "–"


def points(value: float | None) -> str:
    """A difference of two shares in percentage points, with its sign."""
    if value is None:
        return "–"
    text = f"{100 * abs(value):.1f}"
    return "0.0" if text == "0.0" else f"{'+' if value > 0 else '−'}{text}"


def interval(share: Share | Mapping[str, Any]) -> str:
    """The bounds of a share, of the report's own or as a file holds it: ``57.2–67.2 %``."""
    low, high = (share["low"], share["high"]) if isinstance(share, Mapping) else (share.low, share.high)
    return "–" if low is None or high is None else f"{100 * low:.1f}–{100 * high:.1f}\u00a0%"


def number(value: Any) -> str:
    """A score or a finding's value, short."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{int(value):,}" if value == int(value) else f"{value:,.4g}"


def megabytes(value: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return ""


def chart(data: Histogram, across: str = "scored") -> dict[str, Any]:
    """Positions of bars, ticks and the limit line in a drawing of fixed size."""
    peak = max([*data.before, *data.after, 1])
    n, low, high = len(data.before), data.edges[0], data.edges[-1]
    slot = WIDTH / n

    def at(value: float) -> float:
        return round((value - low) / (high - low) * WIDTH, 2)

    def bars(counts: list[int], inset: float) -> list[dict[str, float]]:
        tall = [max(1.5, c / peak * (BASE - 8)) for c in counts]
        return [
            {"x": round(i * slot + inset * slot, 2), "y": round(BASE - tall[i], 2),
             "w": round(slot * (1 - 2 * inset), 2), "h": round(tall[i], 2)}
            for i, c in enumerate(counts) if c
        ]  # fmt: skip

    ticks, step = [], nice((high - low) / 5)
    for k in range(math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6) + 1):
        x = at(k * step)
        anchor = "start" if x < 20 else "end" if x > WIDTH - 20 else "middle"
        ticks.append({"x": x, "text": f"{k * step:,.6g}", "anchor": anchor})
    limit = None if data.limit is None else at(data.limit)
    return {
        "width": WIDTH, "height": HEIGHT, "base": BASE,
        "before": bars(data.before, 0.06), "after": bars(data.after, 0.27), "ticks": ticks, "limit": limit,
        "zone": None if limit is None or not data.drops
        else {"x": limit, "w": round(WIDTH - limit, 2)} if data.drops == "above" else {"x": 0, "w": limit},
        "below": data.below / data.n_before, "above": data.above / data.n_before, "peak": peak,
    }  # fmt: skip


def spread(dimension: Dimension) -> list[dict[str, Any]]:
    """Lengths of the bars of a dimension, as parts of the longest one."""
    longest = max(max(v.before_share, v.after_share or 0, v.target or 0) for v in dimension.values)
    return [
        {"value": v, "before": v.before_share / longest, "after": (v.after_share or 0) / longest, "target": v.target and v.target / longest}
        for v in dimension.values
    ]  # fmt: skip


def compared(findings: Sequence[FindingReport]) -> list[dict[str, Any]]:
    """Accuracies that were found over all sound pairs and over the kept ones, side by side; ``told`` is the later one."""
    found: dict[str, dict[str, FindingReport]] = {}
    for finding in findings:
        if finding.covers is not None:
            found.setdefault(finding.name, {})[finding.when] = finding
    return [
        {"name": name, "before": by.get("all"), "after": by.get("kept"), "told": by.get("kept") or by["all"]}
        for name, by in found.items()
    ]  # fmt: skip


def embedded(value: Any) -> str:
    """JSON that no parser of HTML can leave: ``<`` and the two odd line ends are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def for_script(example: Example) -> dict[str, Any]:
    """A row for the page's script: no empty entries, roles of messages spelled out."""
    row = {k: v for k, v in example.model_dump().items() if v not in (None, "", [], {})}
    row.update({k: readable(row[k]) for k in ("prompt", "chosen", "rejected") if k in row})
    return row


@cache
def assets() -> tuple[str, str]:
    """The page's one style and one script, with the licence of the part that is not ours."""
    names = ("style.css", "spotcheck.css", "compare.css", JSDIFF, "script.js", "spotcheck.js", "compare.js")
    read = [(HOME / name).read_text("utf-8").replace("\r\n", "\n") for name in names]
    style, jsdiff, script = "\n".join(read[:3]), read[3], "\n".join(read[4:])
    if hashlib.sha256(jsdiff.encode()).hexdigest() != JSDIFF_SHA256:
        raise ValueError(f"{JSDIFF} is not the file that was reviewed")
    licence = (HOME / "vendor/jsdiff-LICENSE.txt").read_text("utf-8")
    return style, f"/*! jsdiff 9.0.0, https://github.com/kpdecker/jsdiff\n\n{licence}*/\n{jsdiff}\n{script}"


def digest(text: str) -> str:
    """What a content security policy knows an inline style or script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def environment() -> jinja2.Environment:
    """Templates that escape what they print and refuse unknown names, with the filters of the report."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HOME), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(
        n=count, pct=percent, interval=interval, change=change, num=number, size=megabytes, visible=visible,
        readable=readable, chart=chart, compared=compared, spread=spread, points=points, **FILTERS,
    )  # fmt: skip
    return made


def render(
    report: Report, run: Mapping[str, Any], rows: bool = True, review: Mapping[str, Any] | None = None,
    compare: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """The page; ``run`` holds what differs between runs (time, engine), ``rows=False`` leaves texts out.

    ``review`` is ``audit/review.json`` (shown where it is of this sheet), ``compare`` ``audit/compare.json``.
    """
    if review is not None and review.get("sheet") != report.spotcheck.id:
        review = None
    style, script = assets()
    shown = report.rows if rows else []
    data = {
        "rows": [for_script(r) for r in shown],
        "issues": {i.key: {"reason": i.reason, "title": i.title, "rows": i.rows} for i in report.issues},
        "scales": {s.key: s.scale for s in report.stages},
        "cut": report.cut_at,
        "sheet": report.spotcheck.model_dump(mode="json"),
    }
    judged: dict[str, list[Any]] = {}
    for said in review["by_reason"] if review else ():
        judged.setdefault(said["issue"], []).append(said)
    page = environment().get_template("report.html.j2")
    return page.render(
        report=report, run=run, review=review, judged=judged, compare=as_now(compare), shown=COMPARED if rows else 0, alone=False, rows={r.row: r for r in shown}, listed=sum(r.listed for r in shown),
        config=json.dumps(report.config, indent=2, ensure_ascii=False), style=style, script=script, data=embedded(data),
        style_hash=digest(style), script_hash=digest(script),
    )  # fmt: skip
