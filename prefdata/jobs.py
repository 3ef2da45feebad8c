"""Jobs: clean, gate, train, evaluate, report, each step only where what it is made of has changed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefdata import baseline, job_summary
from prefdata.errors import ConfigError, OutputError, PrefdataError
from prefdata.files import put
from prefdata.job_files import content, held_in, texts, without_run
from prefdata.job_ready import STEPS, Ready
from prefdata.job_state import State, digest, locked
from prefdata.output import MANIFEST, dump
from prefdata.result import Progress
from prefdata.run import run as clean_run

Tell = Callable[[str], None]


@dataclass
class Step:
    """What became of a step: ``did`` is ran, unchanged or failed, in a plan also run, skip and perhaps; ``text`` says it to people."""

    name: str
    did: str
    text: str
    seconds: float = 0.0

    def line(self) -> str:
        """For the terminal."""
        mark = {"unchanged": "=", "skip": "=", "failed": "✗", "perhaps": "?"}.get(self.did, "+")
        spent = f"   {self.seconds:.1f} s" if self.did in ("ran", "failed") and self.seconds >= 0.05 else ""
        return f"{mark} {self.name:<9} {self.text}{spent}"


@dataclass
class Done:
    """How a job ended, or with ``--dry-run`` what it would do."""

    job: str
    out: Path
    steps: list[Step] = field(default_factory=list)
    error: str = ""

    @property
    def ok(self) -> bool:
        """True if every step that was asked for is done."""
        return not self.error and all(s.did != "failed" for s in self.steps)

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {"job": self.job, "out": str(self.out), "ok": self.ok, "error": self.error, "steps": [vars(s) for s in self.steps]}  # fmt: skip


class Work:
    """One job at work in its folder. A step's result counts only once ``job.json`` says that it is complete."""

    def __init__(self, given: Ready, forced: Sequence[str], tell: Tell, say: Tell, progress: Progress | None) -> None:
        self.ready, self.forced, self.tell, self.say, self.progress = given, forced, tell, say, progress
        self.home = given.job.output
        self.clean, self.run = self.home / "clean", self.home / "run"
        self.state = State(self.home)
        self.state.job = given.job.name
        self.done = Done(given.job.name, self.home)
        for step, folder in (("clean", self.clean), ("train", self.run)):
            if step not in self.state.steps and folder.exists() and any(folder.iterdir()):
                raise OutputError(
                    "is there already, and no job made it", where=str(folder), hint="Give another --output."
                )

    # ------------------------------------------------------------------------------------------- what steps are made of

    def of_clean(self) -> dict[str, str]:
        """The hashes that clean depends on."""
        config = self.ready.pipeline.resolved()
        named = [text for text in texts(config) if ("/" in text or "." in text) and Path(text).expanduser().exists()]
        return {
            "input": self.state.of_paths(self.ready.job.input), "pipeline": digest(config),
            "options": digest(self.ready.options.settings()), "files_it_names": self.state.of_paths(named), "prefdata": version("prefdata"),
            **({} if (b := self.ready.options.baseline) is None else {"baseline": digest([baseline.content(Path(b)), self.ready.options.tolerance])}),
        }  # fmt: skip

    def of_train(self) -> dict[str, str]:
        """The hashes that training depends on."""
        settings = self.ready.settings
        assert settings is not None
        values = settings.model_dump(mode="json")
        named = [
            str(v)
            for k in ("chat_template", "replay", "forgetting", "reference")
            if (v := values[k]) and Path(str(v)).exists()
        ]
        place = Path(settings.model).expanduser()
        return {
            "cleaned_set": digest(content(self.clean)), "settings": digest(values),
            "model": self.state.of_paths([str(place)]) if place.exists() else settings.model,
            "files_it_names": self.state.of_paths(named), "prefdata": version("prefdata"),
        }  # fmt: skip

    def of_evaluate(self) -> dict[str, str]:
        """The hashes that the evaluation depends on."""
        asked = self.ready.job.evaluate
        return {"training": digest(self.of_train()), "options": digest(asked.values if asked else {})}

    def why(self, step: str, made_of: Mapping[str, str], whole: bool) -> str:
        """Why the step must run; empty if its result stands."""
        status = self.state.status(step, made_of)
        if step in self.forced:
            return "asked for"
        if status == "complete" and whole:
            return ""
        if (changed := self.state.changed(step, made_of)) != "unchanged":
            return changed
        return {"running": "was interrupted", "failed": "failed last time"}.get(status, "its result is gone or changed")

    def clean_is_whole(self) -> bool:
        """True if the cleaned folder is as it was written."""
        manifest = content(self.clean)
        paths = {self.clean / name: held for name, held in manifest.get("files", {}).items()}
        return bool(manifest) and all(p.is_file() and self.state.of_file(p) == held for p, held in paths.items())

    def train_is_whole(self) -> bool:
        """True if the run has its record and its model."""
        return held_in(self.run / "train.json").get("status") == "complete" and any((self.run / "model").glob("*.safetensors*"))  # fmt: skip

    # ------------------------------------------------------------------------------------------- the steps

    @contextmanager
    def recorded(self, step: str, made_of: Mapping[str, str], why: str) -> Iterator[Step]:
        """A step at work: running, then complete, or failed if it says so or raises what a user can mend."""
        out, begun = Step(step, "ran", why), time.monotonic()
        self.state.write(step, "running", made_of)
        try:
            yield out
        except PrefdataError:
            self.state.write(step, "failed", made_of)
            raise
        out.seconds = round(time.monotonic() - begun, 1)
        self.state.write(step, "failed" if out.did == "failed" else "complete", made_of, seconds=out.seconds)
        self._add(out)

    def _add(self, step: Step) -> None:
        self.done.steps.append(step)
        self.tell(step.line())

    def step_clean(self) -> None:
        """Clean, or go on with a clean that was interrupted."""
        made_of = self.of_clean()
        if not (why := self.why("clean", made_of, self.clean_is_whole())):
            self._add(Step("clean", "unchanged", "unchanged"))
            return
        parts = (self.clean / ".work").is_dir()
        resume = parts and (self.ready.options.keep_scratch or self.state.status("clean", made_of) == "running")
        before = (self.clean / MANIFEST).read_bytes() if (self.clean / MANIFEST).is_file() else b""
        with self.recorded("clean", made_of, why) as step:
            options = replace(self.ready.options, resume=resume, overwrite=not resume)
            given = self.ready.job.input
            result = clean_run("clean", given, self.clean, self.ready.pipeline, options, self.progress, self.say)
            if before and without_run(before) == content(self.clean):
                put(self.clean / MANIFEST, before)  # the same set again: what was trained on it knows it by its hash
            for name, held in content(self.clean).get("files", {}).items():
                self.state.remember(self.clean / name, held)
            counts = result.counts
            step.text = f"kept {counts['kept']:,} of {counts['pairs']:,} pairs ({why})"

    def step_gate(self) -> None:
        """The gates, as clean has found them."""
        manifest = content(self.clean)
        gates = manifest.get("gates", [])
        bad = [f"{g['gate']} does not hold: {g['text']}" for g in gates if not g["ok"]]
        if manifest.get("status") == "empty":
            bad.append(f"no pair is left, see {self.clean}/report.html")
        text = "; ".join(bad) or ", ".join(f"{g['gate']} {g['text']}" for g in gates) or "no gate"
        self._add(Step("gate", "failed" if bad else "ran", text))

    def step_train(self) -> None:
        """Train, or go on from the last checkpoint of a training that was interrupted."""
        from prefdata.training import dpo

        made_of = self.of_train()
        if not (why := self.why("train", made_of, self.train_is_whole())):
            self._add(Step("train", "unchanged", "unchanged"))
            return
        resume = self.state.status("train", made_of) == "running" and self._checkpoints()
        with self.recorded("train", made_of, why) as step:
            assert self.ready.settings is not None
            ended = dpo.train(
                str(self.clean), self.run, self.ready.settings, resume=resume, overwrite=not resume, say=self.say
            )
            step.text = f"{job_summary.trained(held_in(self.run / 'train.json'))} ({why})"
            if not ended.ok:
                step.did = "failed"

    def _checkpoints(self) -> bool:
        """Whether there is a whole checkpoint; those that were being written when the run was killed are taken away."""
        there = list((self.run / "checkpoints").glob("checkpoint-*"))
        broken = [c for c in there if not held_in(c / "trainer_state.json")]  # written last
        for path in broken:
            shutil.rmtree(path)
        return len(there) > len(broken)

    def step_evaluate(self) -> None:
        """What training changed; where asked, trained again with other seeds and on the raw pairs."""
        made_of, target = self.of_evaluate(), self.home / "evaluation.json"
        if not (why := self.why("evaluate", made_of, bool(held_in(target)))):
            self._add(Step("evaluate", "unchanged", "unchanged"))
            return
        with self.recorded("evaluate", made_of, why) as step:
            record = held_in(self.run / "train.json")
            found = {k: record.get(k) for k in ("before", "after", "averaged")}
            found |= self._worth()
            put(target, dump(found))
            step.text = f"{job_summary.evaluated(found)} ({why})"

    def _worth(self) -> dict[str, Any]:
        asked = {} if self.ready.job.evaluate is None else self.ready.job.evaluate.values
        seeds, settings = asked.get("seeds", 1), self.ready.settings
        assert settings is not None
        seeds = list(range(settings.seed, settings.seed + seeds)) if isinstance(seeds, int) else seeds
        if not asked.get("against_raw") and len(seeds) < 2:
            return {}
        from prefdata.training import worth

        place = self.home / "evaluation"
        return {"worth": worth.measure(self.clean, place, settings, seeds, bool(asked.get("against_raw")), self.say)}

    def step_report(self) -> None:
        """``summary.md``, made again each time."""
        record, found = held_in(self.run / "train.json"), held_in(self.home / "evaluation.json")
        trained = self.ready.settings is not None
        text = job_summary.page(self.done.job, content(self.clean), record if trained else {}, found if trained else {})
        put(self.home / "summary.md", text)
        pages = [self.home / "summary.md", self.clean / "report.html", *([self.run / "train.html"] if trained else [])]
        self._add(Step("report", "ran", "   ".join(str(p) for p in pages if p.exists())))


def run(
    given: Ready, *, start: str | None = None, until: str | None = None, tell: Tell, say: Tell, progress: Progress | None = None
) -> Done:  # fmt: skip
    """Run the steps up to ``until``; those from ``start`` on run even if nothing has changed. A failed one ends the job."""
    steps, forced = _asked(given, start, until)
    with locked(given.job.output):
        work = Work(given, forced, tell, say, progress)
        for step in steps:
            getattr(work, f"step_{step}")()
            if not work.done.ok:
                break
        return work.done


def _asked(given: Ready, start: str | None, until: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The steps to go through, and those that must run."""
    for option, step in (("--from", start), ("--until", until)):
        if step is not None and step not in given.steps:
            why = " of this job" if step in STEPS else ""
            raise ConfigError(f"{option} {step}: no step{why}", hint=f"Steps: {', '.join(given.steps)}")
    steps = given.steps if until is None else given.steps[: given.steps.index(until) + 1]
    if start is not None and start not in steps:
        raise ConfigError(f"--from {start} --until {until}: the job would end before it begins")
    return steps, steps[steps.index(start) :] if start is not None else ()


def plan(given: Ready, start: str | None = None, until: str | None = None) -> Done:
    """What ``run`` would do, and why; writes nothing."""
    steps, forced = _asked(given, start, until)
    work = Work(given, forced, print_nothing, print_nothing, None)
    before = ""
    of: dict[str, Callable[[], dict[str, str]]] = {
        "clean": work.of_clean,
        "train": work.of_train,
        "evaluate": work.of_evaluate,
    }
    whole: dict[str, Callable[[], bool]] = {"clean": work.clean_is_whole, "train": work.train_is_whole, "evaluate": lambda: bool(held_in(work.home / "evaluation.json"))}  # fmt: skip
    for step in steps:
        if step not in of:
            work.done.steps.append(Step(step, "run", "always" if step == "report" else f"{len(given.pipeline.gates)} to check"))  # fmt: skip
            continue
        why = work.why(step, of[step](), whole[step]())
        if before and step in work.state.steps and step not in forced:
            work.done.steps.append(Step(step, "perhaps", f"if {before} gives another result" + (f"; {why}" if why else "")))  # fmt: skip
        else:
            work.done.steps.append(Step(step, "run" if why else "skip", why or "unchanged"))
        before = before or (step if why else "")
    return work.done


def print_nothing(text: str) -> None:
    """For a plan, which says everything at its end."""
