"""What the model says to the same prompts as it is trained, and how far its layers move."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import torch
from accelerate.utils import broadcast_object_list
from transformers import GenerationConfig, TrainerCallback

from prefdata.training.checks import Case
from prefdata.training.folder import GENERATIONS
from prefdata.training.monitors import Recorder
from prefdata.training.prepare import Prepared

BATCH = 8  # prompts at once
SAMPLE = 4096  # numbers of a tensor that are remembered
_LAYER = re.compile(r"\.(\d+)\.")
_PART = re.compile(r"(?:^|\.)(?:base_model|model|transformer|modules_to_save|default|weight|bias|base_layer)(?=\.|$)")


class _Rounds(TrainerCallback):
    """Looks once at the start, at each evaluation and at the end of training, never twice at a step."""

    at: int | None = None

    def look(self, state: Any, model: Any) -> None:
        """What is done then."""
        raise NotImplementedError

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The first look."""
        self._once(state, model)

    on_evaluate = on_train_end = on_train_begin

    def _once(self, state: Any, model: Any) -> None:
        if self.at != state.global_step:
            self.at = state.global_step
            self.look(state, model)


class Probes(_Rounds):
    """Greedy answers to a few prompts, held-out ones first, from the ids that the trainer uses; a line each in ``generations.jsonl``.

    Model, mode and random state are left as they were.
    """

    def __init__(self, case: Case, recorder: Recorder, home: Path) -> None:
        self.recorder, self.path, self.tokenizer = recorder, home / GENERATIONS, case.tokenizer
        longest = case.facts.positions or case.plan.max_length + case.settings.probe_tokens
        self.new = min(case.settings.probe_tokens, max(1, longest // 2))
        self.probes = list(_chosen(case))
        self.prompts = [p.pop("ids")[-(longest - self.new) :] for p in self.probes]

    def look(self, state: Any, model: Any) -> None:
        """One round. Of several processes the main one generates; all hear of its numbers, for guards decide by them."""
        numbers: list[Any] = [None]
        if state.is_world_process_zero:
            with _aside(model), torch.no_grad():
                answers = [a for i in range(0, len(self.prompts), BATCH) for a in self._answers(model, self.prompts[i : i + BATCH])]  # fmt: skip
            numbers = [self._written(state.global_step, answers)]
        broadcast_object_list(numbers)
        self.recorder.generated.append(numbers[0])
        line = {f"probes/{k}": v for k, v in numbers[0].items() if k != "step"}
        self.recorder.write({"step": state.global_step, **line}, state.is_world_process_zero)

    def _answers(self, model: Any, prompts: list[list[int]]) -> list[tuple[list[int], bool]]:
        """New ids of each prompt, its end token left out, and whether it ended by itself."""
        longest, pad = max(map(len, prompts)), self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[pad] * (longest - len(p)) + p for p in prompts], device=model.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        known = getattr(model.generation_config, "eos_token_id", None)
        ends = [*dict.fromkeys([*(known if isinstance(known, list) else [known]), self.tokenizer.eos_token_id])]
        ends = [e for e in ends if e is not None]
        asked = GenerationConfig(
            max_new_tokens=self.new, do_sample=False, num_beams=1, use_cache=True, pad_token_id=pad, eos_token_id=ends or None,
            temperature=1.0, top_p=1.0, top_k=50, repetition_penalty=1.0,
        )  # fmt: skip
        made = model.generate(input_ids=ids, attention_mask=mask, generation_config=asked)[:, longest:].tolist()
        out = []
        for answer in made:
            stop = next((i for i, token in enumerate(answer) if token in ends), None)
            out.append((answer[:stop], stop is not None))
        return out

    def _written(self, step: int, answers: list[tuple[list[int], bool]]) -> dict[str, float]:
        lengths = _first_lengths(self.path) or [len(ids) for ids, _ in answers]
        with self.path.open("ab") as file:
            for probe, (ids, ended) in zip(self.probes, answers, strict=True):
                text = self.tokenizer.decode(ids, skip_special_tokens=False)
                line = {"step": step, **probe, "text": text, "tokens": len(ids), "ended": ended}
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        twos = [two for ids, _ in answers for two in pairwise(ids)]
        n = max(len(answers), 1)
        return {
            "step": float(step), "length_ratio": sum(len(ids) for ids, _ in answers) / max(sum(lengths), 1),
            "distinct": len(set(twos)) / len(twos) if twos else 0.0, "ended": sum(ended for _, ended in answers) / n,
        }  # fmt: skip


def _chosen(case: Case) -> Iterator[dict[str, Any]]:
    """Pairs to probe with, each prompt once; the same ones for the same set and seed."""
    left, seen = case.settings.probes, set()
    for part in (case.held, case.train):
        if part is None:
            continue
        for entry in random.Random(case.settings.seed).sample(range(len(part.dataset)), len(part.dataset)):
            if left == 0:
                return
            probe = _probe(part, entry)
            if probe["prompt"] not in seen:
                seen.add(probe["prompt"])
                left -= 1
                yield probe


def _probe(part: Prepared, entry: int) -> dict[str, Any]:
    row, texts = int(part.rows[entry]), part.pairs
    ids = [int(i) for i in part.dataset[entry]["prompt_ids"]]
    return {"id": texts.ids[row], **{s: texts.text(s, row) for s in ("prompt", "chosen", "rejected")}, "ids": ids}


def _first_lengths(path: Path) -> list[int]:
    """Tokens of the first round that the run has written, also before it was resumed."""
    if not path.is_file():
        return []
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return [line["tokens"] for line in lines if line["step"] == lines[0]["step"]]


@contextmanager
def _aside(model: Any) -> Iterator[None]:
    """Evaluation mode, and the random state put back."""
    was = model.training
    model.eval()
    try:
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
            yield
    finally:
        model.train(was)


class Movement(_Rounds):
    """How far each layer moved since the last look, as ``||dW|| / ||W||``: a line ``update_ratio`` of ``metrics.jsonl``.

    Of a trained tensor every n-th number is remembered (4,096 at most), and its part of the whole is estimated from them. Of an
    adapter it is exact, and in proportion to the weights that it adapts: ``scale ||B A - B0 A0|| / ||W||``, from products of the
    small matrices alone.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.held: dict[str, Any] = {}
        self.sizes: dict[str, float] = {}  # squared norms of weights that have adapters

    def look(self, state: Any, model: Any) -> None:
        """Measure, and remember for the next time."""
        moved: dict[str, list[float]] = {}
        with torch.no_grad():
            for name, change, size in (*self._adapters(model), *self._tensors(model)):
                so_far = moved.setdefault(layer_of(name), [0.0, 0.0])
                so_far[0] += change
                so_far[1] += size
        ratio = {k: (change / size) ** 0.5 if size > 0 else 0.0 for k, (change, size) in moved.items()}
        if any(ratio.values()):
            self.recorder.write({"step": state.global_step, "update_ratio": ratio}, state.is_world_process_zero)

    def _tensors(self, model: Any) -> Iterator[tuple[str, float, float]]:
        for name, tensor in model.named_parameters():
            if not tensor.requires_grad or ".lora_A." in name or ".lora_B." in name:
                continue
            flat = tensor.detach().reshape(-1)
            now = flat[:: max(1, -(-flat.numel() // SAMPLE))].float().cpu()
            old, self.held[name] = self.held.get(name, now), now.clone()
            part = flat.numel() / max(now.numel(), 1)
            yield name, float((now - old).square().sum()) * part, float(now.square().sum()) * part

    def _adapters(self, model: Any) -> Iterator[tuple[str, float, float]]:
        for name, module in model.named_modules():
            for kind in getattr(module, "lora_A", {}):
                a, b = (m[kind].weight.detach().float() for m in (module.lora_A, module.lora_B))
                if name not in self.sizes:
                    self.sizes[name] = float(module.get_base_layer().weight.detach().float().square().sum())
                old_a, old_b = self.held.get(name, (a, b))
                self.held[name] = (a.clone(), b.clone())
                down, up = torch.cat([a, old_a]).double(), torch.cat([b, -old_b], 1).double()
                change = float(((up.T @ up) * (down @ down.T)).sum().clamp_min(0))
                yield name, module.scaling[kind] ** 2 * change, self.sizes[name]


def layer_of(name: str) -> str:
    """``layer 3`` for what belongs to a numbered layer, else the name of the part."""
    found = _LAYER.search(name)
    return f"layer {found[1]}" if found else _PART.sub("", name).strip(".") or "model"
