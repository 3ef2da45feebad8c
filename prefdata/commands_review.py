"""The command for people who judge pairs: ``review``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefdata.errors import ConfigError
from prefdata.say import Say

if TYPE_CHECKING:
    from prefdata.report.model import Report
    from prefdata.review import Imported

# fmt: off
Out = Annotated[Path, typer.Argument(help="The folder of a finished run.")]
Labels = Annotated[bool, typer.Option("--labels", help="A page that shows which answer is the chosen one; else sides are hidden.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
Import = Annotated[list[Path] | None, typer.Option("--import", metavar="FILE", help="Verdicts that the page exported (JSONL, CSV), or a filled spotcheck.csv; repeatable.")]
Name = Annotated[str | None, typer.Option("--reviewer", metavar="NAME", help="Who judged; default: as the file says, else its name.")]
Tty = Annotated[bool, typer.Option("--tty", help="Judge here in the terminal, one key a pair.")]
Blind = Annotated[bool, typer.Option("--blind", help="With --tty: hide which answer is the chosen one.")]
MaxRejected = Annotated[str | None, typer.Option(metavar="10%", help="Exit 1 when the rejected share's upper bound is above.")]
# fmt: on


def review(
    out: Out, labels: Labels = False, open_: Open = False, import_: Import = None, reviewer: Name = None, tty: Tty = False,
    blind: Blind = False, max_rejected: MaxRejected = None,
) -> None:  # fmt: skip
    """Have people judge a sample of the pairs: a page, verdicts read back from it, or keys here in the terminal."""
    _together(import_, tty, {"--labels": labels, "--open": open_, "--blind": blind}, reviewer)
    bound = None if max_rejected is None else _bound(max_rejected)
    from prefdata import lookup
    from prefdata import review as reviews
    from prefdata.output import writing
    from prefdata.report.model import Report

    run = lookup.manifest(out)["run"]
    with lookup.as_written(out / "audit/report.json"):
        report = Report.model_validate_json((out / "audit/report.json").read_bytes())

    def find(ids: set[str]) -> dict[str, int]:
        with lookup.as_written(out):
            return lookup.numbers(out, ids)

    def take(files: list[Path], name: str | None) -> Imported:
        with writing(out, "Make room, and import again."):
            return reviews.take(out, report, files, name, find)

    if tty:
        from prefdata import review_tty

        Say.goes_on = "the same command goes on; every verdict is saved"
        saved = review_tty.judge(out, report, reviewer or "me", blind)
        _told(out, report, run, take([saved], reviewer or "me") if saved else None, bound)
    elif import_:
        _told(out, report, run, take(import_, reviewer), bound)
    elif bound is not None and not labels and not open_:
        _told(out, report, run, None, bound)
    else:
        _page(out, report, not labels, open_)


def _together(import_: Any, tty: bool, given: dict[str, bool], reviewer: str | None) -> None:
    """Refuse options that have nothing to do with each other."""
    if import_ and tty:
        raise ConfigError(
            "--import and --tty: one reads verdicts, the other asks for them", hint="One after the other."
        )
    what = "--import" if import_ else "--tty" if tty else ""
    for name in ("--labels", "--open") if what else ("--blind",):
        if given[name] and not (name == "--blind" and tty):
            hint = "Without --labels the page hides the sides." if name == "--blind" else "Leave one of them out."
            raise ConfigError(
                f"{name} is for {'--tty' if name == '--blind' else 'the page, not for ' + what}", hint=hint
            )
    if given["--blind"] and import_:
        raise ConfigError("--blind is for --tty", hint="A verdict file says itself how it was judged.")
    if reviewer is not None and not what:
        raise ConfigError("--reviewer is for --import and --tty", hint="The page asks for the name itself.")
    if reviewer is not None and import_ and len(import_) > 1:
        raise ConfigError("--reviewer names one person, and there are several files", hint="Import them one by one.")


def _bound(text: str) -> float:
    try:
        share = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"--max-rejected {text}: not a share", hint="For example: --max-rejected 10%")
    return share


def _page(out: Path, report: Report, blind: bool, open_: bool) -> None:
    """Write the page to judge on, and say what to do with it."""
    from prefdata.files import put
    from prefdata.report import review_page

    target, sheet = out / "review.html", report.spotcheck
    n = sum(not blind or sheet.strata[r.stratum].state != "dropped" for r in sheet.rows)
    put(target, review_page.render(report, blind=blind))
    lines = [
        f"sheet   {target}  ({n:,} pairs, {'sides hidden' if blind else 'labels shown'})",
        "judge   open it in a browser: one key a pair, then export the verdicts (JSONL)",
        f"import  prefdata review {out} --import verdicts.jsonl",
    ]
    Say.out(lines, {"page": str(target), "sheet": report.spotcheck.id, "pairs": n, "blind": blind})
    if open_:
        typer.launch(target.resolve().as_uri())


def _told(out: Path, report: Report, run: Any, done: Imported | None, bound: float | None) -> None:
    """Make the page again with the review, print what it says, and hold its bound."""
    from prefdata import review as reviews
    from prefdata import review_file
    from prefdata.files import put
    from prefdata.report.render import render

    found = done.review if done else reviews.held(out, report)
    if found is None:
        hint = f"Judge some first: prefdata review {out}"
        if bound is not None:
            raise ConfigError("no pair of this sheet was judged", where=str(out), hint=hint)
        Say.out([f"nothing judged. {hint}"], {"judged": 0})
        return
    if done:
        shown, other = review_file.shown(out), review_file.held_json(out / "audit/compare.json")
        put(out / "report.html", render(report, run, review=shown, compare=other))
    high = 1.0 if found.rejected.high is None else found.rejected.high
    ok = bound is None or high <= bound
    lines = list(reviews.lines(found, done.said if done else ()))
    if bound is not None:
        lines.append(f"{'✓' if ok else '✗'} upper bound {100 * high:.1f} % {'<=' if ok else '>'} {100 * bound:g} %")
    where = f"wrote {out / review_file.PLACE}   " if done else ""
    lines.append(f"{where}apply: prefdata clean ... --verdicts {out}")
    document = found.model_dump(mode="json", exclude={"rows"})
    Say.out(lines, {**document, "said": list(done.said) if done else [], "max_rejected": bound, "ok": ok})
    if not ok:
        raise typer.Exit(1)


ALL = (review,)
