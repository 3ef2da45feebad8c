"""Checks as a CI reads them: JUnit XML, or the workflow commands of GitHub with a table for the job's summary."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefdata.errors import ConfigError
from prefdata.say import Say

FORMATS = ("text", "junit", "github")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Check:
    """One thing that had to hold: what was asked (``kept>=60%``), what was found, whether it holds, and a sentence that says so."""

    name: str
    found: str
    ok: bool
    sentence: str


def usable(form: str, file: Path | None) -> None:
    """Refuse, before any work, a format that is none, or two documents on one stdout."""
    if form not in FORMATS:
        raise ConfigError(f"--output-format {form}: not one of {', '.join(FORMATS)}")
    if file is not None and form != "junit":
        raise ConfigError("--output-file is for --output-format junit", hint="Give both, or leave it out.")
    if Say.json and form != "text" and file is None:
        hint = "Add --output-file FILE." if form == "junit" else "Leave one of them out."
        raise ConfigError(f"--json and --output-format {form} cannot both go to stdout", hint=hint)


def tell(
    suite: str, checks: Sequence[Check], form: str, file: Path | None, lines: Iterable[str], document: Mapping[str, Any]
) -> None:  # fmt: skip
    """Print a result and its checks in that format: JUnit alone on stdout, or in ``file`` beside the usual text; GitHub's commands
    below the text. ``suite`` says what was checked.
    """
    if form == "junit" and file is None:
        print(junit(suite, checks), end="")
        return
    if file is not None:
        from prefdata.files import put
        from prefdata.output import writing

        with writing(file, "Name a file in a folder that exists."):
            put(file, junit(suite, checks))
    Say.out(lines, document)
    if form == "github":
        for line in github(suite, checks):
            print(line)
        if place := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                with Path(place).open("a", encoding="utf-8") as summary:
                    summary.write(markdown(suite, checks))
            except OSError as error:
                Say.err(f"note: the summary of the job could not be written: {error.strerror}")


def junit(suite: str, checks: Sequence[Check]) -> str:
    """JUnit XML: a test case a check, in one suite."""
    from xml.etree import ElementTree as Tree

    failed = sum(not c.ok for c in checks)
    counts = {"tests": str(len(checks)), "failures": str(failed), "errors": "0"}
    top = Tree.Element("testsuites", counts)
    inside = Tree.SubElement(top, "testsuite", {"name": _xml(suite), **counts, "skipped": "0"})
    for check in checks:
        case = Tree.SubElement(inside, "testcase", {"classname": "prefdata", "name": _xml(check.name)})
        if check.ok:
            Tree.SubElement(case, "system-out").text = _xml(check.sentence)
        else:
            told = Tree.SubElement(case, "failure", {"type": "gate", "message": _xml(check.sentence)})
            told.text = _xml(check.sentence)
    Tree.indent(top)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Tree.tostring(top, "unicode")}\n'


def github(suite: str, checks: Sequence[Check]) -> list[str]:
    """Workflow commands, by which GitHub marks the job: an error for what does not hold, a notice for all that does."""
    held = [c for c in checks if c.ok]
    lines = [f"::error title={_property(f'prefdata: {c.name}')}::{_data(c.sentence)}" for c in checks if not c.ok]
    if held:
        what = f"{len(held)} of {len(checks)} checks hold ({suite})"
        lines.append(f"::notice title=prefdata::{_data(what)}")
    return lines


def markdown(suite: str, checks: Sequence[Check]) -> str:
    """A table for the summary of a job."""
    rows = [f"| {'✅' if c.ok else '❌'} | {_cell(c.name)} | {_cell(c.found)} |" for c in checks]
    return "\n".join([f"### prefdata: {_cell(suite)}", "", "| | check | found |", "| --- | --- | --- |", *rows, "", ""])


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _cell(text: str) -> str:
    return " ".join(re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False)).split())
