"""The report of a million pairs: small enough to send, quick to make and to open, with all of its spot-check inside."""

import json
import re
import time

import pytest
from test_report_browser import browser  # noqa: F401 - the fixture

from prefdata.bench import report as bench
from prefdata.report.model import Report
from prefdata.report.render import render
from prefdata.report.summary import summarise

ROWS = 1_000_000
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A million pairs, their report, its page, and the seconds that both took."""
    folder = tmp_path_factory.mktemp("large")
    facts = bench.facts(folder, ROWS)
    start = time.perf_counter()
    report = summarise(facts)
    page = render(report, bench.RUN)
    return folder, facts, report, page, time.perf_counter() - start


def held(page):
    """The page's data, as its script reads them."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


@pytest.mark.slow
def test_it_is_made_in_a_minute_and_small_enough_to_send(large):
    _, _, report, page, seconds = large
    assert report.totals.pairs == ROWS
    assert seconds <= 60
    assert len(page.encode()) <= 3_000_000


@pytest.mark.slow
def test_all_400_pairs_of_the_spot_check_are_inside_with_their_texts(large):
    _, facts, report, page, _ = large
    assert report.spotcheck.base == 400
    mine = [r.row for r in report.spotcheck.rows if r.base]
    data = held(page)
    rows = {r["row"]: r for r in data["rows"]}
    assert len(set(mine)) == 400 and [r["row"] for r in data["sheet"]["rows"] if r["base"]] == mine
    for row in facts.read(mine):
        assert [rows[row.row][side] for side in ("prompt", "chosen", "rejected")] == [
            getattr(row, side)[: report.cut_at] for side in ("prompt", "chosen", "rejected")
        ]
    assert all(facts.outcome.kept[mine])


@pytest.mark.slow
def test_it_opens_in_a_second_and_asks_for_nothing(large, browser):  # noqa: F811
    folder, _, _, page, _ = large
    address = (folder / "report.html").as_uri()
    (folder / "report.html").write_text(page, "utf-8")
    times, bad = [], []
    for _ in range(3):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        tab = context.new_page()
        tab.on("request", lambda r: bad.append(r.url) if r.url != address else None)
        tab.on("pageerror", lambda e: bad.append(str(e)))
        tab.on("dialog", lambda d: (bad.append(d.message), d.dismiss()))
        tab.goto(address)
        tab.wait_for_function(f"{LOADED} > 0 && {PAINT} > 0")
        times.append((tab.evaluate(LOADED), tab.evaluate(PAINT)))
        context.close()
    assert bad == []
    assert min(load for load, _ in times) <= 1000, times
    assert min(paint for _, paint in times) <= 500, times


def test_the_size_does_not_grow_with_the_rows(tmp_path):
    sizes = {}
    for n in (20_000, 200_000):
        (tmp_path / str(n)).mkdir()
        report = summarise(bench.facts(tmp_path / str(n), n))
        assert isinstance(report, Report) and report.spotcheck.base == 400
        sizes[n] = len(render(report, bench.RUN).encode())
    assert abs(sizes[200_000] - sizes[20_000]) < 0.1 * sizes[20_000]
