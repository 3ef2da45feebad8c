"""The page of ``prefdata diff`` and section 10 of the report in a real browser: hostile text does nothing, everyone can read it."""

import shutil

import pytest
from written import write_lines

import prefdata

pytestmark = pytest.mark.slow
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"]  # fmt: skip
STAGES = ("malformed", "contradiction", "exact_duplicate", "near_duplicate", "similar_responses")
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)><style>*{display:none}</style><!-- {{ 7*7 }} \u202e\u200b ${alert(3)} '\"&amp;"


def pairs(kind):
    """Two sets with every kind of difference."""

    def row(i, prompt="", chosen="", rejected=""):
        return {"prompt": f"What is number {i} for {prompt}?", "chosen": f"It is answer {i} and keeps {chosen} {'long ' * (i * 3 % 40)}dry.",
                "rejected": f"Nobody knows {rejected} of {i}.", "source": EVIL if kind == "hostile" and i % 2 else "web"}  # fmt: skip

    bad = EVIL if kind == "hostile" else "a cat"
    a = [row(i, bad if i % 3 == 0 else "", bad, bad) for i in range(40)]
    b = [dict(r) for r in a[5:]]
    for r in b[:4]:
        r["chosen"], r["rejected"] = r["rejected"], r["chosen"]
    for r in b[5:9]:
        r["chosen"] = r["chosen"].replace("keeps", "never kept") + bad
    b += [row(i, bad, bad, bad) for i in range(90, 96)]
    a += [a[10], a[11]]
    return a, b


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
    """The page and the report of a plain and of a hostile comparison."""
    from prefdata import diff
    from prefdata.commands_diff import keep
    from prefdata.report.compare_page import page
    from prefdata.report.model import Report
    from prefdata.report.render import render
    from prefdata.result import Options

    out = {}
    for kind in ("plain", "hostile"):
        home = tmp_path_factory.mktemp(kind)
        names = ("a", "b") if kind == "plain" else ("a <b>x", "b 'onload=alert(9)'")
        for name, rows in zip(names, pairs(kind), strict=True):
            prefdata.clean(str(write_lines(home / "in.jsonl", rows)), home / name, only=STAGES, workers=1)
        both = diff.sides((str(home / names[0]), str(home / names[1])), home / "work", None, Options())
        found = diff.compare(*both)
        (home / "diff.html").write_text(page(found), "utf-8")
        report = Report.model_validate_json((home / names[1] / "audit/report.json").read_bytes())
        keep(home / names[1], str(home / names[0]), False)
        (home / "report.html").write_text(render(report, {}, compare=found.model_dump(mode="json")), "utf-8")
        out |= {f"{kind} diff": (home / "diff.html").as_uri(), f"{kind} report": (home / "report.html").as_uri()}
    return out


@pytest.fixture
def visit(browser, addresses):
    """Open a page and record whatever it should not do."""
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


def see_all(page):
    """Unfold all, and have each pair of the comparison come into view."""
    page.evaluate("document.querySelectorAll('#compare details').forEach(d => { d.open = true })")
    for card in page.locator("#compare .card").all():
        card.scroll_into_view_if_needed()


@pytest.mark.parametrize("name", ["hostile diff", "hostile report"])
def test_hostile_texts_run_nothing_and_ask_for_nothing(visit, name):
    page = visit(name)
    see_all(page)
    page.locator("#compare ins").first.wait_for()
    assert page.bad == []
    said = page.inner_text("#compare")
    assert (
        "<script>alert(1)</script>" in said and "⟨U+202E⟩⟨U+200B⟩" in said and "{{ 7*7 }}" in said and "&amp;" in said
    )
    assert page.locator("#compare img, #compare script, #compare style, main b b").count() == 0
    assert "default-src 'none'" in page.get_attribute("meta[http-equiv]", "content")
    assert page.locator("[style]").count() == 0 and page.title()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["plain diff", "plain report"])
def test_everyone_can_read_it(visit, name, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = visit(name, "", width, scheme)
    see_all(page)
    page.locator("#compare ins").first.wait_for()
    context = None if name == "plain diff" else "#compare"
    found = axe.Axe().run(page, context=context).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.bad == []


def test_changed_words_are_marked_and_a_link_opens_its_pairs(visit):
    page = visit("plain diff")
    page.click("a[href='#compare-changed']")
    card = page.locator("#compare-changed .card").first
    card.locator("ins").first.wait_for()
    assert card.locator("del").all_inner_texts() == ["keeps"]
    assert "".join(card.locator("ins").all_inner_texts()).startswith("never kept")
    assert "Chosen in a" in card.inner_text() and "Rejected, the same in both" in card.inner_text()
    page.click("a[href='#compare-swapped']")
    assert "Chosen in b, rejected in a" in page.locator("#compare-swapped .card").first.inner_text()
    assert page.locator("#compare-only_in_b .card").count() == 6
    assert page.bad == []


def test_the_theme_button(visit):
    page = visit("plain diff")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_without_script_all_is_there_but_the_marks(visit):
    page = visit("plain diff", script=False)
    assert page.locator("#compare .card").count() > 10 and page.locator("#compare del").count() == 0
    assert page.locator("#theme").is_hidden()


def test_it_prints(visit):
    page = visit("plain diff")
    page.emulate_media(media="print")
    assert page.locator(".top").is_hidden()
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.locator("#compare-only_in_b .card").nth(2).is_visible()
    assert page.locator("#compare-only_in_b .card").nth(3).is_hidden()  # three of each kind are enough on paper
    assert page.pdf()[:4] == b"%PDF"
