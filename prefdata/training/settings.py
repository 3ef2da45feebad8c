"""What a training run is asked for: the keys of a recipe, their defaults, and what they come to for one model and set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from prefdata.errors import ConfigError, nearest
from prefdata.parameters import describe
from prefdata.pipeline_file import plain, value_of
from prefdata.training import early

LOSSES = (
    "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired", "apo_zero",
    "apo_down", "discopop", "sft", "sigmoid_norm",
)  # fmt: skip
OWN_SMOOTHING = ("robust", "exo_pair", "aot", "aot_unpaired")  # losses of TRL that read label_smoothing themselves


class Settings(BaseModel):
    """The keys of a recipe, named as TRL and transformers name them where they have the thing. ``None`` is decided by model, set and machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: str
    """Folder or hub name of the model to train."""
    method: Literal["auto", "lora", "full"] = "auto"
    """Train adapters or all weights; auto: adapters where peft is installed."""
    dtype: Literal["float32", "bfloat16", "float16", "stored"] | None = None
    """Of the weights; stored: as the files have them. Default float32; bfloat16 for the frozen weights under adapters where the hardware has it."""
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    """Of the arithmetic (autocast); default bf16 on hardware that has it, else fp32."""
    lora_rank: int | None = Field(None, ge=1, le=1024)
    """Default by size: 8 up to 3 billion parameters, 16 up to 10, above 32."""
    lora_alpha: float | None = Field(None, gt=0)
    """Default twice the rank."""
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """Of the adapters."""
    lora_targets: str | list[str] = "all-linear"
    """Modules that get adapters, as peft takes them."""
    pad_token: str | None = None
    """Default the tokenizer's own, else its end token."""
    chat_template: str | None = None
    """Path of a Jinja template that replaces the tokenizer's own."""
    reference: str = "same"
    """same: the model before training (its adapters off); precompute: its log-probabilities, made once; or a folder or hub name."""

    loss_type: list[str] = ["sigmoid"]
    """Any that TRL has; several are added up."""
    loss_weights: list[float] | None = None
    """One for each of several losses; default 1 each."""
    beta: float = Field(0.1, ge=0)
    """How strongly the model is held to its reference; in the unit of the loss."""
    beta_schedule: str | None = None
    """linear:0.05->0.2: beta moves in a line from the first step to the last."""
    label_smoothing: float | None = Field(None, ge=0, le=0.5)
    """Probability that any label is wrong; default what the cleaned set asks for, else 0."""
    use_weights: bool = True
    """Whether pd_weight, pd_flip_prob and pd_reversed of the set enter the loss."""

    learning_rate: float | None = Field(None, gt=0)
    """Default 5e-7 for all weights, 1e-5 for adapters."""
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    """How the rate goes down after the warm-up."""
    warmup_ratio: float = Field(0.1, ge=0, le=1)
    """Share of the steps over which the rate goes up."""
    optim: str = "adamw_torch"
    """Any that transformers has."""
    weight_decay: float = Field(0.0, ge=0)
    """Of the optimiser."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients are clipped at this norm."""
    clip_percentile: float | None = Field(None, gt=0, lt=100)
    """Clip at this percentile of the gradient norms so far instead (AutoClip), never above max_grad_norm."""
    layer_decay: float | None = Field(None, gt=0, le=1)
    """Each layer below the top one learns at this share of the rate of the layer above it."""
    lr_groups: dict[str, float] = {}
    """Learning rates of parameters whose name matches a regular expression; the first match counts."""
    num_train_epochs: float = Field(1.0, gt=0)
    """Passes over the pairs."""
    max_steps: int | None = Field(None, ge=1)
    """Optimiser steps; overrides num_train_epochs."""
    batch_size: int = Field(32, ge=1)
    """Pairs a step, over all devices, through accumulation."""
    micro_batch_size: int | None = Field(None, ge=1)
    """Pairs a device holds at once; default what fits by estimate, halved when memory runs out."""
    gradient_checkpointing: bool | None = None
    """Default on from 1 billion parameters up."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Of the order, the adapters and dropout."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU where torch sees one."""

    max_length: int | None = Field(None, ge=2)
    """Tokens of prompt and answer; default that of token_length in the cleaned set, else 1024, never beyond the model's positions."""
    eval_split: str | None = None
    """Default the first of test, validation, eval, dev; else a cut by prompt."""
    eval_share: float = Field(0.05, ge=0, lt=1)
    """Cut from the training split, by prompt, where the set has no other split; 0 for none."""
    order: Literal["shuffle", "as_is", "easy_first", "hard_first"] = "shuffle"
    """Order of the pairs; easy and hard by order_by."""
    order_by: str | None = None
    """Column of the difficulty (higher is harder); default the reference's own margin: rejected likelier than chosen is hard."""
    replay: str | None = None
    """File of plain texts (.txt a paragraph each, .jsonl with text) with a language-model loss beside the pairs."""
    replay_share: float = Field(0.1, gt=0, le=0.5)
    """Texts a step, as a share of its pairs."""
    replay_weight: float = Field(1.0, gt=0)
    """Of the loss of the texts."""

    logging_steps: int | None = Field(None, ge=1)
    """Steps between two lines; default a fiftieth of the run, 10 at most."""
    eval_steps: int | None = Field(None, ge=1)
    """Default about ten evaluations a run."""
    probes: int = Field(4, ge=0, le=64)
    """Prompts whose answers are generated at the start and at each evaluation."""
    probe_tokens: int = Field(64, ge=1)
    """Tokens of an answer to a probe, at most."""
    guards: Literal["stop", "warn", "off"] = "stop"
    """What a tripped guard does; warn only tells. What is certain (a number that is not finite) always stops."""
    on_spike: Literal["warn", "stop", "rollback"] = "warn"
    """rollback: back to the last good checkpoint, once, with a tenth of the learning rate."""
    check_every: int = Field(50, ge=1)
    """Steps between two looks at all trained parameters; the first is after step 1."""
    early_stop: list[str] = []
    """Conditions such as accuracy<0.01 (improved by less over `patience` evaluations) joined by `early_stop_rule`."""
    early_stop_rule: Literal["any", "all"] = "any"
    """Whether any or all conditions must hold."""
    patience: int = Field(3, ge=1)
    """Evaluations that early_stop waits for."""
    average: str | None = None
    """last:3 or best:3: the mean of these checkpoints, evaluated beside the best one."""
    forgetting: str | None = None
    """File of neutral texts for the forgetting probe; default a short one that is shipped."""
    save_total_limit: int = Field(3, ge=1)
    """Checkpoints that are kept."""
    report_to: list[str] = []
    """Trackers beside metrics.jsonl: trackio, wandb, mlflow, tensorboard."""

    @field_validator("loss_type", "early_stop", "report_to", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [v for v in value.split(",") if v and v != "none"] if isinstance(value, str) else value

    @field_validator("loss_type")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in LOSSES:
                raise ValueError(f"TRL has no loss {name!r}. {_guess(name, LOSSES)}")
        if not value:
            raise ValueError("no loss is named")
        return value

    @field_validator("optim")
    @classmethod
    def _optimiser(cls, value: str) -> str:
        if value == "adamw_torch":  # the default is known without a look at transformers, which takes seconds
            return value
        try:
            from transformers.training_args import OptimizerNames
        except ImportError:
            return value
        known = [str(o.value) for o in OptimizerNames]
        if value not in known:
            raise ValueError(f"transformers has no optimiser {value!r}. {_guess(value, known)}")
        return value

    @field_validator("lora_targets")
    @classmethod
    def _targets(cls, value: str | list[str]) -> str | list[str]:
        if not value:
            raise ValueError("no module is named: nothing would be trained")
        return value

    @field_validator("lr_groups")
    @classmethod
    def _groups(cls, value: dict[str, float]) -> dict[str, float]:
        for name, rate in value.items():
            try:
                re.compile(name)
            except re.error as error:
                raise ValueError(f"{name!r} is no regular expression: {error}") from error
            if not 0 <= rate < 1:
                raise ValueError(f"the rate of {name!r} is not between 0 and 1")
        return value

    @field_validator("early_stop")
    @classmethod
    def _conditions(cls, value: list[str]) -> list[str]:
        for text in value:
            early.condition(text)
        return value

    @field_validator("average")
    @classmethod
    def _averaged(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"(last|best):[1-9]\d*", value):
            raise ValueError("not last:N or best:N, for example last:3")
        return value

    @field_validator("replay", "forgetting", "chat_template")
    @classmethod
    def _there(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).expanduser().is_file():
            raise ValueError("no such file")
        return value

    @field_validator("beta_schedule")
    @classmethod
    def _scheduled(cls, value: str | None) -> str | None:
        if value is not None:
            beta_range(value)
        return value


def _guess(word: str, known: Sequence[str]) -> str:
    near = nearest(word, known)
    return f"Did you mean {near}?" if near else f"Known: {', '.join(known)}"


def beta_range(text: str) -> tuple[float, float]:
    """``linear:0.05->0.2`` as two numbers."""
    kind, _, ends = text.partition(":")
    first, arrow, last = ends.partition("->")
    try:
        found = float(first), float(last)
    except ValueError:
        found = (-1.0, -1.0)
    if kind != "linear" or not arrow or min(found) < 0:
        raise ValueError("not linear:FIRST->LAST, for example linear:0.05->0.2")
    return found


def load(recipe: str | Path | None, sets: Sequence[str] = (), given: Mapping[str, Any] | None = None) -> Settings:
    """Settings of a recipe file, overridden by ``key=value`` items and by what was ``given`` (None: not given); errors name
    the file and the line, or the option.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    if recipe is not None:
        path = Path(recipe)
        tree = _tree(path)
        for key in tree:
            values[str(key)] = plain(tree[key])
            origin[str(key)] = f"{path}:{tree.lc.key(key)[0] + 1}: {key}"
    for item in sets:
        key, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"--set {item}: not key=value", hint="For example: --set beta=0.2")
        values[key], origin[key] = value_of(text), f"--set {key}"
    for key, value in (given or {}).items():
        if value is not None:
            values[key], origin[key] = value, f"--{key.replace('_', '-')}"
    return make(values, origin)


def make(values: Mapping[str, Any], origin: Mapping[str, str] | None = None) -> Settings:
    """Settings of these values; ``origin`` says where each came from, for errors."""
    origin = origin or {}
    if not values.get("model"):
        raise ConfigError("no model is named", hint="Give --model PATH_OR_NAME, or model: in the recipe.")
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        where = origin.get(key, key)
        if first["type"] == "extra_forbidden":
            near = nearest(key, Settings.model_fields)
            hint = f"Did you mean {near} ({describe(Settings, near)})?" if near else "See prefdata train --help."
            raise ConfigError("no such setting", where=where, hint=hint) from error
        hint = f"{key} is {describe(Settings, key)}." if key in Settings.model_fields else ""
        what = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{what}, got {str(first['input'])[:60]!r}", where=where, hint=hint) from error


def _tree(path: Path) -> CommentedMap:
    try:
        tree = YAML(typ="rt").load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", where=str(path)) from error
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = str(getattr(error, "problem", None) or error).split("\n")[0]
        raise ConfigError(what, where=f"{path}:{mark.line + 1 if mark else 1}") from error
    if not isinstance(tree, CommentedMap):
        raise ConfigError("is not a mapping of settings", where=f"{path}:1", hint="For example: beta: 0.1")
    return tree
