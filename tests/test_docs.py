"""The documentation is true: the blocks of every page are run, the reference pages are those the code gives, ``make demo`` works.

``python tests/test_docs.py [PAGE...]`` writes the outputs into the pages again, and the map into README.md.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SAMPLE = ROOT / "prefdata" / "samples" / "planted.jsonl"
BLOCK = re.compile(r"^```(console|python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|yaml))\n")  # the first line of a block that is saved under this name, not run
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SLOW = "<!-- slow -->"  # a page that says so in its first lines is run by the slow tests
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MAP = re.compile(r"(<!-- map -->\n).*(<!-- end of map -->)", re.DOTALL)
END = "=== end of output"

pytestmark = pytest.mark.skipif(not README.is_file(), reason="not a checkout: there is no README.md")


def environment(**more: str) -> dict[str, str]:
    """What a user's shell has, with this Python's commands first and nothing that colours or places output."""
    drop = {"PREFDATA_WORKERS", "PREFDATA_ONLINE", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "PYTHONPATH"}
    kept = {k: v for k, v in os.environ.items() if k not in drop}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        **more,
    }


def pages() -> list[str]:
    """Every page of Markdown, from the top of the checkout."""
    top = [p for p in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md") if (ROOT / p).is_file()]
    below = sorted(p.relative_to(ROOT).as_posix() for d in ("docs", "reports") for p in (ROOT / d).rglob("*.md"))
    return [*top, *below]


def kind_of(kind: str, text: str) -> str:
    """What is done with a block: console and python are run, a file is saved, yaml is for people."""
    return "file" if kind != "console" and FILE.match(text) else kind


def told(page: str) -> list[tuple[str, str]]:
    """The blocks of a page that are run or saved, in order: (console, python or file; text). Those of ``reports/`` take hours."""
    if page.startswith("reports/"):
        return []
    found = [(kind_of(kind, text), text) for kind, text in BLOCK.findall((ROOT / page).read_text("utf-8"))]
    return [(kind, text) for kind, text in found if kind != "yaml"]


def marked(page: str) -> Any:
    slow = SLOW in (ROOT / page).read_text("utf-8")[:400]
    return pytest.param(page, marks=pytest.mark.slow) if slow else page


# ---------------------------------------------------------------------------------------------- the blocks


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block with the lines below it."""
    out: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            out.append((line[2:], []))
        else:
            out[-1][1].append(line)
    return out


def normal(line: str) -> str:
    """A line without what differs between machines: seconds, gigabytes, cores, versions, installed extras."""
    line = re.sub(r"\d[\d.,]* (CPU s|s|GB|cores)\b", r"N \1", line)
    line = re.sub(r"\b\d+(\.\w+)+\b(?! ?%)", "V", line) if "Python" in line or "pyarrow" in line else line
    line = re.sub(r"Linux \w+", "Linux M", line)
    line = re.sub(r"^(  \[\w+\]) .*", r"\1 STATE", line)
    return line.rstrip()


def agrees(told: list[str], got: list[str]) -> bool:
    """True if the told lines are the ones got; a line of ``...`` stands for any lines."""
    pattern = "".join(r"(?:.*\n)*?" if t.strip() == "..." else re.escape(normal(t)) + r"\n" for t in told)
    return re.fullmatch(pattern, "".join(normal(g) + "\n" for g in got)) is not None


def abridged(told: list[str], got: list[str]) -> list[str]:
    """What README should say: as many lines before and behind ``...`` as it says now."""
    if "..." not in told or (len(told) == 1 == told.count("...") and len(got) < 12):
        return got
    at = told.index("...")
    head, tail = max(at, 8 if len(told) == 1 else 0), len(told) - at - 1
    return got if head + tail >= len(got) else [*got[:head], "...", *(got[-tail:] if tail else [])]


def prepared(page: str, folder: Path) -> tuple[Path, str]:
    """Where the blocks of a page begin, and what is run before them: README's stand at the top of a checkout, those of a page that
    begins with ``prefdata init`` in an empty folder, all others in the folder that ``prefdata init demo && cd demo`` makes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if page == "README.md":
        (folder / "prefdata/samples").mkdir(parents=True)
        shutil.copy(SAMPLE, folder / "prefdata/samples")
    begins = next((text for kind, text in told(page) if kind == "console"), "")
    plain = page == "README.md" or begins.startswith("$ prefdata init")
    return folder, "" if plain else "prefdata init demo > /dev/null && cd demo"


def session(page: str, folder: Path) -> list[list[str]]:
    """Run every block of a page in one shell, in order; the output lines of every command (or print) in order."""
    folder, before = prepared(page, folder)
    script = ["exec 2>&1", before]
    for i, (kind, text) in enumerate(told(page)):
        if kind == "console":
            for command, _ in commands(text):
                script.append(f'{command}\nrc=$?; printf "\\n%s\\n" "{END}"; (exit $rc)')
            continue
        path = folder / f"block{i}.py"
        path.write_text(text, encoding="utf-8")
        if kind == "file":
            named = FILE.match(text)
            assert named is not None
            script.append(f'cp "{path}" "{named[1]}"')
        else:
            script.append(f'python "{path}"; printf "\\n%s\\n" "{END}"')
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, stdin=subprocess.DEVNULL,
        env=environment(HF_HUB_OFFLINE="1", HF_HOME=str(folder / "hf"), HF_DATASETS_DISABLE_PROGRESS_BARS="1"),
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    outputs = done.stdout.split(f"\n{END}\n")
    return [o.rstrip("\n").splitlines() if o.strip() else [] for o in outputs[:-1]]


def printed(text: str) -> list[str]:
    """What the comments behind the prints of a Python block promise."""
    return [m[1] for line in text.splitlines() if (m := re.search(r"print\(.*\)  # (.*)$", line))]


@pytest.mark.parametrize("page", [marked(p) for p in pages() if told(p)])
def test_a_page_says_what_the_commands_say(page: str, tmp_path: Path) -> None:
    got = iter(session(page, tmp_path / "page"))
    wrong = []
    for kind, text in [b for b in told(page) if b[0] != "file"]:
        for command, lines in commands(text) if kind == "console" else [("python block", printed(text))]:
            found = next(got)
            if not agrees(lines, found):
                wrong.append(f"$ {command}\n--- {page}\n" + "\n".join(lines) + "\n--- now\n" + "\n".join(found))
    assert not wrong, f"python tests/test_docs.py {page} writes it again\n\n" + "\n\n".join(wrong)
    assert next(got, None) is None


# ---------------------------------------------------------------------------------------------- commands that are not run


def shell_commands(page: str) -> Iterator[list[str]]:
    """The words of each ``prefdata`` command in the ``sh`` blocks of a page."""
    for block in SHELL.findall((ROOT / page).read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in [*lexer, ";"]:
                if word and set(word) <= set("|&;<>"):
                    if words[:1] == ["prefdata"]:
                        yield words[1:]
                    words = []
                else:
                    words.append(word)


def parse(words: list[str]) -> None:
    """Have the command line's own parser read these words; raises what a user would be told."""
    import typer

    from prefdata import cli

    group: Any = typer.main.get_command(cli.app)
    with group.make_context("prefdata", cli._arranged(words)) as context:
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", pages())
def test_commands_in_pages_exist(page: str) -> None:
    for words in shell_commands(page):
        parse(words)


def test_a_command_that_does_not_exist_is_seen() -> None:
    for words in (
        ["clean", "in.jsonl", "out/", "--no-such-option"],
        ["clan", "in.jsonl", "out/"],
        ["clean", "a", "b", "--seed"],
    ):
        with pytest.raises(Exception, match=r"No such|requires an argument"):
            parse(words)


def module_map() -> str:
    """Every module of the package and what it is for, out of the docstrings."""
    from prefdata.stage import shipped

    lines = []
    for folder in ("", "shapes", "stages", "noise", "engines", "report", "training", "bench", "samples"):
        home = ROOT / "prefdata" / folder
        paths = [p for p in sorted(home.glob("*.py")) if p.stat().st_size]
        lines += ["", f"`prefdata/{folder}{'/' if folder else ''}`", ""]
        for path in paths:
            said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
            if folder == "stages" and path.stem in shipped():
                said = shipped()[path.stem].documentation()["asks"]
            first = re.split(r"(?<=[.?])\s|: ``python|\n\n", " ".join(said.split()) + " ")[0].rstrip(".:")
            lines.append(f"- `{path.name}`: {first.replace('``', '`')}")
    lines += [
        "", "Beside them: `prefdata/report/templates/` (the page's markup, style and script), `prefdata/samples/planted.jsonl` (the sample, and",
        "`planted.truth.json`, what is wrong with its rows), `pipelines/` (the shipped pipelines), `docs/` (all pages, and what makes the reference),",
        "`reports/` (figures and what makes them), `tests/`.", "",
    ]  # fmt: skip
    return "\n".join(lines).lstrip("\n") + "\n"


def test_readme_maps_every_file() -> None:
    found = MAP.search(README.read_text("utf-8"))
    assert found is not None
    assert found[0] == f"{found[1]}\n{module_map()}{found[2]}", "python tests/test_docs.py writes README again"


def test_readme_begins_with_what_matters() -> None:
    lines = README.read_text("utf-8").splitlines()
    first = lines[: lines.index("## Install")]
    assert len(first) <= 40
    assert lines[2] == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["description"]
    for path in re.findall(r'(?:srcset|src)="([^"]+)"', "\n".join(first)):
        assert (ROOT / path).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", path.read_text("utf-8"))):
        if re.match(r"https?:|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file) if file else path
        assert there.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page}: {target}"


def anchors(path: Path) -> set[str]:
    """What an address can lead to in a page: its headings, and ids."""
    text = FENCED.sub("", path.read_text("utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in heads}
    return plain | set(re.findall(r'id="([^"]+)"', text))


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs/README.md"
    linked = {
        (index.parent / t.partition("#")[0]).resolve() for t in re.findall(r"\]\(([^)\s]+)\)", index.read_text("utf-8"))
    }
    lost = [
        p for p in pages() if p.startswith("docs/") and p != "docs/README.md" and (ROOT / p).resolve() not in linked
    ]
    assert not lost, f"docs/README.md does not name {', '.join(lost)}"


# ---------------------------------------------------------------------------------------------- reference pages


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_pages_are_up_to_date() -> None:
    made = loaded(ROOT / "docs/make_reference.py").pages()
    for name, text in made.items():
        there = (ROOT / "docs/reference" / name).read_text("utf-8")
        assert there == text, f"docs/reference/{name}: run python docs/make_reference.py"
    assert {p.name for p in (ROOT / "docs/reference").glob("*.md")} == set(made)


def test_the_sample_report_is_up_to_date() -> None:
    import prefdata

    result = prefdata.audit(SAMPLE)
    stored = json.loads((ROOT / "reports/sample/audit/report.json").read_bytes())
    assert stored == result.report.model_dump(mode="json"), "make reports, or the command in reports/README.md"
    words = f"{result.counts['kept']} of {result.counts['pairs']} pairs kept"
    assert words in README.read_text("utf-8"), "the words beside the picture: python docs/make_pictures.py"


# ---------------------------------------------------------------------------------------------- offline, and make

_GUARD = """
import os, socket
def _refuse(self, address, *rest):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        with open(os.environ["ATTEMPTS"], "a") as file:
            file.write(f"{address}\\n")
        raise OSError("the network is closed")
    return _connect(self, address, *rest)
def _look_up(host, *rest, **more):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(f"{host}\\n")
    raise OSError("the network is closed")
_connect = socket.socket.connect
socket.socket.connect = socket.socket.connect_ex = _refuse
socket.getaddrinfo = _look_up
"""


def closed(command: list[str]) -> list[str]:
    """The command without a network at all, where the system allows it."""
    can = shutil.which("unshare") and subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
    return ["unshare", "--net", *command] if can else command


def test_the_demo_asks_for_no_network(tmp_path: Path) -> None:
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard/sitecustomize.py").write_text(_GUARD)
    env = environment(PYTHONPATH=str(tmp_path / "guard"), ATTEMPTS=str(tmp_path / "attempts"))
    env = {k: v for k, v in env.items() if not k.startswith(("HF_", "TRANSFORMERS_OFFLINE"))}  # as a user has it
    probe = "import socket; socket.create_connection(('localhost', 9))"
    subprocess.run([sys.executable, "-c", probe], env=env, capture_output=True)
    assert (tmp_path / "attempts").read_text() == "localhost\n"  # the guard works
    (tmp_path / "attempts").unlink()
    load = "from datasets import load_dataset; print(load_dataset('out')['train'].num_rows)"
    for command in (
        ["prefdata", "clean", str(SAMPLE), "out/"],
        ["prefdata", "report", "out"],
        [sys.executable, "-c", load],
    ):
        done = subprocess.run(closed(command), cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "attempts").exists(), (tmp_path / "attempts").read_text()


def test_make_knows_the_targets_of_readme() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for target in ("demo", "demo-train", "test"):
        done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "-m pytest" in done.stdout and "not slow" in done.stdout


def test_make_says_what_is_missing(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    (tmp_path / "python-old").write_text('#!/bin/sh\ncase "$2" in *version_info*) exit 1;; esac\n')
    (tmp_path / "python-bare").write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n')
    said = {"no-such-python": "there is no", "python-old": "older than 3.11", "python-bare": "apt install python3-venv"}
    for name, words in said.items():
        python = tmp_path / name
        if python.exists():
            python.chmod(0o755)
        done = subprocess.run(
            ["make", "demo", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"], cwd=ROOT, capture_output=True, text=True
        )  # fmt: skip
        assert done.returncode != 0 and words in done.stdout + done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_make_demo_in_a_fresh_clone(tmp_path: Path) -> None:
    """Installs from the registry; what git knows, or would add, is the clone."""
    for tool in ("make", "git"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    clone = tmp_path / "clone"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(["make", "demo"], cwd=clone, env=env, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{clone}/out/report.html" in done.stdout and (clone / "out/manifest.json").is_file()
    python = clone / ".venv/bin/python"
    for extra in ("torch", "numba", "ray", "wordllama"):
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({extra!r}) is not None)"
        assert subprocess.run([python, "-c", look]).returncode == 0, f"the base install brings {extra}"
    shown = next(text for _, text in told("README.md"))
    ran = done.stdout.splitlines()
    start = next(i for i, line in enumerate(ran) if line.startswith("pipeline:"))
    stop = next(i for i, line in enumerate(ran) if line.startswith("Open "))
    assert agrees([t.replace('"out/"', '"out"') for t in commands(shown)[0][1]], ran[start:stop])
    again = subprocess.run(
        closed([str(clone / ".venv/bin/prefdata"), "clean", str(SAMPLE), "again/"]),
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert again.returncode == 0, again.stdout + again.stderr


# ---------------------------------------------------------------------------------------------- writing pages again


def rewrite(page: str, folder: Path) -> None:
    """Put what the commands say now into a page."""
    path = ROOT / page
    got = iter(session(page, folder))

    def one(match: re.Match[str]) -> str:
        kind, body = kind_of(match[1], match[2]), match[2]
        lines = []
        if kind in ("file", "yaml"):
            return match[0]
        if kind == "console":
            for command, said in commands(body):
                found = next(got)
                assert not any("bug in prefdata" in line for line in found), f"{page}: {command}\n" + "\n".join(found)
                now = said if agrees(said, found) else [g.rstrip() for g in abridged(said, found)]
                lines += [f"$ {command}", *now]
        else:
            values = iter(next(got))
            for line in body.splitlines():
                lines.append(re.sub(r"(print\(.*\)  # ).*$", lambda m: (m[1] + next(values, "?")).rstrip(), line))
        return f"```{kind}\n" + "\n".join(lines) + "\n```"

    path.write_text(BLOCK.sub(one, path.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    for asked in sys.argv[1:] or [p for p in pages() if told(p)]:
        with tempfile.TemporaryDirectory() as scratch:
            rewrite(asked, Path(scratch) / "page")
    README.write_text(MAP.sub(lambda m: f"{m[1]}\n{module_map()}{m[2]}", README.read_text("utf-8")), encoding="utf-8")
