"""The reports of the repository are what the code makes now: made again elsewhere, they say the same."""

import importlib.util
import json
from pathlib import Path

import pytest

from prefdata.report.model import Report
from prefdata.report.render import render

ROOT = Path(__file__).parents[1]
THERE = ROOT / "reports"
NUMBERS = [
    "sample/audit/report.json",
    "cleaned/audit/report.json",
    "cleaned/audit/review.json",
    "cleaned/audit/compare.json",
]
AGAIN = "reports/ is out of date: make reports"


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("make_reports", THERE / "make_reports.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    home = tmp_path_factory.mktemp("reports")
    module.make(home)
    return home


def document(path):
    return json.loads(path.read_bytes())


@pytest.mark.parametrize("name", NUMBERS)
def test_their_numbers_are_the_same(again, name):
    assert document(again / name) == document(THERE / name), AGAIN


def test_they_are_all_there_and_nothing_else(again):
    made, there = ({str(p.relative_to(home)) for p in home.rglob("*") if p.is_file()} for home in (again, THERE))
    assert made == {name for name in there if name.startswith(("sample/", "cleaned/"))} | {"diff.html"}, AGAIN


@pytest.mark.parametrize("name", ["sample", "cleaned"])
def test_each_page_is_what_the_code_makes_of_its_numbers_and_its_run(name):
    home = THERE / name
    beside = {
        k: document(home / f"audit/{k}.json") if (home / f"audit/{k}.json").exists() else None
        for k in ("review", "compare")
    }
    report = Report.model_validate_json((home / "audit/report.json").read_bytes())
    page = render(report, document(home / "manifest.json")["run"], **beside)
    same = (home / "report.html").read_text("utf-8") == page
    assert same, AGAIN


def test_the_page_of_the_difference_is_the_same(again):
    same = (again / "diff.html").read_text("utf-8") == (THERE / "diff.html").read_text("utf-8")
    assert same, AGAIN


def test_they_name_no_path_of_a_machine():
    for path in (p for p in THERE.rglob("*") if p.suffix in (".json", ".html", ".jsonl")):
        assert not [w for w in ("/tmp/", "/home/", "/root/", str(ROOT)) if w in path.read_text("utf-8")], path
