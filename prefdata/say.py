"""The two places to print: results to stdout, everything else to stderr, as the global options say."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any


class Say:
    """The global options of this run of the command line."""

    quiet = 0
    json = False
    progress = True
    color = "auto"
    log_format = "text"
    debug = False
    goes_on = "--resume goes on"  # what to say to a run that was interrupted

    @classmethod
    def out(cls, lines: Iterable[str], document: Mapping[str, Any]) -> None:
        """A result: lines for people, or the one document of ``--json``."""
        if cls.json:
            print(json.dumps(document, ensure_ascii=False, indent=2, default=str))
        elif not cls.quiet:
            for line in lines:
                print(line)

    @classmethod
    def err(cls, text: str) -> None:
        """A line beside the result."""
        if cls.quiet < 2:
            print(text, file=sys.stderr)


def rows(n: int) -> str:
    """``1 row``, ``2,312 rows``."""
    return f"{n:,} row{'' if n == 1 else 's'}"


def table(lines: Iterable[Iterable[str]], right: Iterable[int] = ()) -> list[str]:
    """Columns two blanks apart, those of ``right`` set to the right; no blanks at the end of a line."""
    cells = [list(line) for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    set_right = set(right)
    return [
        " " + "  ".join(c.rjust(w) if i in set_right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in cells
    ]  # fmt: skip
