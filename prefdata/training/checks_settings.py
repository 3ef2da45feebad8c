"""Checks of settings and tokenizer: what needs neither pairs nor weights."""

from __future__ import annotations

from collections.abc import Iterator

from prefdata.training.checks import Case, Check, Checks, Status

# Largest usual learning rates by size in billions. TRL's default is 1e-6 and its documentation has 1e-5 for adapters; Tulu 3 trains all weights of 8B at 5e-7.
_RATES = {"full": ((3, 5e-6), (30, 2e-6), (1e9, 1e-6)), "lora": ((3, 1e-4), (30, 5e-5), (1e9, 2e-5))}
_LEAST = {"full": 1e-8, "lora": 1e-7}
_LION = 3  # its steps are signs, so its rates are 3 to 10 times smaller
_BETAS = {
    "sigmoid_norm": (1.0, 10.0),
    "ipo": (0.01, 1.0),
    "sppo_hard": (1e-4, 0.5),
}  # other units: per token, gap, 1/eta
_USUAL_BETA = (0.01, 0.5)
_SORTED = {"aot", "aot_unpaired"}
_READ_SMOOTHING = {"robust", "exo_pair", "aot", "aot_unpaired"}
_LOST_IN_BF16 = 1e-5  # a step of AdamW is about the rate; 8 bits hold no step of 4e-5 beside a weight of 0.02


def weights_type(case: Case) -> Iterator[Check]:
    """float16 master weights, the cause of the NaN that follows the first step; bfloat16 ones, which lose small updates."""
    p = case.plan
    full = p.method == "full"
    if not full:
        yield Check("fp16_weights", "ok", f"adapters are trained in float32 over frozen {p.dtype} weights")
    elif p.dtype == "float16":
        what = (
            "all weights would be trained as float16: the first step of AdamW makes them NaN, at any learning rate. This is the cause; "
            "the padding token, defaults left as they are and long samples are not"
        )
        yield Check("fp16_weights", "fail", what)
    else:
        yield Check("fp16_weights", "ok", f"weights are trained as {p.dtype}")
    lost = full and p.dtype == "bfloat16" and p.learning_rate <= _LOST_IN_BF16
    what = f"{'weights' if full else 'frozen weights'} are {p.dtype}, learning rate {p.learning_rate:g}"
    yield Check("bf16_weights", "warn" if lost else "ok", what)
    what = f"arithmetic {p.precision} on {p.device} over {p.dtype} weights"
    status: Status = "ok"
    if p.precision == "fp16" and full and p.dtype != "float32":
        status, what = "fail", f"{what}: the loss scaler of fp16 needs float32 weights"
    elif p.precision == "fp16" and p.device == "cpu":
        status, what = "warn", f"{what}: there it is ignored, the run is fp32"
    yield Check("fp16_autocast", status, what)


def rates(case: Case) -> Iterator[Check]:
    """Learning rate by what is trained, size and optimiser."""
    p, s = case.plan, case.settings
    billions = case.facts.parameters / 1e9
    low, high = _LEAST[p.method], next(rate for size, rate in _RATES[p.method] if billions <= size)
    if "lion" in s.optim:
        low, high = low / _LION, high / _LION
    rate = [p.learning_rate, *s.lr_groups.values()]
    what = f"learning rate {', '.join(f'{r:g}' for r in rate)} ({p.method}, {s.optim}, {billions:.3g} billion parameters); usual {low:g} to {high:g}"
    odd = max(rate) > high or min(rate) < low
    yield Check("implausible_learning_rate", "warn" if odd else "ok", what)
    told = []
    for name in s.loss_type:
        least, most = _BETAS.get(name, _USUAL_BETA)
        if name != "sft" and not least <= s.beta <= most:
            told.append(f"usual for {name} {least:g} to {most:g}")
    what = f"beta {s.beta:g}" + (f" ({'; '.join(told)})" if told else f" for {'+'.join(s.loss_type)}")
    if s.beta == 0 and s.beta_schedule is None and s.loss_type != ["sft"]:
        yield Check("implausible_beta", "fail", "beta 0: every gradient of the preference loss is 0 (or divided by 0)")
    else:
        yield Check("implausible_beta", "warn" if told and s.beta_schedule is None else "ok", what)


def amounts(case: Case) -> Iterator[Check]:
    """Settings that are possible and hardly meant."""
    p, s = case.plan, case.settings
    told = []
    if p.epochs > 2:
        told.append(f"{p.epochs:g} epochs (preference pairs are overfitted after one or two)")
    if p.batch_size < 16:
        told.append(f"{p.batch_size} pairs a step (16 to 128 are usual: accumulation makes them)")
    if s.warmup_ratio > 0.5:
        told.append(f"warm-up over {100 * s.warmup_ratio:.0f} % of the steps")
    if s.weight_decay > 0.3:
        told.append(f"weight decay {s.weight_decay:g}")
    if s.max_grad_norm > 10:
        told.append(f"gradients are clipped at {s.max_grad_norm:g} only (1 is usual)")
    if p.lora_rank and p.lora_alpha and not 0.25 <= p.lora_alpha / p.lora_rank <= 8:
        told.append(f"alpha/rank {p.lora_alpha / p.lora_rank:g} multiplies what adapters learn (2 is usual)")
    what = f"{p.batch_size} pairs a step, {p.epochs:g} epochs, {p.warmup_steps} of {p.steps} steps warm-up"
    yield Check("implausible_setting", "warn" if told else "ok", "; ".join(told) or what)


def losses(case: Case) -> Iterator[Check]:
    """The loss against what it needs; names that TRL does not know are refused by the settings."""
    s, p = case.settings, case.plan
    named, wrong = set(s.loss_type), []
    if s.loss_weights is not None and len(s.loss_weights) != len(s.loss_type):
        wrong.append(f"{len(s.loss_type)} losses and {len(s.loss_weights)} loss_weights")
    if "exo_pair" in named and not p.label_smoothing:
        wrong.append("exo_pair takes the logarithm of label_smoothing, which must be above 0 (its paper: 1e-3)")
    if "robust" in named and p.label_smoothing >= 0.5:
        wrong.append("robust divides by 1 - 2 x label_smoothing, which must be below 0.5")
    if named & _SORTED and not case.data.train.plain:
        both = "+".join(sorted(named & _SORTED))
        wrong.append(
            f"{both} sorts the margins of a batch: weights and flip probabilities of pairs have no place in it"
        )
    fine = f"{'+'.join(s.loss_type)}, labels smoothed by {p.label_smoothing:g}"
    yield Check("loss_settings", "fail" if wrong else "ok", "; ".join(wrong) or fine)
    deaf = named - _READ_SMOOTHING if named & _READ_SMOOTHING else named & {"sft"}
    what = f"label_smoothing {p.label_smoothing:g} is not read by {'+'.join(sorted(deaf))}"
    yield Check("ignored_smoothing", *(("warn", what) if deaf and p.label_smoothing else ("ok", fine)))


def special_tokens(case: Case) -> Iterator[Check]:
    """Padding and end token."""
    t, facts, asked = case.tokenizer, case.facts, case.settings.pad_token
    if t.eos_token_id is None:
        what = "the tokenizer has no end token: TRL cannot end an answer, and the model would never learn to stop"
        yield Check("missing_end_token", "fail", what)
    else:
        yield Check("missing_end_token", "ok", f"the end token is {t.eos_token!r} ({t.eos_token_id})")
    if asked is not None and asked not in t.get_vocab():
        yield Check("bad_pad_token", "fail", f"pad_token {asked!r} is not in the vocabulary of {len(t):,} tokens")
    elif t.pad_token_id is None:
        yield Check("bad_pad_token", "fail", "there is no padding token, and no end token to take its place")
    elif t.pad_token_id >= facts.vocabulary:
        what = f"padding token {t.pad_token!r} has id {t.pad_token_id}; the embedding has {facts.vocabulary:,} rows"
        yield Check("bad_pad_token", "fail", what)
    else:
        others = (("end", t.eos_token_id), ("unknown", t.unk_token_id), ("start", t.bos_token_id))
        same = [name for name, other in others if other == t.pad_token_id]
        what = f"padding token {t.pad_token!r} ({t.pad_token_id})"
        if same:
            what += (
                f" is also the {' and '.join(filter(None, (', '.join(same[:-1]), same[-1])))} token. Harmless and not the cause of a NaN: TRL masks by length, not by the "
                "padding id, so the end token of an answer is still learnt"
            )
        yield Check("bad_pad_token", "ok", what)


def template(case: Case) -> Iterator[Check]:
    """Messages need a chat template; text is not put through one."""
    has = bool(case.tokenizer.chat_template)
    if case.data.chat and not has:
        yield Check("chat_template", "fail", "the pairs are messages and the tokenizer has no chat template")
    elif has and not case.data.chat:
        what = "the tokenizer has a chat template, the pairs are plain text: it is not applied to them"
        yield Check("chat_template", "warn", what)
    else:
        what = "messages, and the tokenizer has a template" if has else "plain text, and the tokenizer has no template"
        yield Check("chat_template", "ok", what)


def window(case: Case) -> Iterator[Check]:
    """``max_length`` against the positions that the model has, and memory by estimate against what is free."""
    p, facts = case.plan, case.facts
    status: Status = "ok"
    what = (
        f"max_length {p.max_length:,}, positions {'not bounded' if facts.positions is None else f'{facts.positions:,}'}"
    )
    if facts.positions is not None and p.max_length > facts.positions:
        status = "fail" if facts.learned else "warn"
        what += " learned: the first longer pair is an IndexError" if facts.learned else " seen in training"
    yield Check("position_limit", status, what)
    need, free = p.memory / 1e9, case.machine.memory / 1e9
    what = f"about {need:.2g} GB needed with {p.micro_batch_size} pairs at once, {free:.2g} GB free on the {p.device}"
    yield Check("memory_estimate", "warn" if need > free else "ok", what)


ALL: Checks = {
    weights_type: ("fp16_weights", "bf16_weights", "fp16_autocast"),
    rates: ("implausible_learning_rate", "implausible_beta"),
    amounts: ("implausible_setting",),
    losses: ("loss_settings", "ignored_smoothing"),
    window: ("position_limit", "memory_estimate"),
    special_tokens: ("missing_end_token", "bad_pad_token"),
    template: ("chat_template",),
}
