"""What was written: the output folder read back as a user reads it."""

import hashlib
import json
import shutil
from pathlib import Path


def write_lines(path, rows):
    """Rows as JSON lines."""
    path = Path(path)
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8", newline="")
    return path


def loaded(out, config=None, split="train"):
    """A written set as a user gets it: the rows of ``load_dataset``."""
    from datasets import load_dataset

    found = load_dataset(str(out), *([config] if config else []), split=split)
    assert len(found) > 0
    return [found[i] for i in range(len(found))]


def kept(out, split="train"):
    """The kept rows by id, in their order."""
    return {r["id"]: r for r in loaded(out, split=split)}


def dropped(out):
    """The dropped rows, or none where the folder says that there are none."""
    return loaded(out, "dropped") if (Path(out) / "audit/dropped").exists() else []


def reasons(out):
    """``{id: reason}`` of the dropped rows; a line that could not be read is called by its number."""
    return {r.get("id") or f"line {r['pd_line']}": r["pd_code"] for r in dropped(out)}


def bytes_of(out, *parts):
    """sha256 of every file below these parts of a folder, by name."""
    found = {}
    for part in parts or ("data",):
        path = Path(out) / part
        for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
            found[str(file.relative_to(out))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def report_of(out):
    """``audit/report.json``."""
    return json.loads((Path(out) / "audit/report.json").read_bytes())


def cleaning_again_changes_nothing(out, **options):
    """Clean the output: nothing is dropped, and the data are the same bytes."""
    import prefdata

    again = Path(f"{out}-again")
    result = prefdata.clean(str(out), again, **options)
    assert result.counts["dropped"] == 0, result.counts
    first, second = bytes_of(out), bytes_of(again)
    assert first and first == second
    shutil.rmtree(again)
