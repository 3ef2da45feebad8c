"""TRL's ``DPOTrainer`` with what it has no answer for: weights and flip probabilities of pairs, and numbers of every single pair.

The loss of a batch is the mean over its pairs (those of weight 0 count) of ``w * ((1 - p) * l(d) + p * l(-d))``, where ``l`` is TRL's own
loss, whichever it is: the model is run once, TRL's code is asked again of its outputs, once as they stand and once with the answers turned
round, and where it takes the mean over pairs, each pair counts by its share. A step is the mean over its pairs, however they fall into
micro-batches. Evaluation is TRL's own: every held-out pair counts alike, with the same beta whatever its schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from trl import DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from prefdata.training.settings import OWN_SMOOTHING

ROW, WEIGHT, FLIP = "pd_row", "pd_weight", "pd_flip"
BESIDE = (ROW, WEIGHT, FLIP)
ONE_SIDED = "sft"  # a loss of one answer, over tokens: it teaches the answer that is likelier the better one, and never the other


class Collator(DataCollatorForPreference):
    """TRL's collator; the pairs' row, weight and flip probability go with the batch, (pairs,) each."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Pad the batch, chosen answers first."""
        batch: dict[str, Any] = super().torch_call(examples)
        for name in BESIDE:
            if name in examples[0]:
                batch[name] = torch.tensor([e[name] for e in examples])
        return batch


class Seen:
    """A model that remembers its last outputs; what it is called with and gives back is the model's own."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.outputs: Any = None

    def __call__(self, **inputs: Any) -> Any:
        """Run the model."""
        self.outputs = self.model(**inputs)
        return self.outputs


class PreferenceTrainer(DPOTrainer):
    """What is set on it before training: ``watch(rows, numbers, training)`` hears, of each batch, rows and tensors (pairs,): ``chosen``,
    ``rejected``, ``ref_chosen``, ``ref_rejected`` log-probabilities and the ``loss`` (a scalar); ``sampler(dataset)`` gives the order of
    pairs; ``clip(accelerator, model)`` clips gradients and gives their norm before; ``extra_loss(model, pairs)`` is added to the loss of a
    micro-batch of so many pairs (None: nothing); ``rate(name, parameter)`` is the learning rate of a trained parameter.
    """

    _signature_columns: Any
    precompute_ref_logps: Any
    loss_weights: Any
    loss_types: Any
    beta: Any
    aux_loss_enabled: Any
    _metrics: Any
    _total_train_tokens: Any

    watch: Callable[[Any, Mapping[str, Any], bool], None] | None = None
    sampler: Callable[[Any], Any] | None = None
    clip: Callable[[Any, Any], Any] | None = None
    extra_loss: Callable[[Any, int], Any] | None = None
    rate: Callable[[str, Any], float] | None = None
    norm: Any = None  # of the gradient before it was clipped, at the last step
    _pairs: float | None = None  # pairs of a micro-batch of this step, on average

    def _prepare_dataset(self, dataset: Any, *args: Any) -> Any:
        """Pairs that pre-flight has made ids of, with TRL's own code, are not made again."""
        if "prompt_ids" in dataset.column_names:
            return dataset
        return super()._prepare_dataset(dataset, *args)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns = [*dict.fromkeys([*self._signature_columns, *BESIDE])]

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """A curriculum's own order; else Trainer's shuffle."""
        if self.sampler is not None:
            return self.sampler(train_dataset if train_dataset is not None else self.train_dataset)
        return super()._get_train_sampler(train_dataset)

    def _clip_grad_norm(self, model: Any) -> Any:
        """``max_grad_norm``, or the bound that ``clip`` gives; returns the norm before clipping."""
        self.norm = super()._clip_grad_norm(model) if self.clip is None else self.clip(self.accelerator, model)
        return self.norm

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Trainer's optimizer; its groups are split by learning rate where ``rate`` is set."""
        fresh = self.optimizer is None
        made = super().create_optimizer(*args, **kwargs)
        if self.rate is not None and fresh:
            rates = {id(p): self.rate(n, p) for n, p in self.model.named_parameters() if p.requires_grad}
            groups = []
            for group in made.param_groups:
                held: dict[float, list[Any]] = {}
                for p in group["params"]:
                    held.setdefault(rates[id(p)], []).append(p)
                groups += [{**group, "params": params, "lr": lr} for lr, params in held.items()]
            made.param_groups[:] = groups
        return made

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The micro-batches of a step; how many pairs they have is kept, for the last one of a pass may be smaller."""
        made = super().get_batch_samples(*args, **kwargs)
        sizes = [len(batch["input_ids"]) / 2 for batch in made[0]]
        self._pairs = sum(sizes) / len(sizes) if sizes else None
        return made

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate with the beta of the settings, so that evaluations can be compared while a schedule moves it."""
        moved, self.beta = self.beta, self.args.beta
        try:
            return super().evaluation_loop(*args, **kwargs)
        finally:
            self.beta = moved

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False) -> Any:
        """TRL's loss and metrics; where pairs count differently, their own loss in its place."""
        inputs = dict(inputs)
        beside = {n: inputs.pop(n) for n in BESIDE if n in inputs}
        training = bool(self.model.training)
        with self._references_given(inputs):
            seen = Seen(model)
            got = super()._compute_loss(seen, inputs, return_outputs)
            loss = got[0] if return_outputs else got
            if training and WEIGHT in beside:
                weight, flip = beside[WEIGHT].float(), beside[FLIP].float()
                if bool(((weight != 1) | (flip != 0)).any()):
                    loss = self._weighted(seen.outputs, inputs, weight, flip)
            n = len(inputs["input_ids"]) // 2
            if training and self._pairs not in (None, n):  # Trainer takes the mean of micro-batches, large or small
                loss = loss * (n / self._pairs)
            if self.watch is not None and ROW in beside:
                self.watch(beside[ROW], self._numbers(seen.outputs, inputs, loss), training)
        if training and self.extra_loss is not None:
            extra = self.extra_loss(model, n)
            loss = loss if extra is None else loss + extra * (1 if self._pairs is None else n / self._pairs)
        return (loss, got[1]) if return_outputs else loss

    @contextmanager
    def _references_given(self, inputs: dict[str, Any]) -> Iterator[None]:
        """Put the reference's log-probabilities into the batch, so that they are made once."""
        made = self.precompute_ref_logps
        if "ref_chosen_logps" not in inputs:
            reference = self.ref_model if self.ref_model is not None else self.model
            inputs["ref_chosen_logps"], inputs["ref_rejected_logps"] = self.compute_ref_log_probs(reference, inputs)
        self.precompute_ref_logps = True
        try:
            yield
        finally:
            self.precompute_ref_logps = made

    def _numbers(self, outputs: Any, inputs: Mapping[str, Any], loss: Any) -> dict[str, Any]:
        with torch.no_grad():
            length = inputs["completion_mask"].size(1) - 1
            chosen, rejected = outputs.log_probs[:, -length:].detach().sum(1).chunk(2)
            chosen_tokens, rejected_tokens = inputs["completion_mask"][:, 1:].sum(1).chunk(2)
        return {
            "chosen": chosen, "rejected": rejected, "ref_chosen": inputs["ref_chosen_logps"],
            "ref_rejected": inputs["ref_rejected_logps"], "loss": loss.detach(),
            "chosen_tokens": chosen_tokens, "rejected_tokens": rejected_tokens,
        }  # fmt: skip

    def _weighted(self, outputs: Any, inputs: Mapping[str, Any], weight: Any, flip: Any) -> Any:
        """The loss of a batch of pairs with these weights and flip probabilities, (pairs,) each."""
        losses, weights, n = list(self.loss_types), list(self.loss_weights), len(weight)
        by_loss = list(zip(losses, weights, strict=True))
        mixture = self.aux_loss_enabled
        total = outputs.log_probs.sum() * 0.0  # a graph also where nothing counts
        self.loss_types = [t for t, _ in by_loss if t != ONE_SIDED]
        self.loss_weights = [w for t, w in by_loss if t != ONE_SIDED]
        self.aux_loss_enabled = False  # of the model, not of pairs: added once
        straight = torch.arange(2 * n, device=weight.device)
        try:
            with self._silent():
                for share, rows in ((weight * (1 - flip), straight), (weight * flip, straight.roll(n))):
                    if self.loss_types and bool((share != 0).any()):
                        total = total + self._of_pairs(outputs, inputs, rows, share)
        finally:
            self.loss_types, self.loss_weights, self.aux_loss_enabled = losses, weights, mixture
        for scale in (w for t, w in by_loss if t == ONE_SIDED):
            total = total + scale * _one_sided(outputs, inputs, weight, flip > 0.5)
        return total + self.router_aux_loss_coef * outputs.aux_loss if mixture else total

    def _of_pairs(self, outputs: Any, inputs: Mapping[str, Any], rows: Any, share: Any) -> Any:
        """TRL's loss with the sequences of the batch in the order of ``rows``, better answers first; each pair counts by its share."""
        per_token = ("log_probs", "entropy", "mean_logits", "is_top1", "log_sum_sq_probs")
        part = SimpleNamespace(**{k: v[rows] for k in per_token if (v := getattr(outputs, k, None)) is not None})
        pairs = {k: inputs[k][rows] for k in ("input_ids", "attention_mask", "completion_mask")}
        references = torch.cat([inputs["ref_chosen_logps"], inputs["ref_rejected_logps"]])[rows]
        pairs["ref_chosen_logps"], pairs["ref_rejected_logps"] = references.chunk(2)
        with _Shares(share):
            return super()._compute_loss(lambda **_: part, pairs, False)

    @contextmanager
    def _silent(self) -> Iterator[None]:
        """No metrics of single pairs among those of batches."""
        kept, tokens = self._metrics, self._total_train_tokens
        self._metrics = {mode: _Nowhere() for mode in kept}
        try:
            yield
        finally:
            self._metrics, self._total_train_tokens = kept, tokens


class _Shares(TorchFunctionMode):
    """In here a mean over pairs that has a gradient, as TRL ends each of its losses, is one of values times their share."""

    def __init__(self, share: Any) -> None:
        super().__init__()
        self.share = share

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        bare = func in (torch.Tensor.mean, torch.mean) and len(args) == 1 and not kwargs
        if bare and args[0].requires_grad and args[0].shape == self.share.shape:
            args = (args[0] * self.share,)
        return func(*args, **(kwargs or {}))


def _one_sided(outputs: Any, inputs: Mapping[str, Any], weight: Any, turned: Any) -> Any:
    """Mean over tokens of the negative log-likelihood of the better answers: the rejected ones where ``turned``, (pairs,)."""
    mask = inputs["completion_mask"][:, 1:]
    sums = (outputs.log_probs[:, -mask.size(1) :] * mask).sum(1).chunk(2)
    tokens = mask.sum(1).chunk(2)
    return -(weight * torch.where(turned, sums[1], sums[0])).sum() / torch.where(turned, tokens[1], tokens[0]).sum()


class _Nowhere(dict[str, Any]):
    def __missing__(self, key: str) -> list[Any]:
        return []


def smoothing_of(loss_types: Sequence[str], smoothing: float) -> float:
    """What TRL is to be given as label_smoothing: only losses that read it get it, the others have it as flip probability."""
    return smoothing if set(loss_types) & set(OWN_SMOOTHING) else 0.0
