"""Ready-to-run training files for TRL, axolotl, OpenRLHF and LLaMA-Factory, in ``recipes/``."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from prefdata import sharegpt
from prefdata.errors import ConfigError, near_or_all
from prefdata.files import put, whole
from prefdata.output import dump
from prefdata.pairs import SIDES
from prefdata.reading import values

NAMES = ("trl", "axolotl", "openrlhf", "llamafactory")
_EVERY = 100  # steps between two evaluations
_NOTE = "# Written by prefdata. Set the model, and run it from the folder where prefdata was run:\n# {}\n"
_LEFT_OUT = "# {left:,} of {total:,} pairs of {name} are left out. LLaMA-Factory has no place for:\n{causes}"
_KEYS = (
    "# Messages of this set have more than a role and a text (tool calls, names, parts). axolotl reads the role and the\n"
    "# text: the rest is left out, and so is the column tools. An answer without text stops it.\n"
)
_SMOOTHED = "# Label smoothing as the stage reverse_pairs gives it. {how}\n"
_AOT = (
    "The sigmoid loss of TRL{of} ignores it,\n"
    "# and robust takes it back instead of making it. aot is the smoothed DPO loss where each step of a device sees one pair (it\n"
    "# sorts the margins of a batch, and one is sorted): leave the batch size at 1, and set the accumulation."
)
_WEIGHTED = "# The pairs have the column pd_weight. {} does not read it: all pairs count alike.\n"
_SEVERAL = "# {n:,} of the pairs to train on have an answer of several messages: {what}.\n"


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
    smoothing: float  # of labels; 0 for none

    def notes(self, trainer: str, how: str = "") -> str:
        """What is to be said of smoothing (``how`` this trainer does it) and of weights."""
        said = _SMOOTHED.format(how=how) if self.smoothing else ""
        return said + (_WEIGHTED.format(trainer) if "pd_weight" in self.schema.names else "")

    def write(self, name: str, run: str, recipe: Mapping[str, Any], above: str = "", below: str = "") -> None:
        """A recipe in YAML between comments; ``run`` is the command that takes it."""
        path = f"{self.out}/recipes/{name}"
        stream = io.StringIO()
        writer = YAML()
        writer.representer.ignore_aliases = lambda _: True  # no anchors: every entry in full
        writer.default_flow_style = False
        writer.width = 4096  # a path is never folded
        writer.dump(dict(recipe), stream)
        put(Path(path), _NOTE.format(f"{run} {shlex.quote(path)}") + above + stream.getvalue() + below)

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
            raise ConfigError(f"--export {name}: no such trainer", hint=near_or_all(name, (*NAMES, "all", "none")))
    return wanted


def write(
    out: Path, form: str, splits: Sequence[str], max_length: int, names: Sequence[str], smoothing: float = 0.0
) -> None:
    """The recipe files of these trainers for a dataset in this form (``text``, ``chat`` or ``implicit``).

    ``splits`` are those that hold rows; labels are to be smoothed by ``smoothing``. A set without a split to train on has no
    recipes.
    """
    train = _first(splits, "train")
    if train is None:
        return
    held = next((s for word in ("test", "valid", "eval", "dev") if (s := _first(splits, word))), None)
    parts = sorted((out / "data" / train).glob("*.parquet"))
    several = _several(parts, form) if form != "text" and {"axolotl", "openrlhf"} & set(names) else 0
    data = _Set(str(out), form, train, held, max_length, pq.read_schema(parts[0]), several, smoothing)
    writers = {"trl": _trl, "axolotl": _axolotl, "openrlhf": _openrlhf, "llamafactory": _llamafactory}
    for name in names:
        writers[name](data)


def _first(splits: Sequence[str], word: str) -> str | None:
    return word if word in splits else next((s for s in splits if s.startswith(word)), None)


def _several(parts: Sequence[Path], form: str) -> int:
    found = 0
    for path in parts:
        table = pq.read_table(path, columns=["chosen", "rejected"])
        for good, bad in zip(values(table.column("chosen")), values(table.column("rejected")), strict=True):
            found += good[:-1] != bad[:-1] if form == "implicit" else len(good) > 1 or len(bad) > 1
    return found


def _trl(data: _Set) -> None:
    recipe: dict[str, Any] = {
        "model_name_or_path": "PATH_OR_NAME", "dataset_name": data.out, "dataset_train_split": data.train,
        "max_length": data.max_length, "beta": 0.1, "learning_rate": 1.0e-6, "num_train_epochs": 1,
        "bf16": False, "logging_steps": 10, "output_dir": "runs/dpo",
    }  # fmt: skip
    if data.smoothing:
        recipe |= {
            "loss_type": ["aot"], "label_smoothing": data.smoothing, "per_device_train_batch_size": 1,
            "per_device_eval_batch_size": 1, "gradient_accumulation_steps": 8,
        }  # fmt: skip
    if data.held:
        recipe |= {"dataset_test_split": data.held, "eval_strategy": "steps", "eval_steps": _EVERY}
    cpu = "# use_cpu: true     # on a machine without a GPU; on a recent GPU set bf16: true\n"
    data.write("trl_dpo.yaml", "trl dpo --config", recipe, data.notes("TRL", _AOT.format(of="")), cpu)


def _axolotl(data: _Set) -> None:
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
    if data.smoothing:
        recipe |= {"dpo_loss_type": ["aot"], "dpo_label_smoothing": data.smoothing}
        recipe |= {"eval_batch_size": 1} if data.held else {}
    notes = data.notes("axolotl", _AOT.format(of=", which axolotl calls,"))
    notes += _KEYS if data.json("prompt", "chosen", "rejected") else ""
    notes += _SEVERAL.format(n=data.several, what="axolotl takes the last one alone") if data.several else ""
    data.write("axolotl_dpo.yaml", "axolotl train", recipe, notes)


def _openrlhf(data: _Set) -> None:
    """A script that finds the set by its own place, so that the folder may be moved."""
    flags = ['--data.dataset "$data"', f"--data.dataset_split {data.train}", f"--data.max_len {data.max_length}"]
    flags += ["--data.prompt_key prompt"] if data.form != "implicit" else []
    flags += ["--data.chosen_key chosen", "--data.rejected_key rejected"]
    flags += ["--data.apply_chat_template"] if data.form != "text" else []
    flags += [f'--eval.dataset "$data" --eval.split {data.held} --eval.steps {_EVERY}'] if data.held else []
    flags += [f"--model.label_smoothing {data.smoothing}"] if data.smoothing else []
    command = " \\\n  ".join(["python -m openrlhf.cli.train_dpo --model.model_name_or_path PATH_OR_NAME", *flags])
    notes = data.notes("OpenRLHF", "The DPO loss of OpenRLHF reads it.")
    notes += "# OpenRLHF does not read the column tools.\n" if "tools" in data.schema.names else ""
    if data.several and data.form == "implicit":
        notes += _SEVERAL.format(n=data.several, what="OpenRLHF takes the last one of chosen, behind the others")
    path = f"{data.out}/recipes/openrlhf_dpo.sh"
    note = _NOTE.format("sh " + shlex.quote(path))
    put(
        Path(path),
        f'#!/bin/sh\n{note}{notes}data=$(cd "$(dirname "$0")/.." && pwd)\n'
        'case $data in *[,@]*) echo "$data: OpenRLHF takes , and @ for marks of its own: rename it" >&2; exit 2 ;; esac\n'
        f"{command}\n",
    )


def _llamafactory(data: _Set) -> None:
    """Text is read where it lies; what its ``datasets`` cannot read, and chat, has a copy in LLaMA-Factory's form."""
    home = Path(data.out)
    chat, copied = data.form != "text", data.form != "text" or data.json()
    columns = ["chosen", "rejected"]
    if chat:
        columns += ["system", *(["tools"] if "tools" in data.schema.names else [])]
    splits = {"prefs": data.train} | ({"prefs_test": data.held} if data.held else {})
    known, notes = {}, data.notes("LLaMA-Factory", "The sigmoid loss of LLaMA-Factory reads it.")
    notes += "# The template is the model's own, by its name in LLaMA-Factory.\n"
    for name, split in splits.items():
        if copied:
            total, left = _copy(home / "data" / split, home / f"recipes/llamafactory/{split}.jsonl", data.form)
            causes = "".join(f"# - {cause} ({n:,})\n" for cause, n in left.most_common())
            notes += _LEFT_OUT.format(left=left.total(), total=total, name=split, causes=causes) if left else ""
        file_name = f"{split}.jsonl" if copied else f"../../data/{split}"
        known[name] = sharegpt.entry(file_name, columns, None if chat else "prompt")
    put(home / "recipes/llamafactory/dataset_info.json", dump(known))
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
    if data.smoothing:
        recipe |= {"dpo_label_smoothing": data.smoothing}
    data.write("llamafactory/dpo.yaml", "llamafactory-cli train", recipe, notes)


def _copy(split: Path, target: Path, form: str) -> tuple[int, Counter[str]]:
    """Write LLaMA-Factory's copy of a split; how many pairs there are, and how many it has no place for, by cause."""
    total, left = 0, Counter[str]()
    with whole(target) as part, part.open("wb") as file:
        for path in sorted(split.glob("*.parquet")):
            table = pq.read_table(path)
            names = [n for n in (*SIDES, "tools") if n in table.column_names]
            for row in zip(*(values(table.column(n)) for n in names), strict=True):
                pair = dict(zip(names, row, strict=True))
                total += 1
                try:
                    made = {side: pair[side] for side in SIDES} if form == "text" else _row(pair)
                except sharegpt.NoPlace as error:
                    left[str(error)] += 1
                else:
                    file.write(orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE))
    return total, left


def _row(pair: Mapping[str, Any]) -> dict[str, Any]:
    """A chat pair in LLaMA-Factory's form. Of whole conversations the prompt is all but the last message, where both agree."""
    prompt, chosen, rejected = pair.get("prompt"), pair["chosen"], pair["rejected"]
    if prompt is None:
        if chosen[:-1] != rejected[:-1]:
            raise sharegpt.NoPlace("an answer of several messages")
        prompt, chosen, rejected = chosen[:-1], chosen[-1:], rejected[-1:]
    row = sharegpt.row_of(prompt, chosen, rejected)
    return row | ({"tools": sharegpt.tools_text(pair["tools"])} if "tools" in pair else {})
