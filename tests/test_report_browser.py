"""The report in a real browser: hostile text does nothing, filters and marks work, and everyone can read it."""

import shutil

import pytest
from test_report import FAILED, PASSED, RUN, facts, source_of

from prefdata.report.render import render
from prefdata.report.summary import summarise

pytestmark = pytest.mark.slow
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra [dev])")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    out = {}
    for name in ("plain", "hostile", "long"):
        folder = tmp_path_factory.mktemp(name)
        report = summarise(
            facts(folder, gates=[FAILED, PASSED], hostile=name == "hostile", long=1 + 9 * (name == "long"))
        )
        (folder / "report.html").write_text(render(report, RUN), "utf-8")
        out[name] = (folder / "report.html").as_uri()
    return out


@pytest.fixture
def visit(browser, addresses):
    """Open a page of the report and record whatever it should not do."""
    pages = []

    def go(name, fragment="", width=1280, scheme="light", script=True):
        page = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        ).new_page()
        page.bad = []
        page.on("dialog", lambda d: (page.bad.append(f"dialog {d.message}"), d.dismiss()))
        page.on("pageerror", lambda e: page.bad.append(f"error {e}"))
        page.on("console", lambda m: page.bad.append(f"console {m.text}") if m.type in ("error", "warning") else None)
        page.on("request", lambda r: page.bad.append(r.url) if not r.url.startswith(addresses[name]) else None)
        page.goto(addresses[name] + fragment)
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.context.close()


def test_hostile_rows_run_nothing_and_ask_for_nothing(visit):
    page = visit("hostile", "#rows")
    seen = ""
    while True:
        for card in page.locator("#cards .card").all():
            card.scroll_into_view_if_needed()
        seen += page.inner_text("#cards")
        if page.locator("#next").is_hidden() or page.locator("#next").is_disabled() or len(seen) > 60_000:
            break
        page.click("#next")
    assert page.bad == []
    assert page.title() == "Cleaning of hh <b>.jsonl – prefdata report"
    assert "<script>document.title='owned'</script>" in seen and '<img src=x onerror="document.title=1">' in seen
    assert "&lt;" in seen and "zero⟨U+200B⟩width" in seen
    assert page.locator("main img, main script, main section:not(#spotcheck) textarea, main b i").count() == 0
    assert "default-src 'none'" in page.get_attribute("meta[http-equiv]", "content")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everyone_can_read_it(visit, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = visit("plain", "#rows?issue=near_duplicate", width, scheme)
    page.locator("#cards del").first.wait_for()
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.bad == []


def test_an_address_opens_the_rows_of_one_issue_with_differences_marked(visit):
    page = visit("plain", "#rows?issue=near_duplicate")
    assert page.locator("#cards .card").count() == 10
    assert page.inner_text("#found").startswith("20 of 400 rows match, showing 1–10.")
    card = page.locator("#cards .card").first
    card.locator("ins, del").first.wait_for()
    style = card.locator("ins").first.evaluate(
        "e => [getComputedStyle(e).textDecorationLine, getComputedStyle(e).backgroundColor]"
    )
    assert style[0] == "underline" and style[1] != "rgba(0, 0, 0, 0)"
    assert card.locator("del").first.evaluate("e => getComputedStyle(e).textDecorationLine") == "line-through"
    assert "Beside" in card.inner_text() and page.locator("#cards .peer").count() == 10


def test_filters_narrow_the_rows_and_the_address_keeps_them(visit):
    page = visit("plain")
    page.select_option("[name=action]", "flagged")
    assert all(t.endswith("flagged") for t in page.locator("#cards .card > header > .tag").all_inner_texts())
    page.select_option("[name=issue]", "likely_flipped")
    page.select_option("[name=sort]", "high")
    assert page.evaluate("location.hash") == "#rows?issue=likely_flipped&action=flagged&sort=high"
    values = [
        float(t.split("likely_flipped flag, value ")[1].split(",")[0])
        for t in page.locator("#cards .card").all_inner_texts()
    ]
    assert values == sorted(values, reverse=True) and len(values) > 3
    page.reload()
    assert page.input_value("[name=issue]") == "likely_flipped" and page.input_value("[name=sort]") == "high"
    page.click("button[type=reset]")
    page.fill("[name=text]", "QUESTION 101:")
    page.locator("#found", has_text="1 of 400").wait_for()
    assert page.locator("#cards .card").count() == 1
    page.fill("[name=text]", "no such words")
    page.locator("#found", has_text="No row").wait_for()
    assert page.bad == []


def test_links_lead_from_issues_and_stages_to_rows(visit):
    page = visit("plain")
    page.click("#issues a[href='#rows?issue=parse_error']")
    assert "Expecting ',' at column 12" in page.inner_text("#cards .card >> nth=0")
    page.click("#stage-similar_responses .compare >> nth=0")
    assert page.locator("#cards .card").count() == 1
    page.click("#found .chip")
    assert page.locator("#cards .card").count() == 10


def test_the_theme_button_and_the_copy_button(visit):
    page = visit("plain")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.click("#copy")
    page.locator("#copy", has_text="ed").wait_for()  # copied, or selected where the clipboard is closed
    assert page.bad == []


def test_without_script_the_numbers_and_the_worst_rows_are_there(visit):
    page = visit("hostile", script=False)
    text = page.inner_text("main")
    for part in (
        "Gate failed",
        "Funnel",
        "Nearly the same as an earlier row",
        "Worst: 3 rows",
        "Length bias",
        "ab" * 32,
    ):
        assert part in text, part
    assert page.locator("#filters").is_hidden() and page.locator("#theme").is_hidden()
    assert page.locator(".hist svg").count() >= 4


def test_a_keyboard_reaches_the_skip_link_and_the_filters(visit):
    page = visit("plain")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(":focus").evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.focus("[name=issue]")
    page.keyboard.press("e")
    assert page.input_value("[name=issue]") == "empty_completion"


def test_a_group_s_share_leads_to_its_rows_and_the_address_keeps_the_group(visit):
    page = visit("plain")
    page.click("#balance a[href='#rows?group=source%3Apanel']")
    assert page.input_value("[name=group]") == "source:panel"
    rows = [int(t.split()[1]) for t in page.locator("#cards .card .id").all_inner_texts()]
    assert rows and all(source_of(r) == "panel" for r in rows)
    page.reload()
    assert page.input_value("[name=group]") == "source:panel"
    page.select_option("[name=group]", "source:forum <b>")
    assert page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('group')") == "source:forum <b>"
    rows = [int(t.split()[1]) for t in page.locator("#cards .card .id").all_inner_texts()]
    assert rows and all(source_of(r) == "forum <b>" for r in rows)
    assert page.bad == []


def test_a_folded_stage_opens_from_the_funnel_and_by_its_address(visit):
    page = visit("plain")
    assert page.locator("#stage-token_length .asks").is_hidden()
    page.click("#funnel a[href='#stage-token_length']")
    page.locator("#stage-token_length .asks").wait_for()
    assert visit("plain", "#stage-token_length").locator("#stage-token_length .asks").is_visible()
    assert visit("plain", "#word-token_length-too_long").locator("#word-token_length-too_long").is_visible()


def test_a_cut_text_of_a_stage_s_card_is_opened_by_the_keyboard(visit):
    page = visit("long")
    button = page.locator("#stage-near_duplicate button.whole").first
    box = button.element_handle().evaluate_handle("b => b.previousElementSibling").as_element()
    short = len(box.inner_text())
    button.focus()
    page.keyboard.press("Enter")
    assert len(box.inner_text()) > short + 100 and "cut here" not in box.inner_text()
    assert page.evaluate("document.activeElement.className") == "text"
    assert page.bad == []


def test_each_section_shows_its_figures_in_both_themes_and_on_paper(visit):
    page = visit("plain", width=390, scheme="dark")
    for section, words in {
        "verdict": "rejected by people", "balance": "change in points", "length": "How far the rule", "tokens": "counted in words",
    }.items():  # fmt: skip
        assert words in page.inner_text(f"#{section}"), section
    assert page.locator("#balance svg.bar").count() >= 4
    assert page.locator(".advice").count() > 10
    page.emulate_media(media="print")
    assert page.locator("#rows").is_hidden() and "panel" in page.inner_text("#balance tbody")
    assert len(page.pdf(format="A4")) > 20_000
