"""Ready-to-run training files for TRL, axolotl, OpenRLHF and LLaMA-Factory, in ``recipes/``."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from prefdata.errors import ConfigError, did_you_mean
from prefdata.files import put
from prefdata.pairs import Message, dump

NAMES = ("trl", "axolotl", "openrlhf", "llamafactory")
_EVERY = 100  # steps between two evaluations
_NOTE = "# Written by prefdata. Set the model, and run it from the folder where prefdata was run:\n# {}\n"
_LEFT_OUT = (
    "# {left:,} of {total:,} pairs of {name} are left out: LLaMA-Factory takes prompts in which user (or tool) and\n"
    "# assistant alternate, and answers of one message that is either text or tool calls.\n"
)
_KEYS = (
    "# Messages of this set have more than a role and a text (tool calls, names, parts). axolotl reads the role and the\n"
    "# text: the rest is left out, and so is the column tools. An answer without text stops it.\n"
)
_SEVERAL = "# {n:,} of the pairs to train on have an answer of several messages: {what}.\n"
# LLaMA-Factory's roles by their place in a prompt, which begins and ends with the first kind.
_PLACES = (("user", "tool"), ("assistant", "function_call"))


@dataclass(frozen=True)
class _Set:
    """The written dataset as recipes name it; ``held`` is the split to evaluate on."""

    out: str
    form: str
    train: str
    held: str | None
    max_length: int
    schema: pa.Schema
    several: int  # pairs to train on with an answer of several messages

    def json(self, *names: str) -> bool:
        """True if one of these columns (of all, without a name) is JSON, which ``datasets`` before 4.7 cannot read."""
        return any(isinstance(f.type, pa.JsonType) for f in self.schema if f.name in (names or self.schema.names))


def chosen(names: str) -> tuple[str, ...]:
    """``all``, ``none`` or a list such as ``trl,axolotl``."""
    if names in ("all", "none"):
        return NAMES if names == "all" else ()
    wanted = tuple(n.strip() for n in names.split(","))
    for name in wanted:
        if name not in NAMES:
            raise ConfigError(
                f"--export {name}: no such trainer",
                hint=did_you_mean(name, NAMES) or f"Known: {', '.join(NAMES)}, all, none",
            )
    return wanted


def write(out: Path, form: str, splits: Sequence[str], max_length: int, names: Sequence[str]) -> None:
    """The recipe files of these trainers for a dataset in this form (``text``, ``chat`` or ``implicit``).

    ``splits`` are those that hold rows. A set without a split to train on has no recipes.
    """
    train = _first(splits, "train")
    if train is None:
        return
    held = next((s for word in ("test", "valid", "eval", "dev") if (s := _first(splits, word))), None)
    parts = sorted((out / "data" / train).glob("*.parquet"))
    several = _several(parts, form) if form != "text" and {"axolotl", "openrlhf"} & set(names) else 0
    data = _Set(str(out), form, train, held, max_length, pq.read_schema(parts[0]), several)
    for name in names:
        _WRITERS[name](out / "recipes", data)


def _first(splits: Sequence[str], word: str) -> str | None:
    return word if word in splits else next((s for s in splits if s.startswith(word)), None)


def _several(parts: Sequence[Path], form: str) -> int:
    from prefdata.reading import values

    found = 0
    for path in parts:
        table = pq.read_table(path, columns=["chosen", "rejected"])
        for good, bad in zip(values(table.column("chosen")), values(table.column("rejected")), strict=True):
            found += good[:-1] != bad[:-1] if form == "implicit" else len(good) > 1 or len(bad) > 1
    return found


def _yaml(value: Mapping[str, Any], run: str, path: str, notes: str = "") -> str:
    stream = io.StringIO()
    writer = YAML()
    writer.representer.ignore_aliases = lambda _: True  # no anchors: every entry in full
    writer.default_flow_style = False
    writer.width = 4096  # a path is never folded
    writer.dump(dict(value), stream)
    return _NOTE.format(f"{run} {shlex.quote(path)}") + notes + stream.getvalue()


def _trl(home: Path, data: _Set) -> None:
    recipe: dict[str, Any] = {
        "model_name_or_path": "PATH_OR_NAME", "dataset_name": data.out, "dataset_train_split": data.train,
        "max_length": data.max_length, "beta": 0.1, "learning_rate": 1.0e-6, "num_train_epochs": 1,
        "bf16": False, "logging_steps": 10, "output_dir": "runs/dpo",
    }  # fmt: skip
    if data.held:
        recipe |= {"dataset_test_split": data.held, "eval_strategy": "steps", "eval_steps": _EVERY}
    text = _yaml(recipe, "trl dpo --config", f"{data.out}/recipes/trl_dpo.yaml")
    put(
        home / "trl_dpo.yaml",
        text + "# use_cpu: true     # on a machine without a GPU; on a recent GPU set bf16: true\n",
    )


def _axolotl(home: Path, data: _Set) -> None:
    entry: dict[str, Any] = {"path": data.out, "split": data.train, "type": "chat_template.argilla_chat"}
    if data.form != "implicit":
        entry |= {"type": "chat_template.default", "field_messages": "prompt"}
    if data.form != "text":  # its own list lacks two of them, and an unlisted role stops it
        entry["roles"] = {r: [r] for r in ("user", "assistant", "system", "developer", "tool", "function")}
    recipe: dict[str, Any] = {"base_model": "PATH_OR_NAME", "rl": "dpo", "datasets": [entry]}
    if data.held:
        recipe |= {"test_datasets": [entry | {"split": data.held}], "eval_steps": _EVERY}
    recipe |= {
        "sequence_len": data.max_length, "learning_rate": 1.0e-6, "num_epochs": 1, "micro_batch_size": 1,
        "gradient_accumulation_steps": 8, "output_dir": "runs/dpo",
    }  # fmt: skip
    notes = _KEYS if data.json("prompt", "chosen", "rejected") else ""
    notes += _SEVERAL.format(n=data.several, what="axolotl takes the last one alone") if data.several else ""
    put(home / "axolotl_dpo.yaml", _yaml(recipe, "axolotl train", f"{data.out}/recipes/axolotl_dpo.yaml", notes))


def _openrlhf(home: Path, data: _Set) -> None:
    """A script that finds the set by its own place, so that the folder may be moved."""
    flags = ['--data.dataset "$data"', f"--data.dataset_split {data.train}", f"--data.max_len {data.max_length}"]
    flags += ["--data.prompt_key prompt"] if data.form != "implicit" else []
    flags += ["--data.chosen_key chosen", "--data.rejected_key rejected"]
    flags += ["--data.apply_chat_template"] if data.form != "text" else []
    flags += [f'--eval.dataset "$data" --eval.split {data.held} --eval.steps {_EVERY}'] if data.held else []
    command = " \\\n  ".join(["python -m openrlhf.cli.train_dpo --model.model_name_or_path PATH_OR_NAME", *flags])
    notes = "# OpenRLHF does not read the column tools.\n" if "tools" in data.schema.names else ""
    if data.several and data.form == "implicit":
        notes += _SEVERAL.format(n=data.several, what="OpenRLHF takes the last one of chosen, behind the others")
    note = _NOTE.format("sh " + shlex.quote(f"{data.out}/recipes/openrlhf_dpo.sh"))
    put(
        home / "openrlhf_dpo.sh",
        f'#!/bin/sh\n{note}{notes}data=$(cd "$(dirname "$0")/.." && pwd)\n'
        'case $data in *[,@]*) echo "$data: OpenRLHF takes , and @ for marks of its own: rename it" >&2; exit 2 ;; esac\n'
        f"{command}\n",
    )


def _llamafactory(home: Path, data: _Set) -> None:
    """Text is read where it lies; what its ``datasets`` cannot read, and chat, has a copy in LLaMA-Factory's form."""
    folder = home / "llamafactory"
    copied = data.form != "text" or data.json()
    entry: dict[str, Any] = {
        "ranking": True, "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"},
    }  # fmt: skip
    if data.form != "text":
        tools = {"tools": "tools"} if "tools" in data.schema.names else {}
        entry |= {
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"} | tools,
            "tags": {
                "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
                "observation_tag": "tool", "function_tag": "function_call", "system_tag": "system",
            },
        }  # fmt: skip
    splits = {"prefs": data.train} | ({"prefs_test": data.held} if data.held else {})
    known, notes = {}, "# The template is the model's own, by its name in LLaMA-Factory.\n"
    for name, split in splits.items():
        if copied:
            left, total = _copy(home.parent / "data" / split, folder / f"{split}.jsonl", data.form)
            notes += _LEFT_OUT.format(left=left, total=total, name=split) if left else ""
        known[name] = {"file_name": f"{split}.jsonl" if copied else f"../../data/{split}", **entry}
    put(folder / "dataset_info.json", orjson.dumps(known, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    recipe: dict[str, Any] = {
        "model_name_or_path": "PATH_OR_NAME", "template": "default", "stage": "dpo", "do_train": True,
        "finetuning_type": "lora", "dataset_dir": f"{data.out}/recipes/llamafactory", "dataset": "prefs",
    }  # fmt: skip
    if data.held:
        recipe |= {"eval_dataset": "prefs_test", "eval_strategy": "steps", "eval_steps": _EVERY}
    recipe |= {
        "cutoff_len": data.max_length, "pref_beta": 0.1, "pref_loss": "sigmoid", "learning_rate": 5.0e-6,
        "num_train_epochs": 1, "output_dir": "runs/dpo",
    }  # fmt: skip
    path = f"{data.out}/recipes/llamafactory/dpo.yaml"
    put(folder / "dpo.yaml", _yaml(recipe, "llamafactory-cli train", path, notes))


_WRITERS: Mapping[str, Callable[[Path, _Set], None]] = {
    "trl": _trl, "axolotl": _axolotl, "openrlhf": _openrlhf, "llamafactory": _llamafactory,
}  # fmt: skip


def _copy(split: Path, target: Path, form: str) -> tuple[int, int]:
    """Write LLaMA-Factory's copy of a split; how many of its pairs are left out of it, and how many there are."""
    from prefdata.reading import values

    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    left = total = 0
    with part.open("wb") as file:
        for path in sorted(split.glob("*.parquet")):
            table = pq.read_table(path)
            names = [n for n in ("prompt", "chosen", "rejected", "tools") if n in table.column_names]
            for row in zip(*(values(table.column(n)) for n in names), strict=True):
                pair = dict(zip(names, row, strict=True))
                entry = {n: pair[n] for n in names[:3]} if form == "text" else _sharegpt(pair)
                total += 1
                if entry is None:
                    left += 1
                else:
                    file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
    part.rename(target)
    return left, total


def _sharegpt(pair: Mapping[str, Any]) -> dict[str, Any] | None:
    """A chat pair in LLaMA-Factory's form, the same keys in every row; None where that has no place for it."""
    good, bad, prompt = pair["chosen"], pair["rejected"], pair.get("prompt")
    if prompt is None:  # whole conversations: the prompt is all but the last message, where both sides agree in it
        if good[:-1] != bad[:-1]:
            return None
        prompt, good, bad = good[:-1], good[-1:], bad[-1:]
    if len(good) != 1 or len(bad) != 1:
        return None
    turns, answers = [_turn(m) for m in prompt], [_turn(good[0]), _turn(bad[0])]
    spoken = turns[1:] if turns and turns[0] and turns[0]["role"] == "system" else turns
    fits = len(spoken) % 2 == 1 and all(t and t["role"] in _PLACES[i % 2] for i, t in enumerate(spoken))
    if not fits or not all(a and a["role"] in _PLACES[1] for a in answers):
        return None
    entry: dict[str, Any] = {"conversations": turns, "chosen": answers[0], "rejected": answers[1]}
    if "tools" in pair:
        tools = pair["tools"]
        entry["tools"] = tools if isinstance(tools, str) else dump(tools, ordered=False) if tools else ""
    return entry


def _turn(message: Message) -> dict[str, str] | None:
    """A message in its words, where ``function_call`` holds calls as JSON; None for one that it cannot say."""
    role, content, calls = str(message["role"]), message.get("content"), message.get("tool_calls")
    if calls and not content:
        try:
            return {"role": "function_call", "content": dump([_call(c["function"]) for c in calls], ordered=False)}
        except (KeyError, TypeError, orjson.JSONDecodeError):  # not the form of the chat API
            return None
    if calls or not isinstance(content, str):
        return None
    return {"role": {"function": "tool", "developer": "system"}.get(role, role), "content": content}


def _call(function: Mapping[str, Any]) -> dict[str, Any]:
    given = function["arguments"]
    return {"name": function["name"], "arguments": orjson.loads(given) if isinstance(given, str) else given}
