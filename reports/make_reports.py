"""Makes the sample reports again: ``python reports/make_reports.py [FOLDER]``, from the top of a checkout.

``sample/`` is an audit of the shipped sample; ``cleaned/`` is the sample cleaned with every stage, held out in part, judged by two
(invented) people and compared with the audit; ``diff.html`` is the comparison alone. Of ``cleaned`` only the report is left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
SAMPLE = "prefdata/samples/planted.jsonl"
LEFT = {"report.html", "manifest.json", "report.json", "review.json", "compare.json"}


def prefdata(*words: str) -> None:
    """One command of prefdata, at the top of the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PREFDATA_WORKERS": "1"}
    subprocess.run([sys.executable, "-m", "prefdata", "-q", *words], cwd=ROOT, env=environment, check=True)


def verdicts(out: Path, reviewer: str, wrong: int) -> list[str]:
    """An invented reviewer's verdicts on the spot-check of a run: every so manieth pair is a bad one."""
    sheet = json.loads((out / "audit/report.json").read_bytes())["spotcheck"]
    said = [
        {
            "sheet": sheet["id"], "row": row["row"], "pd_id": row["pd_id"], "key": row["key"], "mode": "open",
            "verdict": "reject" if at % wrong == 0 else "unsure" if at % 23 == 7 else "accept",
            "reviewer": reviewer, "note": "", "time": "2026-12-07T12:00:00Z",
        }
        for at, row in enumerate(sheet["rows"])
    ]  # fmt: skip
    return [json.dumps(line) for line in said]


def make(home: Path) -> None:
    """All of them, into this folder."""
    where = Path(os.path.relpath(home, ROOT)) if home.is_relative_to(ROOT) else home
    sample, cleaned = where / "sample", where / "cleaned"
    prefdata("audit", SAMPLE, str(sample), "--overwrite")
    shutil.rmtree(home / "cleaned", ignore_errors=True)
    prefdata(
        "clean",
        SAMPLE,
        str(cleaned),
        "-p",
        "full",
        "--split",
        "test=0.1",
        "--gate",
        "kept>=60%",
        "--gate",
        "likely_flipped<=5%",
    )
    prefdata("diff", str(sample), str(cleaned), "--html", str(where / "diff.html"))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{who}.jsonl" for who in ("anna", "li")]
        for path, wrong in zip(files, (9, 11), strict=True):
            path.write_text("\n".join(verdicts(home / "cleaned", path.stem, wrong)) + "\n", encoding="utf-8")
        prefdata("review", str(cleaned), "--import", str(files[0]), "--import", str(files[1]))
    prefdata("report", str(cleaned), "--against", str(sample))
    for path in sorted((home / "cleaned").rglob("*"), reverse=True):
        if path.is_file() and path.name not in LEFT:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE)
