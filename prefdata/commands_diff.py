"""``prefdata diff``: two runs, or two sets of pairs, side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefdata import cli_options as option
from prefdata.errors import ConfigError
from prefdata.say import Say, table

if TYPE_CHECKING:
    from prefdata.report.compare import Compare, Rate

_SIDE = "OUT of a finished run, or what audit reads: a file, glob, folder or hf:NAME."
Place = Annotated[str, typer.Argument(help=_SIDE, show_default=False)]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the comparison as a page, with pairs side by side.")]  # fmt: skip
FailOn = Annotated[list[str] | None, typer.Option("--fail-on", metavar="COND", help="Exit 1 if it holds: only_in_b>0, changed>1%, near_duplicate>+1% (a rise in points); repeatable.")]  # fmt: skip
Rows = Annotated[int, typer.Option("--rows", min=0, help="Pairs of each kind in --html and --json.")]
MOST_RATES = 12
PLACE = "audit/compare.json"


def diff(
    a: Place, b: Place, html: Html = None, fail_on: FailOn = None, pipeline: option.Pipeline = None, columns: option.Columns = None,
    shape: option.Shape = None, labels: option.Labels = None, input_format: option.InputFormat = "auto", limit: option.Limit = None,
    workers: option.Workers = None, rows: Rows = 50,
) -> None:  # fmt: skip
    """Two runs, or two sets: pairs only in one, labels swapped, texts changed, rates and lengths with their change from A to B."""
    from prefdata import diff, diff_gate
    from prefdata.files import put
    from prefdata.result import Options
    from prefdata.terminal import Progress

    conditions = [diff_gate.Condition.parse(text) for text in fail_on or ()]
    named, meant = option.mapping("--columns", columns), option.mapping("--labels", labels)
    options = Options(columns=named, labels=meant, shape=shape, input_format=input_format, limit=limit, workers=workers)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(prefix="prefdata-") as work:
        with Progress() as progress:
            both = diff.sides(
                (a, b), Path(work), pipeline, options, lambda words: diff_gate.known(conditions, words), progress
            )
        found = diff.compare(*both, examples=rows)
    if html is not None:
        from prefdata.report.compare_page import page

        put(html, page(found))
    checked = [c.check(found) for c in conditions]
    document = {**found.model_dump(mode="json"), "fail_on": checked, "html": None if html is None else str(html)}
    Say.out(lines(found, checked, html), document)
    if any(c["holds"] for c in checked):
        raise typer.Exit(1)


def keep(out: Path, earlier: str | None, away: bool) -> None:
    """``report --against``: the comparison with an earlier run as ``audit/compare.json`` of ``out``; or no more of it."""
    if away and earlier is not None:
        raise ConfigError("--against and --no-against: one undoes the other", hint="Leave one of them out.")
    if away:
        (out / PLACE).unlink(missing_ok=True)
    if earlier is None:
        return
    from prefdata import diff
    from prefdata.files import put
    from prefdata.output import dump, writing
    from prefdata.result import Options
    from prefdata.terminal import Progress

    with tempfile.TemporaryDirectory(prefix="prefdata-") as work, Progress() as progress:
        both = diff.sides((earlier, str(out)), Path(work), None, Options(), progress=progress)
        found = diff.compare(*both)
    with writing(out):
        put(out / PLACE, dump(found.model_dump(mode="json")))


def lines(found: Compare, checked: Sequence[Mapping[str, Any]], html: Path | None) -> Iterator[str]:
    """The comparison for people."""
    yield from (f" note: {note}" for note in found.notes)
    names = tuple(n if len(n) <= 24 else f"…{n[-23:]}" for n in (found.a.name, found.b.name))
    cells = [("", *names, "change", "")]
    cells += [
        (f"pairs {c.name}" if c.name != "pairs" else "pairs", f"{c.a:,}", f"{c.b:,}", _signed(c.change), "")
        for c in found.counts
    ]
    moved = [r for r in found.rates if r.stage or r.name == "longer_chosen"]
    shown = [r for r in moved if r.change != 0][:MOST_RATES]
    cells += [_rate(r) for r in shown]
    yield from table(cells, right=(1, 2, 3))
    if left := len([r for r in moved if r.stage and r.change == 0]):
        yield f" {left} more rate{'s are' if left > 1 else ' is'} the same"
    yield from table(
        [("", "all", "kept"), ("the same in both", f"{found.same:,}", f"{found.same_kept:,}")]
        + [(k.title, f"{k.all:,}", "" if k.kept is None else f"{k.kept:,}") for k in found.kinds],
        right=(1, 2),
    )
    for kind in found.kinds:
        if kind.reasons:
            yield f" {kind.title}: {', '.join(f'{word} {n:,}' for word, n in kind.reasons.items())}"
    for check in checked:
        yield f"{'✗' if check['holds'] else '✓'} fail on  {check['condition']}   {check['text']}   {'holds' if check['holds'] else 'does not hold'}"
    if html is not None:
        yield f"page  {html}"


def _rate(rate: Rate) -> tuple[str, str, str, str, str]:
    sides = ("–" if s is None or s.value is None else f"{100 * s.value:.2f} %" for s in (rate.a, rate.b))
    points = 100 * (rate.change or 0.0)
    change = "–" if rate.change is None else f"{points:+.2f}" if abs(points) >= 0.005 else f"{points:+.1g}"
    chance = "" if rate.low is None else "more than chance" if rate.beyond else "within chance"
    return (rate.name, *sides, change, chance)  # type: ignore[return-value]


def _signed(value: int) -> str:
    return f"{value:+,}" if value else "0"


ALL = (diff,)
