"""No number of the page is made by the page: each stands in report.json, or in what the run says of itself.

Every number of a report is moved to another value of its own, every digit in its texts is struck out, and the page is made. What
still stands there and is none of these numbers was typed into a template, or worked out in one.
"""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from written import write_lines

import prefdata
from prefdata.report import render as pages
from prefdata.report.model import Report

SAMPLE = Path(prefdata.__file__).parent / "samples/planted.jsonl"
NUMBER = re.compile(r"(?<!\w)(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?:[\u00a0\u202f ]?%)?")  # no sha256
# The page's own words: the level of its intervals, what chance is, and which quantiles it names.
OWN = {"95 %", "50 %", "90 %", "99 %"}
PLACES = {
    "stratum",
    "schema_version",
    "compare_version",
}  # numbers that are places in a list, and lead nowhere when they are moved; a version


class Said(HTMLParser):
    """What a reader is told: the text and the labels, without script, style and the drawings' own text (ticks of an axis)."""

    def __init__(self):
        super().__init__()
        self.inside, self.said = [], []

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "style", "svg", "title"):
            self.inside.append(tag)
        if not self.inside or tag == "svg":
            self.said += [
                value for name, value in attrs if name in ("aria-label", "title", "alt", "placeholder") and value
            ]

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data):
        if not self.inside:
            self.said.append(data)


def said(page):
    reader = Said()
    reader.feed(page)
    return reader.said


def moved(value, key=""):
    """The same with every number moved, equal ones alike and in the same order, and every digit of a text struck out."""
    if isinstance(value, dict):
        return {_struck(k): moved(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [moved(v, key) for v in value]
    if isinstance(value, bool) or value is None or key in PLACES:
        return value
    if isinstance(value, str):
        return _struck(value)
    if isinstance(value, int):
        return value * 8329 + 100_003 if value >= 0 else value * 8329 - 100_003
    return 0.052719 + 0.83117 * value if 0 <= value <= 1 else 1.37173 * value + 0.0317


def _struck(text):
    return re.sub(r"\d", "x", text)


def numbers(value, key=""):
    """Every number in the document, by itself."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from numbers(v, k)
    elif isinstance(value, list):
        for v in value:
            yield from numbers(v, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def spoken(value):
    """All the ways in which the page may write a number."""
    value = abs(value)
    yield from (str(value), pages.number(value))
    if isinstance(value, int):
        yield from (pages.count(value), pages.megabytes(value))
    else:
        yield from (
            f"{value:.1f}",
            f"{value:.2f}",
            pages.percent(value),
            pages.percent(value, 0),
            f"{100 * value:.1f}",
            f"{value:,.3g}",
            f"{100 * value:.1g}",
        )


def allowed(*documents):
    """Whatever numbers stand in these documents, as the page may write them; how long the lists of a stage's rows are; and how many
    rows can be filtered.

    The two shares beside the limit of a histogram are those of its counts: ``render.chart`` divides them.
    """
    out = set(OWN)
    for document in documents:
        for value in numbers(document):
            for text in spoken(value):
                out.update(m[0] for m in NUMBER.finditer(text))
    out.add(str(sum(row["listed"] for row in documents[0]["rows"])))
    for stage in documents[0]["stages"]:
        out.update(str(len(stage[name])) for name in ("worst", "near_acted", "near_kept") if stage[name])
        if (bars := stage["histogram"]) is not None:
            out.update(pages.percent(bars[side] / bars["n_before"]) for side in ("below", "above"))
    return {_plain(text) for text in out}


def _plain(text):
    return re.sub(r"[\u00a0\u202f ]+", " ", re.sub(r"⟨U\+\w+⟩", "", text))


def unknown(page, *documents):
    """Numbers that a reader is told and that stand in none of the documents, with what stands around them."""
    known = allowed(*documents)
    return [
        (found[0], text.strip()[:120])
        for text in said(page)
        for found in NUMBER.finditer(_plain(text))
        if _plain(found[0]) not in known and found[0] not in known
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was reviewed by two people and stands against an earlier one."""
    home = tmp_path_factory.mktemp("run")
    prefdata.audit(SAMPLE, home / "earlier", "default", workers=1, skip=["near_duplicate"])
    prefdata.clean(SAMPLE, home / "out", "full", workers=1, split="test=0.1", gate=["kept>=10%", "too_similar<=0"])
    sheet = json.loads((home / "out/audit/report.json").read_bytes())["spotcheck"]
    for who in ("anna", "li"):
        said = [
            {"sheet": sheet["id"], "row": r["row"], "pd_id": r["pd_id"], "key": r["key"], "mode": "open", "reviewer": who, "note": "",
             "verdict": "reject" if i % 7 == 0 or (who == "li" and i % 5 == 0) else "accept", "time": "2026-12-07T12:00:00Z"}
            for i, r in enumerate(sheet["rows"])
        ]  # fmt: skip
        write_lines(home / f"{who}.jsonl", said)
    for words in (
        ["review", "out", "--import", "anna.jsonl", "--import", "li.jsonl"],
        ["report", "out", "--against", "earlier"],
    ):
        subprocess.run([sys.executable, "-m", "prefdata", *words], cwd=home, check=True, capture_output=True)
    return home / "out"


def left(run):
    """What the run left for its page: the report, the run's facts, the review and the comparison."""
    report, manifest, review, compare = (
        json.loads((run / name).read_bytes())
        for name in ("audit/report.json", "manifest.json", "audit/review.json", "audit/compare.json")
    )
    return report, manifest["run"], review, compare


@pytest.fixture(scope="module")
def documents(run):
    """The same, every number moved."""
    return tuple(moved(document) for document in left(run))


def page_of(documents, rows=True):
    report, about, review, compare = documents
    return pages.render(Report.model_validate(report), about, rows=rows, review=review, compare=compare)


@pytest.mark.parametrize("rows", [True, False], ids=["rows", "no-rows"])
def test_every_number_of_the_page_stands_in_the_report(documents, rows):
    page = page_of(documents, rows)
    assert 'id="compare"' in page and "anna" in page
    assert len([m for text in said(page) for m in NUMBER.finditer(text)]) > 300
    assert unknown(page, *documents) == []


def test_the_page_of_a_run_holds_its_own_numbers(run):
    documents = left(run)
    texts = " ".join(_texts([*documents]))
    strange = unknown((run / "report.html").read_text("utf-8"), *documents)
    assert [s for s in strange if s[0].rstrip(" %") not in texts] == []


def _texts(value):
    if isinstance(value, dict | list):
        for v in [*value.keys(), *value.values()] if isinstance(value, dict) else value:
            yield from _texts(v)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize(
    "put", ["{{ (report.totals.pairs - report.totals.kept) | n }}", "12", "{{ report.totals.kept_share | pct(3) }}"]
)
def test_a_number_that_a_template_makes_is_found(documents, put, monkeypatch, tmp_path):
    shutil.copytree(pages.HOME, tmp_path / "templates")
    path = tmp_path / "templates/report.html.j2"
    path.write_text(path.read_text("utf-8").replace("</h2>", f" {put}</h2>"), "utf-8")
    monkeypatch.setattr(pages, "HOME", tmp_path / "templates")
    assert unknown(page_of(documents), *documents)
