"""From a plan to TRL's configuration and to the trainer with its model, its reference and its tactics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefdata.training import average, models, order, tactics, telling
from prefdata.training.checks import Case
from prefdata.training.folder import CHECKPOINTS
from prefdata.training.settings import Settings


def arguments(case: Case, home: Path) -> Any:
    """TRL's own configuration: every effective value, none left to a default that may change."""
    from trl import DPOConfig

    from prefdata.training.trainer import smoothing_of

    p, s = case.plan, case.settings
    held = case.held is not None and len(case.held.dataset) > 0
    return DPOConfig(
        output_dir=str(home / CHECKPOINTS), beta=s.beta, loss_type=list(s.loss_type), loss_weights=s.loss_weights,
        label_smoothing=smoothing_of(s.loss_type, p.label_smoothing), max_length=p.max_length, truncation_mode="keep_start",
        learning_rate=p.learning_rate, lr_scheduler_type=s.lr_scheduler_type, warmup_steps=p.warmup_steps, weight_decay=s.weight_decay,
        optim=s.optim, max_grad_norm=s.max_grad_norm, max_steps=p.steps, per_device_train_batch_size=p.micro_batch_size,
        per_device_eval_batch_size=p.micro_batch_size, gradient_accumulation_steps=p.accumulation,
        activation_checkpointing=p.gradient_checkpointing, bf16=p.precision == "bf16", fp16=p.precision == "fp16", use_cpu=p.device == "cpu",
        seed=s.seed, data_seed=s.seed, logging_steps=p.logging_steps, logging_first_step=True, logging_nan_inf_filter=False,
        eval_strategy="steps" if held else "no", eval_steps=p.eval_steps, save_strategy="steps", save_steps=p.eval_steps,
        save_total_limit=_checkpoints(s), report_to=list(s.report_to) or "none", remove_unused_columns=True, disable_tqdm=True,
        precompute_ref_log_probs=_ahead(s), dataloader_pin_memory=p.device != "cpu",
    )  # fmt: skip


def _ahead(settings: Settings) -> bool:
    """Whether the reference's log-probabilities are made once, before the first step; it is not needed beside the model then."""
    return settings.reference == "precompute" or order.by_reference(settings)


def _checkpoints(settings: Settings) -> int | None:
    """How many to keep: those that are to be averaged, which are all where the best are."""
    which, k = average.asked(settings.average or f"last:{settings.save_total_limit}")
    return None if which == "best" else max(k, settings.save_total_limit)


def trainer(case: Case, home: Path) -> Any:
    """The trainer of this plan, its model loaded and adapted; tactics are in it, watchers are not."""
    from transformers import PrinterCallback

    from prefdata.training.trainer import Collator, PreferenceTrainer

    p, s = case.plan, case.settings
    assert case.train is not None
    if s.reference not in ("same", "precompute"):
        models.same_words(case.tokenizer, case.facts.vocabulary, s.reference)
    model = models.load(s, p.dtype)
    reference = None
    if p.method == "full" and s.reference == "same" and not _ahead(s):
        reference = models.load(s, p.dtype)
    elif s.reference not in ("same", "precompute"):
        reference = models.load(s.model_copy(update={"model": s.reference}), p.dtype)
    args = arguments(case, home)
    adapter = models.adapter(s, p.lora_rank or 8, p.lora_alpha or 16.0) if p.method == "lora" else None
    collator = Collator(pad_token_id=case.tokenizer.pad_token_id, max_length=p.max_length)
    made = PreferenceTrainer(
        model=model, ref_model=reference, args=args, train_dataset=case.train.dataset,
        eval_dataset=None if case.held is None else case.held.dataset, processing_class=case.tokenizer, peft_config=adapter,
        data_collator=collator,
    )  # fmt: skip
    made.remove_callback(PrinterCallback)  # prints every log as a dict, on stdout
    if case.notes.get("tell") is not None:
        made.add_callback(telling.Progress(case.notes["tell"]))
    tactics.equip(case, made)
    return made
