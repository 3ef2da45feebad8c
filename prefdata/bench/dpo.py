"""Does training on cleaned pairs do better than on raw ones? A tiny model, planted wrong labels, the shipped job; and what guards cost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from prefdata.bench import guard_cost, phrases, tables

JOB = "clean_then_train"
SETS = (
    "clean.split=null", "train.method=full", "train.max_steps=60", "train.batch_size=16", "train.micro_batch_size=16",
    "train.learning_rate=5e-4", "train.eval_steps=60", "train.logging_steps=10", "train.device=cpu", "train.probes=0",
    "evaluate.against_raw=true",
)  # fmt: skip
HAND = "<!-- By hand: what stands below this line is kept when the report is made again. -->"
GUARDS_AT_MOST = 0.03
Say = Callable[[str], None]


def measure(
    scratch: Path, pairs: int, held: int, share: float, seeds: int, model: str | None, cost: bool, say: Say
) -> dict[str, Any]:
    """Run the job, and the guards' cost on a real model where there is one (``model``: its folder)."""
    began = time.monotonic()
    found = worth(scratch, pairs, held, share, seeds, say)
    found["seconds"] = round(time.monotonic() - began)
    if cost:
        real = model or guard_cost.real_model(scratch)
        found["guards"] = guard_cost.measure(real, scratch) if real else None
    return found


def worth(scratch: Path, pairs: int, held: int, share: float, seeds: int, say: Say) -> dict[str, Any]:
    """Plant flips, run the shipped job, and read what its steps found."""
    from prefdata import job_ready, jobs
    from prefdata.job_file import read

    flipped = {str(i) for i in phrases.write(scratch / "raw", pairs, held, share, seed=1)}
    rows = [json.loads(line) for line in (scratch / "raw/train.jsonl").read_text("utf-8").splitlines()]
    model = phrases.save_model(scratch / "model", [text for row in rows for text in row.values()])
    out = scratch / "job"
    sets = [*SETS, f"label_noise.rate={share}", f"evaluate.seeds={seeds}", f"train.model={model}"]
    done = jobs.run(job_ready.ready(read(JOB, [str(scratch / "raw")], out, sets)), tell=say, say=say)
    evaluation = json.loads((out / "evaluation.json").read_bytes()) if done.ok else {}
    flagged = _flagged(out / "clean")
    return {
        "pairs": pairs, "held": held, "flips": len(flipped), "dropped": len(flagged), "right": len(flagged & flipped),
        "ok": done.ok, "worth": evaluation.get("worth", {}), "stopped": "" if done.ok else done.steps[-1].text,
    }  # fmt: skip


def _flagged(cleaned: Path) -> set[str]:
    """Pairs that label_noise dropped."""
    found: set[str] = set()
    for path in (cleaned / "audit/dropped").glob("*.parquet"):
        part = pq.read_table(path, columns=["pd_id", "pd_stage"]).to_pylist()
        found |= {r["pd_id"] for r in part if r["pd_stage"] == "label_noise"}
    return found


def markdown(found: dict[str, Any], command: str) -> str:
    """The report, without what depends on the machine but the time that guards take."""
    w, lines = (
        found["worth"],
        ["# Training: what cleaning is worth, and what guards cost", "", "```console", f"$ {command}", "```", ""],
    )
    lines += [
        f"A tiny random model, {found['pairs']:,} made pairs, {found['flips']:,} labels turned round"
        f" ({found['flips'] / found['pairs']:.0%}), {found['held']:,} held-out pairs with right labels; in a quarter of the pairs"
        f" nothing tells the better answer from the worse. `prefdata run {JOB}` cleans, trains,"
        " and trains again on the cleaned and on the raw pairs with each seed: same held-out pairs, same settings, same number of steps.", "",
        f"`label_noise`, which was told the rate, dropped {found['dropped']:,} pairs, {found['right']:,} of them turned round: it found"
        f" {found['right'] / max(found['flips'], 1):.1%} of the planted flips, and {found['right'] / max(found['dropped'], 1):.1%} of what it"
        " dropped was one.", "",
    ]  # fmt: skip
    if not w:
        return "\n".join([*lines, f"The job stopped: {found['stopped']}", ""])
    rows = [
        [arm, str(r["seed"]), str(r["steps"]), f"{r['margin']:.3f}", f"{r['margin_low']:.3f} to {r['margin_high']:.3f}", f"{r['accuracy']:.3f}", f"{r['reference_accuracy']:.3f}", f"{r['loss']:.3f}"]
        for arm, some in w["runs"].items() for r in some
    ]  # fmt: skip
    lines += [
        *tables.markdown("trained on, seed, steps, margin, 95 % of it, accuracy, chosen likelier, loss", rows),
        "",
    ]
    m = w["margin"]
    if "difference" in m:
        lines += [
            f"Held-out margin: cleaned {m['cleaned']:.3f}, raw {m['raw']:.3f}, difference **{m['difference']:.3f}**; A/A spread (the"
            f" largest difference between two seeds of one kind) {m['aa_spread']:.3f}. Verdict: **{w['verdict']}**.", "",
        ]  # fmt: skip
    lines += ["What this does not say: how well wrong labels of real sets are found. `label_noise.md` does.", ""]
    return "\n".join([*lines, *_guards(found.get("guards"))])


def _guards(g: dict[str, Any] | None) -> list[str]:
    if g is None:
        return []
    fine = "reached" if g["share"] < GUARDS_AT_MOST else "missed"
    return [
        "## Guards", "",
        f"SmolLM2-135M-Instruct, LoRA, float32, {guard_cost.PAIRS} pairs of {guard_cost.LENGTH} tokens, on the CPU; steps with and without"
        f" recorder and guards in turn in one training, {g['steps']} of each:"
        f" {g['with']:.2f} s with, {g['without']:.2f} s without (medians), ratio of neighbours {g['ratio']:.3f} (its noise is that of the"
        f" machine). Timed directly, all hooks together take {1000 * g['hooks']:.1f} ms a step, the look at all parameters included:"
        f" **{g['share']:.2%}** of a step (must be < {GUARDS_AT_MOST:.0%}: {fine}).", "",
    ]  # fmt: skip


def written(path: Path, text: str) -> str:
    """``text`` with what was written by hand into the report at ``path``."""
    old = path.read_text("utf-8") if path.is_file() else ""
    by_hand = old[old.index(HAND) :] if HAND in old else f"{HAND}\n"
    return f"{text}\n{by_hand}"
