"""The spot-check in a real browser: keys, two reviewers, files out and in, hostile texts, and everyone can use it."""

import csv
import json

import pytest
from test_report import HOSTILE
from test_report_browser import browser  # noqa: F401 - a fixture
from test_spotcheck import in_page, pairs, swapped

import prefdata
from prefdata.report import review_page
from prefdata.report.render import render

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """60 pairs, a quarter of them hostile."""
    folder = tmp_path_factory.mktemp("set")
    (folder / "p.yaml").write_text(
        "version: 1\nstages:\n- exact_duplicate\n- similar_responses: {max_similarity: 0.9}\n"
    )
    rows = pairs(60)
    for i in range(2, 26, 3):
        p, c, j = HOSTILE[i // 3 % len(HOSTILE)]
        rows[i] = {"prompt": f"{p} {i}", "chosen": c, "rejected": j, "domain": "<b>x</b>"}
    rows[58] |= {"chosen": "=1+1 tall " + "word " * 900, "rejected": "@SUM(A1) " + "other word " * 900}
    return prefdata.audit(rows, pipeline=str(folder / "p.yaml"), sample=1.0, seed=1).report


@pytest.fixture(scope="module")
def addresses(report, tmp_path_factory):
    folder, out = tmp_path_factory.mktemp("pages"), {}
    made = {"report": render(report, {}), "blind": review_page.render(report), "open": review_page.render(report, blind=False),
            "swapped": render(swapped(report), {})}  # fmt: skip
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, "utf-8")
        out[name] = (folder / f"{name}.html").as_uri()
    return out


@pytest.fixture
def visit(browser, addresses):  # noqa: F811
    """Open a page in a browser of one's own and record whatever it should not do."""
    contexts = []

    def go(name, width=1280, scheme="light", reviewer="anna", before="", context=None):
        if context is None:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            contexts.append(context)
        page = context.new_page()
        page.bad = []
        page.on("dialog", lambda d: (page.bad.append(f"dialog {d.message}"), d.dismiss()))
        page.on("pageerror", lambda e: page.bad.append(f"error {e}"))
        page.on("console", lambda m: page.bad.append(f"console {m.text}") if m.type in ("error", "warning") else None)
        page.on(
            "request", lambda r: page.bad.append(r.url) if not r.url.startswith((addresses[name], "blob:")) else None
        )
        if before:
            page.add_init_script(before)
        page.goto(addresses[name])
        if reviewer:
            page.fill("#sc-name", reviewer)
        page.focus("#sc-card")
        return page

    yield go
    for context in contexts:
        context.close()


def press(page, keys):
    for key in keys.split():
        page.keyboard.press(key)


def exported(page, kind="jsonl"):
    with page.expect_download() as got:
        page.click(f"#sc-{kind}")
    return got.value.path()


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def row_of(page):
    return int(page.inner_text("#sc-card .id").split()[1].replace(",", ""))


def test_keys_judge_and_move_and_the_share_follows(visit, report):
    page = visit("report")
    own = [r.row for r in report.spotcheck.rows]
    assert row_of(page) == own[0] and page.is_disabled("#sc-prev")
    press(page, "a r u a")
    assert ", 1 unsure left out." in page.inner_text("#sc-tally")
    assert row_of(page) == own[4] and "Row" in page.inner_text("#sc-said")
    text = page.inner_text("#sc-tally")
    assert f"4 of {len(own)} pairs judged by anna" in text and "1 of 3 = 33.3 % (95 % interval 6.1–79.2 %)" in text
    press(page, "ArrowLeft ArrowLeft ArrowLeft")
    assert row_of(page) == own[1] and page.get_attribute("[data-verdict=reject]", "aria-pressed") == "true"
    press(page, "a")  # another mind: the next that is not judged comes
    assert row_of(page) == own[4] and "0 of 3 = 0.0 %" in page.inner_text("#sc-tally")
    press(page, "ArrowRight")
    assert row_of(page) == own[5]
    page.click("#sc-open")
    assert row_of(page) == own[6]
    assert page.evaluate("document.activeElement.id") == "sc-open" and page.bad == []


def test_typing_a_note_judges_nothing_and_the_note_is_kept(visit):
    page = visit("report")
    first = row_of(page)
    press(page, "n")
    page.keyboard.type("a rural aura")
    assert "0 of" in page.inner_text("#sc-tally") and row_of(page) == first
    press(page, "Escape r")
    assert lines(exported(page))[0] | {"time": ""} == {
        "sheet": page.evaluate("window.prefdata.data.sheet.id"), "row": first, "pd_id": str(first), "verdict": "reject", "mode": "open",
        "key": page.evaluate("window.prefdata.data.sheet.rows[0].key"), "reviewer": "anna", "note": "a rural aura", "time": "",
    }  # fmt: skip
    page.focus("#sc-name")
    page.keyboard.type("aru")
    assert "1 of" in page.inner_text("#sc-tally") and page.bad == []


def test_keys_outside_the_sheet_judge_nothing(visit):
    page = visit("report")
    page.focus("[name=text]")
    page.keyboard.type("aru")
    page.evaluate("document.activeElement.blur()")
    press(page, "a r u")
    page.focus("#sc-card")
    page.keyboard.press("Control+a")
    assert "0 of" in page.inner_text("#sc-tally")


def test_without_a_name_nothing_is_judged_and_the_field_is_shown(visit):
    page = visit("report", reviewer="")
    press(page, "a")
    assert page.evaluate("document.activeElement.id") == "sc-name"
    assert page.inner_text("#sc-said").startswith("Give your name first")
    page.keyboard.type("li")
    page.click("[data-verdict=accept]")
    assert "1 of" in page.inner_text("#sc-tally") and "by li" in page.inner_text("#sc-tally")


def test_verdicts_outlive_a_reload_and_two_reviewers_are_kept_apart(visit):
    page = visit("report")
    press(page, "a r")
    page.fill("#sc-name", "李")
    page.focus("#sc-card")
    press(page, "u")
    assert "1 of" in page.inner_text("#sc-tally") and "by 李" in page.inner_text("#sc-tally")
    page.reload()
    assert page.input_value("#sc-name") == "李" and "1 of" in page.inner_text("#sc-tally")
    page.fill("#sc-name", "anna")
    page.focus("#sc-card")
    assert "2 of" in page.inner_text("#sc-tally")
    assert [v["reviewer"] for v in lines(exported(page))] == ["anna", "anna"]


def test_the_blind_page_takes_no_open_verdict_away(visit):
    page = visit("report")
    press(page, "a r")
    blind = visit("blind", context=page.context)
    assert "0 of" in blind.inner_text("#sc-tally")
    press(blind, "1 2 0")
    page.reload()
    assert "2 of" in page.inner_text("#sc-tally") and len(lines(exported(page))) == 2
    blind.reload()
    assert "3 of" in blind.inner_text("#sc-tally")


def test_a_second_tab_takes_nothing_away(visit):
    page = visit("report")
    other = visit("report", context=page.context)
    press(page, "a a a")
    other.focus("#sc-card")
    press(other, "ArrowRight ArrowRight ArrowRight ArrowRight r")
    page.reload()
    assert "4 of" in page.inner_text("#sc-tally")


def test_an_export_comes_back_in_another_browser(visit):
    page = visit("report")
    press(page, "a r u")
    path = exported(page)
    other = visit("report", reviewer="")
    other.set_input_files("#sc-file", path)
    other.locator("#sc-said", has_text="Loaded 3 verdicts of anna.").wait_for()
    assert "3 of" in other.inner_text("#sc-tally") and "1 of 2 = 50.0 %" in other.inner_text("#sc-tally")
    assert lines(exported(other)) == lines(path)
    other.reload()
    assert "3 of" in other.inner_text("#sc-tally") and other.bad == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sheet": "0123456789ab"}, "another sheet"),
        ({"reviewer": 7}, "one person"),
        ({"verdict": "<img src=x onerror=alert(1)>"}, "1 do not fit this sheet"),
        ({"row": 10**9}, "1 do not fit this sheet"),
        ({"key": "0" * 16}, "1 do not fit this sheet"),
        (None, "not a JSONL file"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(visit, tmp_path, change, said):
    page = visit("report")
    press(page, "a")
    made = lines(exported(page))
    path = tmp_path / "v.jsonl"
    path.write_text("PK\x03\x04" if change is None else json.dumps(made[0] | change) + "\n", "utf-8")
    page.set_input_files("#sc-file", path)
    page.locator("#sc-said", has_text=said).wait_for()
    assert lines(exported(page)) == made and page.bad == []


def test_the_csv_holds_no_formula(visit):
    page = visit("report", reviewer="@anna")
    for note in ("=1+1", "+2", "-3", "@SUM(A1)", "\tx", 'say "no", please\nor not'):
        page.fill("#sc-note", note)
        page.focus("#sc-card")
        press(page, "r")
    text = exported(page, "csv").read_bytes().decode("utf-8-sig")
    found = list(csv.DictReader(text.splitlines(keepends=True)))
    assert [r["note"] for r in found] == ["'=1+1", "'+2", "'-3", "'@SUM(A1)", "'\tx", 'say "no", please\nor not']
    assert {r["reviewer"] for r in found} == {"'@anna"} and found[0]["verdict"] == "reject"
    assert list(found[0]) == ["sheet", "row", "pd_id", "key", "mode", "verdict", "reviewer", "note", "time"]


def test_blind_mode_hides_all_that_tells_the_label(visit, report):
    page = visit("report")
    page.check("[name=sc-mode][value=blind]")
    page.focus("#sc-card")
    own = {r.row: r for r in report.spotcheck.rows}
    texts = {r.row: r for r in report.rows}
    for key, verdict in (("1", "left"), ("2", "right"), ("0", "same"), ("b", "both_bad")):
        row = row_of(page)
        said = page.inner_text("#spotcheck")
        assert "Chosen" not in said and page.locator("#sc-card .tag, #sc-card .marks, #sc-card .peer").count() == 0
        other = {"chosen": "rejected", "rejected": "chosen"}[own[row].left]
        shown = page.locator("#sc-card .sides2 .text").all_inner_texts()
        for box, side in zip(shown, (own[row].left, other), strict=True):
            assert box.split()[-1:] == getattr(texts[row], side).split()[-1:] or "U+" in box or "↵" in box
        press(page, key)
        assert f"Row {row}" in page.inner_text("#sc-said")
        last = [v for v in lines(exported(page)) if v["row"] == row]
        assert [(v["mode"], v["verdict"]) for v in last] == [("blind", verdict)]
        page.focus("#sc-card")
    assert "Rejected" not in page.inner_text("#sc-tally")
    page.check("[name=sc-mode][value=open]")
    expected = [own[r.row].left == "chosen" for r in report.spotcheck.rows[:1]] + [
        own[r.row].left == "rejected" for r in report.spotcheck.rows[1:2]
    ]
    bad = 1 + expected.count(False)
    assert f"{bad} of 3" in page.inner_text("#sc-tally") and page.bad == []


def test_a_group_is_chosen_and_dropped_pairs_are_asked_whether_that_was_right(visit, report):
    page = visit("report")
    page.select_option("#sc-group", label="exact_duplicate, dropped")
    page.focus("#sc-card")
    assert page.inner_text("#sc-question") == "Was it right to drop this pair?"
    assert page.locator("#sc-card .peer").count() == 1 and "dropped" in page.inner_text("#sc-card header")
    press(page, "a r")
    line = page.locator("#sc-groups tr", has_text="exact_duplicate").inner_text()
    assert "rightly dropped: 1 of 2" in line
    assert "stands here once" in page.inner_text("#sc-tally")  # dropped pairs are not of the sample


def test_a_swapped_pair_is_shown_as_it_leaves(visit, report):
    row = report.spotcheck.rows[0].row
    texts = next(r for r in report.rows if r.row == row)
    page = visit("swapped")
    assert row_of(page) == row and "as it leaves" in page.inner_text("#sc-card")
    left = page.locator("#sc-card .sides2 .text").first.inner_text()
    assert left.split()[-1] == texts.rejected.split()[-1]
    press(page, "a")
    assert "rightly swapped: 1 of 1" in page.locator("#sc-groups tr", has_text="swapped").inner_text()


@pytest.mark.parametrize("name", ["report", "blind", "open"])
def test_hostile_texts_run_nothing(visit, name):
    page = visit(name, reviewer="<img src=x onerror=alert(1)>")
    seen = ""
    for _ in range(200):
        seen += page.inner_text("#sc-card")
        if page.is_disabled("#sc-next"):
            break
        press(page, "ArrowRight")
    press(page, "n")
    page.keyboard.type("<script>alert(2)</script>")
    press(page, "Escape")
    press(page, "1" if name == "blind" else "a")
    exported(page)
    assert page.bad == []
    assert "<script>document.title='owned'</script>" in seen and "<!--<script>alert(2)//" in seen
    assert page.locator("main img, main svg[onload], #judge script, main b i").count() == 0
    assert "default-src 'none'" in page.get_attribute("meta[http-equiv]", "content")
    assert page.title().endswith("prefdata") or name == "report"
    assert page.get_attribute("html", "lang") == "en"


@pytest.mark.parametrize("name", ["report", "blind", "open"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everyone_can_judge(visit, name, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = visit(name, width, scheme)
    press(page, "1 2" if name == "blind" else "a r")
    if name != "blind":
        page.select_option("#sc-group", label="exact_duplicate, dropped")
    page.locator("#sc-card ins, #sc-card del").first.wait_for()
    found = axe.Axe().run(page, "#spotcheck" if name == "report" else None).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.bad == []


def test_the_blind_page_exports_what_its_sheet_knows(visit, report, addresses):
    page = visit("blind", reviewer="li")
    press(page, "2 0")
    got = lines(exported(page))
    asked = report.spotcheck.rows[:2]
    assert [(v["row"], v["key"], v["sheet"], v["mode"], v["verdict"]) for v in got] == [
        (a.row, a.key, report.spotcheck.id, "blind", word) for a, word in zip(asked, ("right", "same"), strict=True)
    ]
    other = visit("report", reviewer="")  # the whole report knows the same sheet
    other.set_input_files("#sc-file", exported(page))
    other.locator("#sc-said", has_text="Loaded 2 verdicts of li.").wait_for()
    assert in_page(page.content())["sealed"] is True


@pytest.mark.parametrize("how", ["throw new DOMException('denied', 'SecurityError')", "return null"])
def test_without_storage_the_page_says_so_and_goes_on(visit, how):
    page = visit("report", before=f"Object.defineProperty(window, 'localStorage', {{ get() {{ {how}; }} }})")
    assert "Export your verdicts" in page.inner_text("#sc-trouble") or "Export them" in page.inner_text("#sc-trouble")
    press(page, "a r")
    assert len(lines(exported(page))) == 2 and page.bad == []
