"""What is written down of a run while it goes on: numbers of every step, in memory for the guards and in ``metrics.jsonl`` for people."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
import torch
from accelerate.utils import gather_object, reduce
from transformers import TrainerCallback

from prefdata.errors import ConfigError
from prefdata.training.checks import Case

_TRACKERS = {"tensorboard": ("tensorboard", "tensorboardX"), "trackio": ("trackio",), "wandb": ("wandb",), "mlflow": ("mlflow",)}  # fmt: skip


@dataclass
class Step:
    """One optimiser step. Log-probabilities are sums over an answer's tokens, means over the step's pairs; rewards are beta times
    policy minus reference; ``ties`` is the share of pairs whose margin is exactly 0. ``odd`` are ids of pairs with a number that is
    not finite. ``grad_norm`` is that before clipping; a ratio is the mean log-probability of policy minus reference per token.
    """

    step: int
    loss: float
    margin: float
    accuracy: float
    ties: float
    chosen_reward: float
    rejected_reward: float
    chosen: float
    rejected: float
    beta: float
    odd: tuple[str, ...] = ()
    grad_norm: float | None = None
    clipped: bool | None = None
    chosen_ratio: float = 0.0
    rejected_ratio: float = 0.0
    pairs: int = 0


_NAMED = {
    "rewards/margins": "margin", "rewards/accuracies": "accuracy", "ties": "ties", "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward", "logps/chosen": "chosen", "logps/rejected": "rejected",
    "log_ratio/chosen": "chosen_ratio", "log_ratio/rejected": "rejected_ratio",
}  # fmt: skip
"""Keys of ``metrics.jsonl``, TRL's where it has the thing, and the mean over pairs that each holds."""


def table(numbers: Mapping[str, Any], beta: float) -> Any:
    """The numbers of a batch, (8, pairs): margin, both rewards, both log-probabilities, both log-ratios, tokens of both answers."""
    good, bad = numbers["chosen"] - numbers["ref_chosen"], numbers["rejected"] - numbers["ref_rejected"]
    rows = [beta * good, beta * bad, numbers["chosen"], numbers["rejected"], good, bad, numbers["chosen_tokens"], numbers["rejected_tokens"]]  # fmt: skip
    return torch.stack([r.detach().float() for r in rows])


def means(sums: Sequence[float]) -> dict[str, float]:
    """Means by the names of ``Step``, of what ``totals`` summed up."""
    n, right, ties, good, bad, chosen, rejected, good_log, bad_log, good_tokens, bad_tokens = sums[:11]
    n, good_tokens, bad_tokens = max(n, 1.0), max(good_tokens, 1.0), max(bad_tokens, 1.0)
    return {
        "margin": (good - bad) / n, "accuracy": right / n, "ties": ties / n, "chosen_reward": good / n, "rejected_reward": bad / n,
        "chosen": chosen / n, "rejected": rejected / n, "chosen_ratio": good_log / good_tokens, "rejected_ratio": bad_log / bad_tokens,
    }  # fmt: skip


def totals(values: Any) -> Any:
    """Sums over pairs of a table, (11,): pairs, pairs with the chosen answer ahead, ties, then the rows of the table."""
    margin = values[0] - values[1]
    counts = [torch.ones_like(margin).sum(), (margin > 0).sum(), (margin == 0).sum()]
    return torch.cat([torch.stack([c.double() for c in counts]), values.double().sum(1)])


class Recorder(TrainerCallback):
    """Hears of every batch (``watch``) and step; ``steps`` are all of them, ``logs`` the lines of ``metrics.jsonl``.

    ``ids`` are those of the training pairs by row, ``held_ids`` those of the held-out ones. Of several processes each sums up its
    share, and all get the same means; ids of odd pairs are those of the own share, memory is of the main process. ``evals`` has a
    line an evaluation (step, accuracy, margin, ties, chosen, rejected, loss), ``generated`` a line a round of probes (step,
    length_ratio to the first round, distinct, ended).
    """

    def __init__(self, path: Path, ids: list[str], held_ids: list[str], beta: Callable[[], float]) -> None:
        self.path, self.ids, self.held_ids, self.beta = path, ids, held_ids, beta
        self.norm: Callable[[], tuple[float | None, float]] = lambda: (None, math.inf)  # of the gradient, and its bound
        self.steps: list[Step] = []
        self.logs: list[dict[str, Any]] = []
        self.evals: list[dict[str, float]] = []
        self.generated: list[dict[str, float]] = []
        self._batches: list[tuple[Any, Any, Any]] = []
        self._held: dict[int, list[float]] = {}
        self._logged, self._tokens, self._busy = 0, 0.0, 0.0
        self._began = self._step_began = time.monotonic()

    def watch(self, rows: Any, numbers: Mapping[str, Any], training: bool) -> None:
        """Keep a batch's tensors; they are read once a step, so that a GPU is not waited for."""
        values = table(numbers, self.beta())
        if training:
            self._batches.append((rows.detach(), values, numbers["loss"].detach().float()))
        else:
            self._held.update(zip(rows.tolist(), values.T.tolist(), strict=True))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tokens of an earlier part of the run do not count for the speed of this one."""
        self._tokens = float(state.num_input_tokens_seen)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The clock of a step: evaluations and probes are not in it."""
        self._step_began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Sum the step's batches up."""
        if not self._batches:
            return
        rows, values = torch.cat([r for r, *_ in self._batches]), torch.cat([v for _, v, _ in self._batches], 1)
        losses = torch.stack([loss for *_, loss in self._batches])
        sound = torch.cat(
            [torch.isfinite(loss).expand(len(r)) for r, _, loss in self._batches]
        )  # a batch without labels has finite pairs
        self._batches = []
        sums = torch.cat([totals(values), torch.stack([losses.double().sum(), torch.ones_like(losses).double().sum()])])
        if args.world_size > 1:
            sums = reduce(sums, "sum")
        *of_pairs, loss, batches = sums.tolist()
        bad = rows[~torch.isfinite(values).all(0)].tolist()
        odd = tuple(self.ids[i] for i in bad or ([] if math.isfinite(loss) else rows[~sound].tolist()))
        norm, bound = self.norm()
        clipped = None if norm is None else norm > bound
        found = means(of_pairs)
        self.steps.append(
            Step(state.global_step, loss / batches, beta=self.beta(), odd=odd, grad_norm=norm, clipped=clipped, pairs=int(of_pairs[0]), **found)
        )  # fmt: skip
        self._busy += time.monotonic() - self._step_began

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """A line of ``metrics.jsonl``: what TRL logs, with exact means over pairs where it has means of batches."""
        if not logs:
            return
        line = {"step": state.global_step, "seconds": round(time.monotonic() - self._began, 2), **logs}
        if "eval_loss" in logs:
            line |= self._evaluated(args, line)
        elif "loss" in logs:
            line |= self._trained(line)
        self.write(line, state.is_world_process_zero)

    def _trained(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Of the steps since the last line."""
        part, self._logged = self.steps[self._logged :], len(self.steps)
        if not part:
            return {}
        pairs = sum(s.pairs for s in part)
        out: dict[str, Any] = {k: sum(getattr(s, v) * s.pairs for s in part) / pairs for k, v in _NAMED.items()}
        norms = [s.grad_norm for s in part if s.grad_norm is not None]
        if norms:
            out |= {"grad_norm": sum(norms) / len(norms), "clipped": sum(bool(s.clipped) for s in part) / len(norms)}
        tokens = float(line.get("num_tokens", self._tokens))
        if self._busy > 0 and tokens > self._tokens:
            out["tokens_per_second"] = round((tokens - self._tokens) / self._busy, 1)
        self._tokens, self._busy = tokens, 0.0
        return {**out, "beta": part[-1].beta, "memory": memory(), "nonfinite_pairs": sum(len(s.odd) for s in part)}

    def _evaluated(self, args: Any, line: Mapping[str, Any]) -> dict[str, Any]:
        """Of the held-out pairs; each counts once, however the processes share them out."""
        held, self._held = self._held, {}
        if args.world_size > 1:
            held = dict(gather_object([*held.items()]))
        if not held:  # somebody else watches this evaluation
            return {}
        values = torch.tensor([*held.values()]).T
        found = means(totals(values).tolist())
        odd = [self.held_ids[i] for i, v in held.items() if not all(map(math.isfinite, v))]
        kept = ("accuracy", "margin", "ties", "chosen", "rejected")
        loss = float(line["eval_loss"])
        self.evals.append({"step": float(line["step"]), **{k: found[k] for k in kept}, "loss": loss})
        out = {f"eval_{k}": found[v] for k, v in _NAMED.items()}
        return out | {"eval_pairs": len(held), "eval_nonfinite_pairs": len(odd)} | ({"odd": odd[:20]} if odd else {})

    def write(self, line: Mapping[str, Any], main: bool = True) -> None:
        """Put a line into ``metrics.jsonl``; numbers that are not finite become null, and are named under ``nonfinite``."""
        odd = sorted(k for k, v in line.items() if isinstance(v, float) and not math.isfinite(v))
        line = {k: None if k in odd else v for k, v in line.items()} | ({"nonfinite": odd} if odd else {})
        self.logs.append(line)
        if main:
            with self.path.open("ab") as file:
                file.write(
                    orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY, default=str)
                )


def watchers(case: Case, recorder: Recorder, home: Path) -> list[TrainerCallback]:
    """What else looks on while a run goes on: probes, and how far each layer moves. Weights that are spread over processes are
    left alone: a process would have to wait for the others at each token.
    """
    from prefdata.training.probes import Movement, Probes

    trainer = case.trainer

    def norm() -> tuple[float | None, float]:
        bound = getattr(trainer.clip, "bound", None)
        found = None if trainer.norm is None else float(trainer.norm)
        return found, float(trainer.args.max_grad_norm if bound is None else bound)

    recorder.norm = norm
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        return []
    return [*([Probes(case, recorder, home)] if case.settings.probes else []), Movement(recorder)]


def need(trackers: Sequence[str]) -> None:
    """Raise ConfigError where a tracker of ``report_to`` is not known or not installed; imports nothing."""
    for name in trackers:
        if name not in _TRACKERS:
            raise ConfigError(f"report_to: no tracker {name!r}", hint=f"Known: {', '.join(_TRACKERS)}")
        if not any(map(find_spec, _TRACKERS[name])):
            raise ConfigError(f"report_to: {name} is not installed", hint=f"pip install {name}, or leave it out.")


def memory() -> int:
    """Bytes in use at most so far: of the GPU where there is one, else of this process."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
