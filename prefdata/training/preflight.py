"""Pre-flight in order: settings and tokenizer, cells, ids, then what needs the model; and the way of a file that was not cleaned."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefdata.errors import ConfigError, PrefdataError, first_line
from prefdata.output import MANIFEST
from prefdata.training import building, checks_data, checks_model, checks_settings, checks_tokens
from prefdata.training.checks import SHOWN, Case, Check, failed, skipped, words_of
from prefdata.training.models import Facts
from prefdata.training.prepare import Prepared, prepare, quiet
from prefdata.training.settings import Settings

DATA = "data"  # the cleaned set of a run that was given a file
_DEFAULT_WINDOW = 1024
_STOPS_IDS = ("no_rows", "non_text_cell", "mixed_form", "image_rows", "missing_end_token", "chat_template")
_IDS = ("template_refused", *words_of(checks_tokens.FIRST, checks_tokens.ALL))
_MODEL = ("trainer_refused", *words_of(checks_model.ALL))
_LIBRARIES = (ValueError, TypeError, RuntimeError, KeyError, IndexError, AttributeError, ImportError, OSError)


def cleaned(source: Any, home: Path, settings: Settings, facts: Facts, tokenizer: Any) -> None:
    """Run the certain checks over an input that was not cleaned, into ``home/data``. Raises what ``prefdata.clean`` raises."""
    from prefdata import clean

    out = home / DATA
    before = (out / MANIFEST).read_bytes() if (out / MANIFEST).is_file() else None
    window = settings.max_length or min(_DEFAULT_WINDOW, facts.positions or _DEFAULT_WINDOW)
    sets = [f"token_length.max_length={window}"]
    known = [f"token_length.tokenizer={settings.model}"] if tokenizer.eos_token is not None else []
    if known and settings.chat_template is not None:
        known.append(f"token_length.chat_template={settings.chat_template}")
    there = home.is_dir()
    try:
        try:
            clean(source, out, "certain", set=[*sets, *known], overwrite=True)
        except ConfigError:
            if tokenizer.chat_template or not known:
                raise
            clean(source, out, "certain", set=sets, overwrite=True)  # messages without a template: pre-flight says so
    except PrefdataError:
        if not there and home.is_dir():  # a mistake leaves no folder behind
            shutil.rmtree(home)
        raise
    if before is not None and _content(before) == _content((out / MANIFEST).read_bytes()):
        (out / MANIFEST).write_bytes(before)  # the same set again: a run that goes on knows it by its hash


def _content(manifest: bytes) -> Any:
    return {k: v for k, v in orjson.loads(manifest).items() if k != "run"}


def certain(home: Path) -> list[Check]:
    """What ``cleaned`` found: it fails where a pair did not pass. Those that did are in ``home/data`` even then, to be looked at;
    where there are none, every other check is skipped.
    """
    manifest = orjson.loads((home / DATA / MANIFEST).read_bytes())
    counts = manifest["counts"]
    pairs, dropped, kept = counts["pairs"], counts["dropped"], counts["kept"]
    if not dropped:
        return [Check("uncleaned_data", "ok", f"{pairs:,} pairs pass the certain checks")]
    table = [pq.read_table(p, columns=["pd_id"]) for p in sorted((home / DATA / "audit/dropped").glob("*.parquet"))]
    names = [str(i) for part in table for i in part["pd_id"].to_pylist()]
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in counts["reasons"].items())
    what = f"{dropped:,} of {pairs:,} pairs ({100 * dropped / pairs:.1f} %) do not pass the certain checks ({reasons}), {kept:,} are left"
    if "too_long" in counts["reasons"]:
        window = next(s["token_length"]["max_length"] for s in manifest["config"]["stages"] if "token_length" in s)
        column = "token_length.prompt_tokens"
        longest = pc.max(pq.read_table(home / DATA / "audit/signals.parquet", columns=[column])[column])
        what += f". max_length {window:,}, longest prompt {longest.as_py():,} tokens"
    found = [Check("uncleaned_data", "fail", what, tuple(names[:SHOWN]))]
    if not kept:
        words = words_of(checks_settings.ALL, checks_data.ALL)
        found += skipped((*words, *_IDS, *_MODEL), "after uncleaned_data: no pair is left")
    return found


def untidy(home: Path) -> None:
    """Take away the cleaned pairs of a run that is refused."""
    shutil.rmtree(home / DATA, ignore_errors=True)


def before_weights(case: Case, earlier: Sequence[Check] = ()) -> Iterator[Check]:
    """Settings, tokenizer, cells; then ids, made by TRL, and what is seen in them. What a failed check makes impossible is skipped."""
    found: list[Check] = []
    for look in (*checks_settings.ALL, *checks_data.ALL):
        found += look(case)
    stopped = [c.word for c in failed(found) if c.word in _STOPS_IDS]
    found += skipped(_IDS, f"after {stopped[0]}") if stopped else _ids(case, failed(found))
    yield from found
    if bad := failed([*earlier, *found]):
        yield from skipped(_MODEL, f"after {bad[0].word}")


def _ids(case: Case, earlier: list[Check]) -> Iterator[Check]:
    """Make the ids and look at them; where TRL or the chat template refuses a pair, for what an earlier check knows or by itself."""
    refused = _prepared(case)
    if refused is not None:
        yield from (
            skipped(_IDS, f"after {earlier[0].word}")
            if earlier
            else (refused, *skipped(_IDS[1:], "after template_refused"))
        )
        return
    n = sum(len(p.pairs) for p in (case.train, case.held) if p is not None)
    yield Check("template_refused", "ok", f"TRL makes ids of all {n:,} pairs")
    yield from checks_tokens.lost(case)
    if case.train is None or not len(case.train.dataset):
        yield from skipped(words_of(checks_tokens.ALL), "after rows_lost")
        return
    for look in checks_tokens.ALL:
        yield from look(case)


def _prepared(case: Case) -> Check | None:
    """Ids of both splits, or why there are none, with the first rows that are refused."""
    held = case.data.held if case.data.held is not None and len(case.data.held) else None
    made: list[Prepared | None] = []
    for name, pairs in (("train", case.data.train), ("eval", held)):
        try:
            made.append(prepare(pairs, case.tokenizer, case.plan.max_length, name) if pairs is not None else None)
        except Exception as error:  # a chat template raises whatever it likes, TRL whatever a cell gives
            rows = _refused(case, pairs)
            what = f"{name}: {len(rows) or 'some'} of {len(pairs or ()):,} pairs are refused: {first_line(error)}"
            return Check("template_refused", "fail", what, tuple(rows[:SHOWN]))
    case.train, case.held = made
    return None


def _refused(case: Case, pairs: Any) -> list[str]:
    """Ids of the pairs of which no ids can be made, each tried by itself."""
    out = []
    for i, name in enumerate(pairs.ids):
        rest = {k: v[i] for k, v in pairs.columns.items() if k in ("tools", "chat_template_kwargs")}
        options = {"tools": rest.get("tools"), **(rest.get("chat_template_kwargs") or {})}
        prompt, *sides = (pairs.columns[s][i] for s in ("prompt", "chosen", "rejected"))
        try:
            for side in sides if isinstance(prompt, list) else []:
                case.tokenizer.apply_chat_template(prompt + side, tokenize=False, **options)
            if isinstance(prompt, list):
                case.tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **options)
        except Exception:  # the template's own refusal
            out.append(name)
    return out


def with_model(case: Case, home: Path) -> list[Check]:
    """Build the trainer, and ask the model about a first batch; ``case.trainer`` is there where nothing is refused."""
    try:
        with quiet():
            case.trainer = building.trainer(case, home)
            case.trainer.get_optimizer_cls_and_kwargs(
                case.trainer.args, case.trainer.model
            )  # else refused at the first step only
    except _LIBRARIES as error:  # TRL, transformers and peft refuse settings each in its own way
        what = f"{type(error).__name__}: {first_line(error)}"
        return [Check("trainer_refused", "fail", what), *skipped(_MODEL[1:], "after trainer_refused")]
    found = [
        Check(
            "trainer_refused",
            "ok",
            f"TRL takes the settings ({case.settings.optim}, {'+'.join(case.settings.loss_type)})",
        )
    ]
    for look in checks_model.ALL:
        found += look(case)
    return found
