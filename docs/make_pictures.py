"""Writes docs/report-light.png and docs/report-dark.png: the report on the sample, in headless Chromium.

The page is shown as it is, but with everything hidden between the verdict and one dropped row.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import prefdata

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "prefdata" / "samples" / "planted.jsonl"
ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
SHOW = """
const hide = (list) => list.forEach((e) => { e.style.display = "none"; });
hide(document.querySelectorAll("section:not(#verdict, #rows), #rows > :not(#cards), #cards > :not(:first-child)"));
document.activeElement.blur();
scrollTo(0, 0);
"""


def take(page_file: Path, chromium: str, scheme: str, target: Path) -> None:
    """One picture in one colour scheme."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=ARGS)
        context = browser.new_context(
            viewport={"width": 1040, "height": 1200}, color_scheme=scheme, device_scale_factor=1.5
        )
        page = context.new_page()
        page.goto(f"{page_file.as_uri()}#rows?issue=too_similar")
        page.wait_for_function("document.querySelectorAll('#cards > *').length >= 1")
        page.wait_for_timeout(500)
        page.evaluate(SHOW)
        bottom = page.evaluate("document.querySelector('#cards').getBoundingClientRect().bottom")
        page.screenshot(path=str(target), clip={"x": 0, "y": 0, "width": 1040, "height": min(1200, round(bottom) + 20)})
        browser.close()


def main() -> int:
    """Both pictures; without Chromium an error that says so."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("error: no Chromium on this machine. On Debian: apt install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        prefdata.clean(SAMPLE, out)
        for scheme in ("light", "dark"):
            take(out / "report.html", chromium, scheme, HERE / f"report-{scheme}.png")
            print(f"docs/report-{scheme}.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
