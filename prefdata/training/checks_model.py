"""Checks with the model: weights, a first padded batch in evaluation mode, and the reference at step 0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from prefdata.training.checks import Case, Check, Checks, skipped

_PAIRS = 8
_ASKED = ("nonfinite_first_loss", "padding_leaks", "reference_differs")
_LN2 = ["sigmoid", "robust", "exo_pair"]
_LEAK = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.05}  # of a log-probability, by the arithmetic that rounds most


def trained(case: Case) -> Iterator[Check]:
    """Some weights are trained, and all of them are finite as they were loaded."""
    model = case.trainer.model
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    whole = sum(p.numel() for p in model.parameters())
    what = f"{sum(sizes):,} of {whole:,} weights are trained"
    yield Check("nothing_trained", "ok" if sum(sizes) else "fail", what)
    odd = [(n, str(p.dtype).removeprefix("torch.")) for n, p in model.named_parameters() if not torch.isfinite(p).all()]
    what = (
        f"{len(odd)} tensors hold numbers that are not finite, first {odd[0][0]} ({odd[0][1]})"
        if odd
        else f"all {whole:,} weights are finite"
    )
    yield Check("nonfinite_weights", "fail" if odd else "ok", what)


def batch(case: Case) -> Iterator[Check]:
    """One batch as it will be trained on: its masks, the loss of every pair, and each sequence alone against the same one padded."""
    made, entries = case.train, _sample(case)
    assert made is not None
    if case.trainer.is_deepspeed_enabled or case.trainer.is_fsdp_enabled:
        yield from skipped(
            ("batch_masks", *_ASKED), "the weights are spread over several devices before the first step"
        )
        return
    ids, longest = made.named(entries), case.plan.max_length
    inputs = _inputs(case, entries)
    wanted = [
        (min(p + len(ids), longest), min(len(ids), longest - p))
        for side in ("chosen", "rejected") for i in entries
        for p, ids in [(len(made.ids["prompt"][i]), made.ids[side][i])]
    ]  # fmt: skip
    attended, labelled = inputs["attention_mask"].sum(1).tolist(), inputs["completion_mask"].sum(1).tolist()
    outside = int((inputs["completion_mask"] * (1 - inputs["attention_mask"])).sum())
    wrong = [k for k, (a, b) in enumerate(zip(attended, labelled, strict=True)) if (a, b) != wanted[k]]
    padding = int((inputs["attention_mask"] == 0).sum())
    what = f"{len(wanted)} sequences of {min(attended)} to {max(attended)} tokens, {padding} of padding; {sum(labelled)} tokens have a label"
    if wrong or outside:
        what = f"attended and labelled tokens of {len(wrong)} of {len(wanted)} sequences are not those of text and answer ({outside} labels on padding)"
    yield Check("batch_masks", "fail" if wrong or outside else "ok", what, tuple({ids[k % len(ids)]: 0 for k in wrong}))
    yield from _asked(case, entries, inputs)


def _asked(case: Case, entries: list[int], inputs: Mapping[str, Any]) -> Iterator[Check]:
    """What the model says of the batch."""
    made = case.train
    assert made is not None
    ids = made.named(entries)
    lengths = inputs["attention_mask"].sum(1).tolist()
    short, long = int(np.argmin(lengths)), int(np.argmax(lengths))
    try:
        numbers = [_step_zero(case, [i]) for i in entries]
        together = _logprobs(case, inputs, [short, long], max(lengths))[0]
        alone = _logprobs(case, inputs, [short], lengths[short])[0]
    except torch.OutOfMemoryError as error:
        yield from skipped(_ASKED, f"out of memory with one pair at once: {str(error).splitlines()[0]}")
        return
    odd = [name for name, n in zip(ids, numbers, strict=True) if not all(map(math.isfinite, n.values()))]
    total = sum(n["loss"] for n in numbers) / len(numbers)
    what = f"loss {total:.4g}, log-probabilities of {len(odd)} of {len(ids)} pairs are not finite"
    yield Check("nonfinite_first_loss", "fail" if odd else "ok", what, tuple(odd))
    bound = _LEAK.get(
        {"bf16": "bfloat16", "fp16": "float16"}.get(case.plan.precision, case.plan.dtype), _LEAK["float32"]
    )
    leak = float((together[: len(alone)] - alone).abs().max())
    what = f"a sequence alone and with {max(lengths) - lengths[short]} tokens of padding: log-probabilities differ by up to {leak:.2g}"
    leaks = not leak <= bound
    yield Check("padding_leaks", "fail" if leaks else "ok", what, (ids[short % len(ids)],) if leaks else ())
    yield _reference(case, numbers, bound, ids)


def _reference(case: Case, numbers: list[dict[str, float]], bound: float, ids: list[str]) -> Check:
    """Before any step the policy is its reference: every margin 0, the sigmoid loss ln 2."""
    margins = [n["margin"] for n in numbers]
    largest = max(map(abs, margins))
    what = f"policy minus reference of {len(ids)} pairs at step 0: margin up to {largest:.2g}"
    if case.settings.loss_type[0] in _LN2 and len(case.settings.loss_type) == 1:
        what += f", loss {sum(n['loss'] for n in numbers) / len(numbers):.4f} (ln 2 is 0.6931)"
    if case.settings.reference not in ("same", "precompute"):
        return Check("reference_differs", "ok", f"{what}; the reference is another model, {case.settings.reference}")
    differs = not largest <= bound
    return Check("reference_differs", "fail" if differs else "ok", what, tuple(ids) if differs else ())


def _inputs(case: Case, entries: list[int]) -> Any:
    """The batch of these entries, where the model is."""
    made = case.train
    assert made is not None
    return case.trainer._prepare_inputs(case.trainer.data_collator([made.dataset[i] for i in entries]))


def _sample(case: Case) -> list[int]:
    """Entries of the training set: the longest, the shortest, and some between."""
    assert case.train is not None
    sizes = sum(case.train.lengths().values())
    order = np.argsort(sizes, kind="stable")
    spread = np.unique(np.linspace(0, len(order) - 1, min(_PAIRS, len(order))).astype(int))
    return [int(i) for i in np.roll(order[spread], 1)]


@contextmanager
def _evaluating(trainer: Any) -> Iterator[None]:
    """The model in evaluation mode and in the arithmetic of the run, without gradients or metrics."""
    was = trainer.model.training
    trainer.model.eval()
    try:
        with torch.no_grad(), trainer.compute_loss_context_manager(), trainer._silent():
            yield
    finally:
        trainer.model.train(was)


def _logprobs(case: Case, inputs: Mapping[str, Any], at: list[int], length: int) -> Any:
    """Log-probability of every next token of these sequences of the batch, (sequences, length - 1)."""
    given = {k: inputs[k][at, :length] for k in ("input_ids", "attention_mask")}
    labels = given["input_ids"].masked_fill(given["attention_mask"] == 0, -100)
    with _evaluating(case.trainer):
        return case.trainer.model(**given, labels=labels, use_cache=False, fused_lm_head=True).log_probs.float()


def _step_zero(case: Case, entries: list[int]) -> dict[str, float]:
    """Loss and margin (policy minus reference, chosen minus rejected) of these pairs, by the trainer's own code."""
    trainer, heard = case.trainer, list[Mapping[str, Any]]()
    inputs = _inputs(case, entries)
    watch = trainer.watch
    trainer.watch = lambda rows, numbers, training: heard.append(numbers)
    try:
        with _evaluating(trainer):
            trainer.compute_loss(trainer.model, inputs)
    finally:
        trainer.watch = watch
    n = heard[0]
    margin = (n["chosen"] - n["ref_chosen"]) - (n["rejected"] - n["ref_rejected"])
    return {
        "loss": float(n["loss"]),
        "margin": float(margin.sum()),
        "policy": float((n["chosen"] + n["rejected"]).sum()),
    }


ALL: Checks = {
    trained: ("nothing_trained", "nonfinite_weights"),
    batch: ("batch_masks", "nonfinite_first_loss", "padding_leaks", "reference_differs"),
}
