"""TRL's ``DPOTrainer`` with what it has no answer for: weights and flip probabilities of pairs, and numbers of every single pair.

The loss of a batch is the mean over its pairs of ``w * ((1 - p) * l(d) + p * l(-d))``, where ``l`` is TRL's own loss, whichever
it is, of the pair alone: the model is run once, and TRL's code is asked again for each pair with that pair's share of the
outputs, once as it stands and once turned round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from trl import DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from prefdata.training.settings import OWN_SMOOTHING

ROW, WEIGHT, FLIP = "pd_row", "pd_weight", "pd_flip"
BESIDE = (ROW, WEIGHT, FLIP)
ONE_SIDED = ("sft",)  # a loss of the chosen answer alone: a pair turned round would teach the rejected one


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
    """``watch(rows, numbers, training)`` hears, of each batch, rows and tensors (pairs,): ``chosen``, ``rejected``, ``ref_chosen``,
    ``ref_rejected`` log-probabilities and the ``loss`` (a scalar).
    """

    _signature_columns: Any
    precompute_ref_logps: Any
    loss_weights: Any
    _metrics: Any
    _total_train_tokens: Any

    def __init__(
        self,
        *args: Any,
        watch: Callable[[Any, Mapping[str, Any], bool], None] | None = None,
        sampler: Callable[[Any], Any] | None = None,
        clip: Callable[[Any, Any], Any] | None = None,
        extra_loss: Callable[[Any, int], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.watch, self.sampler, self.clip, self.extra_loss = watch, sampler, clip, extra_loss
        self.norm: Any = None  # of the gradient before it was clipped, at the last step
        super().__init__(*args, **kwargs)

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

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False) -> Any:
        """TRL's loss and metrics; where pairs count differently, their own loss in its place."""
        inputs = dict(inputs)
        beside = {n: inputs.pop(n) for n in BESIDE if n in inputs}
        training = bool(self.model.training)
        with self._references_given(inputs):
            seen = Seen(model)
            got = super()._compute_loss(seen, inputs, return_outputs)
            loss = got[0] if return_outputs else got
            if WEIGHT in beside:
                weight, flip = beside[WEIGHT].float(), beside[FLIP].float()
                if bool((weight != 1).any()) or bool((flip != 0).any()):
                    loss = self._weighted(seen.outputs, inputs, weight, flip)
            if self.watch is not None and ROW in beside:
                self.watch(beside[ROW], self._numbers(seen.outputs, inputs, loss), training)
        if training and self.extra_loss is not None:
            extra = self.extra_loss(model, len(inputs["input_ids"]) // 2)
            loss = loss if extra is None else loss + extra
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
        return {
            "chosen": chosen, "rejected": rejected, "ref_chosen": inputs["ref_chosen_logps"],
            "ref_rejected": inputs["ref_rejected_logps"], "loss": loss.detach(),
        }  # fmt: skip

    def _weighted(self, outputs: Any, inputs: Mapping[str, Any], weight: Any, flip: Any) -> Any:
        n = len(weight)
        losses, weights = list(self.loss_types), list(self.loss_weights)
        one = [w if t in ONE_SIDED else 0.0 for t, w in zip(losses, weights, strict=True)]
        both = [0.0 if t in ONE_SIDED else w for t, w in zip(losses, weights, strict=True)]
        total: Any = 0.0
        with self._silent():
            for i in range(n):
                if weight[i] == 0:
                    continue
                share = 0.0
                if any(both):
                    if flip[i] < 1:
                        share = share + (1 - flip[i]) * self._of_pair(outputs, inputs, (i, n + i), both)
                    if flip[i] > 0:
                        share = share + flip[i] * self._of_pair(outputs, inputs, (n + i, i), both)
                if any(one):
                    share = share + self._of_pair(outputs, inputs, (i, n + i), one)
                total = total + weight[i] * share
        self.loss_weights = weights
        return (total if torch.is_tensor(total) else outputs.log_probs.sum() * 0.0) / n

    def _of_pair(self, outputs: Any, inputs: Mapping[str, Any], at: tuple[int, int], weights: Sequence[float]) -> Any:
        """TRL's loss of one pair; ``at`` are the places of the better and of the worse answer in the batch."""
        rows = list(at)
        per_token = ("log_probs", "entropy", "mean_logits", "is_top1", "log_sum_sq_probs")
        part = SimpleNamespace(**{k: v[rows] for k in per_token if (v := getattr(outputs, k, None)) is not None})
        part.aux_loss = getattr(outputs, "aux_loss", None)
        pair = {k: inputs[k][rows] for k in ("input_ids", "attention_mask", "completion_mask")}
        references = torch.cat([inputs["ref_chosen_logps"], inputs["ref_rejected_logps"]])
        pair["ref_chosen_logps"], pair["ref_rejected_logps"] = references[at[0]][None], references[at[1]][None]
        self.loss_weights = list(weights)
        return super()._compute_loss(lambda **_: part, pair, False)

    @contextmanager
    def _silent(self) -> Iterator[None]:
        """No metrics of single pairs among those of batches."""
        kept, tokens = self._metrics, self._total_train_tokens
        self._metrics = {mode: _Nowhere() for mode in kept}
        try:
            yield
        finally:
            self._metrics, self._total_train_tokens = kept, tokens


class _Nowhere(dict[str, Any]):
    def __missing__(self, key: str) -> list[Any]:
        return []


def smoothing_of(loss_types: Sequence[str], smoothing: float) -> float:
    """What TRL is to be given as label_smoothing: only losses that read it get it, the others have it as flip probability."""
    return smoothing if set(loss_types) & set(OWN_SMOOTHING) else 0.0
