"""Ready-to-run training files for TRL, axolotl, OpenRLHF and LLaMA-Factory, in ``recipes/``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from prefdata.errors import ConfigError, did_you_mean
from prefdata.output import put

NAMES = ("trl", "axolotl", "openrlhf", "llamafactory")
_NOTE = "# Written by prefdata. Set the model, and run it from the folder where prefdata was run:\n# {}\n"


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
    """The recipe files of these trainers for a dataset in this form (``text``, ``chat`` or ``implicit``)."""
    home = out / "recipes"
    for name in names:
        for path, content in _WRITERS[name](str(out), form, splits, max_length):
            put(home / path, content)
    if "llamafactory" in names and form == "chat":
        put(home / "llamafactory/train.jsonl", b"".join(_sharegpt(out / "data/train")))


def _yaml(value: Mapping[str, Any], run: str, out: str, path: str) -> str:
    import io

    stream = io.StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.dump(dict(value), stream)
    return _note(run, out, path) + stream.getvalue()


def _note(run: str, out: str, path: str) -> str:
    return _NOTE.format(f"{run} {shlex.quote(f'{out}/recipes/{path}')}")


def _trl(out: str, form: str, splits: Sequence[str], max_length: int) -> Iterator[tuple[str, str]]:
    recipe: dict[str, Any] = {
        "model_name_or_path": "PATH_OR_NAME", "dataset_name": out, "dataset_train_split": "train",
        "max_length": max_length, "beta": 0.1, "learning_rate": 1.0e-6, "num_train_epochs": 1,
        "bf16": False, "logging_steps": 10, "output_dir": "runs/dpo",
    }  # fmt: skip
    if "test" in splits:
        recipe |= {"dataset_test_split": "test", "eval_strategy": "steps", "eval_steps": 100}
    yield (
        "trl_dpo.yaml",
        _yaml(recipe, "trl dpo --config", out, "trl_dpo.yaml")
        + "# use_cpu: true     # on a machine without a GPU; on a recent GPU set bf16: true\n",
    )


def _axolotl(out: str, form: str, splits: Sequence[str], max_length: int) -> Iterator[tuple[str, str]]:
    kind = "chat_template.argilla_chat" if form == "implicit" else "chat_template.default"
    dataset = {"path": out, "split": "train", "type": kind}
    if form != "implicit":
        dataset["field_messages"] = "prompt"
    yield "axolotl_dpo.yaml", _yaml({
        "base_model": "PATH_OR_NAME", "rl": "dpo", "datasets": [dataset], "sequence_len": max_length,
        "learning_rate": 1.0e-6, "num_epochs": 1, "micro_batch_size": 1, "gradient_accumulation_steps": 8,
        "output_dir": "runs/dpo",
    }, "axolotl train", out, "axolotl_dpo.yaml")  # fmt: skip


def _openrlhf(out: str, form: str, splits: Sequence[str], max_length: int) -> Iterator[tuple[str, str]]:
    flags = [f"--data.dataset {shlex.quote(out)}", "--data.dataset_split train", "--data.max_len " + str(max_length)]
    flags += ["--data.prompt_key prompt"] if form != "implicit" else []
    flags += ["--data.chosen_key chosen", "--data.rejected_key rejected"]
    flags += ["--data.apply_chat_template"] if form != "text" else []
    lines = " \\\n  ".join(["python -m openrlhf.cli.train_dpo --model.model_name_or_path PATH_OR_NAME", *flags])
    yield "openrlhf_dpo.sh", f"#!/bin/sh\n{_note('sh', out, 'openrlhf_dpo.sh')}{lines}\n"


def _llamafactory(out: str, form: str, splits: Sequence[str], max_length: int) -> Iterator[tuple[str, str]]:
    if form == "implicit":  # its loader has no such form
        return
    if form == "text":
        entry: dict[str, Any] = {
            "file_name": "../../data/train", "ranking": True,
            "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"},
        }  # fmt: skip
    else:
        entry = {
            "file_name": "train.jsonl", "formatting": "sharegpt", "ranking": True,
            "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"},
            "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"},
        }  # fmt: skip
    yield "llamafactory/dataset_info.json", orjson.dumps({"prefs": entry}, option=orjson.OPT_INDENT_2).decode() + "\n"
    yield "llamafactory/dpo.yaml", _yaml({
        "model_name_or_path": "PATH_OR_NAME", "stage": "dpo", "do_train": True, "finetuning_type": "lora",
        "dataset_dir": f"{out}/recipes/llamafactory", "dataset": "prefs", "template": "default", "cutoff_len": max_length,
        "pref_beta": 0.1, "pref_loss": "sigmoid", "learning_rate": 5.0e-6, "num_train_epochs": 1, "output_dir": "runs/dpo",
    }, "llamafactory-cli train", out, "llamafactory/dpo.yaml")  # fmt: skip


_WRITERS: Mapping[str, Callable[[str, str, Sequence[str], int], Iterator[tuple[str, str]]]] = {
    "trl": _trl, "axolotl": _axolotl, "openrlhf": _openrlhf, "llamafactory": _llamafactory,
}  # fmt: skip


def _sharegpt(train: Path) -> Iterator[bytes]:
    """LLaMA-Factory's form of chat pairs: the turns before the answer as a list, each answer as one message.

    Its form has no place for an answer of several messages (a tool call and what follows): such pairs are left out.
    """
    from prefdata.reading import values

    for path in sorted(train.glob("*.parquet")):
        table = pq.read_table(path, columns=["prompt", "chosen", "rejected"])
        sides = [values(table.column(name)) for name in ("prompt", "chosen", "rejected")]
        for prompt, good, bad in zip(*sides, strict=True):
            if len(good) == len(bad) == 1:
                yield orjson.dumps(
                    {"conversations": prompt, "chosen": good[0], "rejected": bad[0]}, option=orjson.OPT_APPEND_NEWLINE
                )
