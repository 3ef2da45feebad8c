"""The page of ``prefdata diff``: the comparison alone, in one file that needs nothing else."""

from __future__ import annotations

from prefdata.report.compare import Compare
from prefdata.report.render import HOME, JSDIFF, digest, environment


def page(compare: Compare) -> str:
    """The page with every example pair of the comparison."""
    read = {n: (HOME / n).read_text("utf-8") for n in ("style.css", "compare.css", JSDIFF, "diff.js", "compare.js")}
    licence = (HOME / "vendor/jsdiff-LICENSE.txt").read_text("utf-8")
    style = f"{read['style.css']}\n{read['compare.css']}"
    script = f"/*! jsdiff 9.0.0, https://github.com/kpdecker/jsdiff\n\n{licence}*/\n{read[JSDIFF]}\n{read['diff.js']}\n{read['compare.js']}"
    return environment().get_template("diff.html.j2").render(
        compare=compare, shown=len(compare.rows), alone=True, rows={}, style=style, script=script, style_hash=digest(style),
        script_hash=digest(script),
    )  # fmt: skip
