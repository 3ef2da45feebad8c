"""Checks of settings and tokenizer: what needs neither pairs nor weights."""

from __future__ import annotations

from collections.abc import Iterator

from prefdata.training.checks import Case, Check

# Learning rates beyond which runs are known to break: TRL's default is 1e-6, Tulu 3 trains all weights at 5e-7, adapters at about 1e-5.
_RATES = {"full": (1e-8, 1e-5, 1e-4), "lora": (1e-7, 2e-4, 2e-3)}  # below: nothing moves; above: look; above: breaks
_OWN_UNIT = {"ipo", "sigmoid_norm"}  # per token: beta has another unit
_SORTED = {"aot", "aot_unpaired"}


def weights_type(case: Case) -> Iterator[Check]:
    """float16 master weights, the cause of the NaN that follows the first step; bfloat16 ones, which lose small updates."""
    p = case.plan
    if p.method == "lora":
        yield Check("fp16_weights", "ok", f"adapters are trained in float32 over frozen {p.dtype} weights")
    elif p.dtype == "float16":
        what = (
            "all weights would be trained as float16: the first step of AdamW makes them NaN at any learning rate. This is the cause "
            "of the NaN; padding token, sample length and other settings are not"
        )
        yield Check("fp16_weights", "fail", what)
    else:
        yield Check("fp16_weights", "ok", f"weights are trained as {p.dtype}")
    if p.method == "full" and p.dtype == "bfloat16":
        small = p.learning_rate <= 1e-5
        what = f"weights are trained as bfloat16 (8 bits of mantissa) at learning rate {p.learning_rate:g}"
        yield Check("bf16_weights", "warn" if small else "ok", what)
    if p.precision == "fp16" and (p.device == "cpu" or p.dtype == "float16"):
        what = f"fp16 arithmetic on {p.device} over {p.dtype} weights" + (": transformers ignores it there" if p.device == "cpu" else "")
        yield Check("fp16_arithmetic", "fail" if p.dtype == "float16" else "warn", what)


def rates(case: Case) -> Iterator[Check]:
    """Learning rate by what is trained, and by optimiser."""
    p, s = case.plan, case.settings
    low, high, broken = _RATES[p.method]
    if "lion" in s.optim:
        low, high, broken = low / 5, high / 5, broken / 5
    what = f"learning rate {p.learning_rate:g}, {p.method}, {s.optim}; usual up to {high:g}"
    status = "fail" if p.learning_rate > broken * 100 else "warn" if p.learning_rate > high or p.learning_rate < low else "ok"
    yield Check("implausible_learning_rate", status, what)


def numbers(case: Case) -> Iterator[Check]:
    """Settings that are possible and hardly meant; each is told, the run goes on unless it could not learn at all."""
    p, s = case.plan, case.settings
    told = []
    if s.beta == 0 and s.beta_schedule is None:
        yield Check("zero_beta", "fail", "beta 0 makes every gradient 0: nothing is learnt")
    elif not set(s.loss_type) & _OWN_UNIT and not 0.01 <= s.beta <= 1 and s.loss_type != ["sft"]:
        told.append(f"beta {s.beta:g} (usual .01 to 1 for {'+'.join(s.loss_type)})")
    if p.epochs > 2:
        told.append(f"{p.epochs:g} epochs (preference sets are overfitted after one or two)")
    if p.batch_size < 8 and p.steps > 10:
        told.append(f"{p.batch_size} pairs a step (16 to 128 are usual: accumulation makes them)")
    if s.warmup_ratio > 0.5:
        told.append(f"warm-up over {100 * s.warmup_ratio:.0f} % of the steps")
    if s.weight_decay > 0.3:
        told.append(f"weight decay {s.weight_decay:g}")
    if p.lora_rank and p.lora_alpha and not 0.25 <= p.lora_alpha / p.lora_rank <= 8:
        told.append(f"alpha/rank {p.lora_alpha / p.lora_rank:g} multiplies the adapters' learning rate (2 is usual)")
    what = "; ".join(told) or f"beta {s.beta:g}, {p.batch_size} pairs a step, {p.epochs:g} epochs, warm-up {p.warmup_steps} steps"
    yield Check("implausible_setting", "warn" if told else "ok", what)


def losses(case: Case) -> Iterator[Check]:
    """The loss against what it needs: unknown names are refused by the settings, the rest here."""
    s, p = case.settings, case.plan
    named, wrong = set(s.loss_type), []
    if s.loss_weights is not None and len(s.loss_weights) != len(s.loss_type):
        wrong.append(f"{len(s.loss_type)} losses and {len(s.loss_weights)} loss_weights")
    if "exo_pair" in named and not 0 < p.label_smoothing < 0.5:
        wrong.append("exo_pair needs a label_smoothing above 0 (its paper: 1e-3)")
    if "robust" in named and p.label_smoothing >= 0.5:
        wrong.append("robust divides by 1 - 2 x label_smoothing: it must be below 0.5")
    if named & _SORTED and not case.data.train.plain:
        wrong.append(f"{'+'.join(named & _SORTED)} sorts a batch: weights and flip probabilities of pairs have no place in it")
    what = "; ".join(wrong) or "+".join(s.loss_type)
    if not wrong and p.label_smoothing:
        what += f", labels smoothed by {p.label_smoothing:g}"
    yield Check("loss_settings", "fail" if wrong else "ok", what)


def tokens(case: Case) -> Iterator[Check]:
    """Padding, end and start token, and the rows of the embedding."""
    t, facts = case.tokenizer, case.facts
    if t.eos_token_id is None:
        yield Check("missing_end_token", "fail", "the tokenizer has no end token: TRL cannot end an answer")
    else:
        yield Check("missing_end_token", "ok", f"the end token is {t.eos_token!r}")
    if t.pad_token_id is None:
        yield Check("bad_pad_token", "fail", "there is no padding token, and no end token to take its place")
    elif t.pad_token_id >= facts.vocabulary:
        yield Check("bad_pad_token", "fail", f"padding token {t.pad_token!r} has id {t.pad_token_id}; the model knows {facts.vocabulary:,}")
    else:
        same = [n for n, other in (("end", t.eos_token_id), ("unknown", t.unk_token_id), ("start", t.bos_token_id)) if other == t.pad_token_id]
        what = f"padding token {t.pad_token!r}"
        if same:
            what += (
                f" is also the {' and '.join(same)} token. Harmless, and no cause of NaN: TRL masks by length, not by the padding id, "
                "so the end token at the end of an answer is still learnt"
            )
        yield Check("bad_pad_token", "ok", what)
    if len(t) > facts.vocabulary:
        what = f"the tokenizer has {len(t):,} tokens, the model's embedding {facts.vocabulary:,} rows"
        yield Check("vocabulary_mismatch", "fail", what)
    else:
        yield Check("vocabulary_mismatch", "ok", f"{len(t):,} tokens, {facts.vocabulary:,} rows in the embedding")
    if case.data.chat and not t.chat_template:
        yield Check("chat_template", "fail", "the pairs are messages and the tokenizer has no chat template")
    elif t.chat_template and not case.data.chat:
        yield Check("chat_template", "warn", "the model has a chat template, the pairs are plain text: it is not applied")
    else:
        yield Check("chat_template", "ok", "messages, with the tokenizer's template" if case.data.chat else "plain text, no template")


def window(case: Case) -> Iterator[Check]:
    """``max_length`` against the positions that the model has."""
    p, facts = case.plan, case.facts
    if facts.positions is None or p.max_length <= facts.positions:
        yield Check("position_limit", "ok", f"max_length {p.max_length:,}, positions {facts.positions or 'not bounded'}")
    elif facts.learned:
        what = f"max_length {p.max_length:,} is beyond the {facts.positions:,} learned positions: the first longer pair is an IndexError"
        yield Check("position_limit", "fail", what)
    else:
        yield Check("position_limit", "warn", f"max_length {p.max_length:,} is beyond the {facts.positions:,} positions the model was trained on")


def memory(case: Case) -> Iterator[Check]:
    """The estimate against what is free."""
    need, free = case.plan.memory / 1e9, case.machine.memory / 1e9
    what = f"about {need:.1f} GB needed at {case.plan.micro_batch_size} pairs at once, {free:.1f} GB free on the {case.machine.device}"
    yield Check("memory_estimate", "warn" if need > free else "ok", what)


ALL = (weights_type, rates, numbers, losses, tokens, window, memory)
