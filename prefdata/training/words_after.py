"""The words of ``doctor``, and of evaluation: what went wrong with a run that has ended."""

from __future__ import annotations

from prefdata.training.word import Word

_FP16 = "Most often the weights are float16: load the model with dtype float32. Then look at the learning rate."
AFTER: dict[str, Word] = {
    "nan_hidden": Word(
        "after",
        "The log shows a loss of 0.0 that is a NaN: Trainer replaces it (logging_nan_inf_filter) while rewards and gradient are NaN.",
        f"{_FP16} Set logging_nan_inf_filter=False to see it at once.",
    ),
    "evaluation_nonfinite": Word(
        "after",
        "The evaluation gives NaN. An accuracy of exactly 0.0 beside it is a NaN too: no comparison with NaN is true.",
        f"{_FP16} Where the training loss is finite, look for held-out pairs whose answers are cut to nothing.",
    ),
    "evaluation_empty": Word(
        "after",
        "The evaluation gives no numbers: TRL has dropped every held-out pair, because its prompt fills max_length.",
        "Raise max_length, or hold out shorter pairs.",
    ),
    "no_evaluation": Word(
        "after",
        "No held-out pairs were looked at: whether the model got better or learnt its pairs by heart is not known.",
        "Hold pairs out by prompt (prefdata clean --split test=5%) and evaluate about ten times (eval_strategy steps).",
    ),
    "no_log": Word(
        "after",
        "The run logged no step: the first line comes after logging_steps steps, and it had fewer.",
        "Set logging_steps to a fiftieth of the steps.",
    ),
    "overfitted": Word(
        "after",
        "The margin of the training pairs grows while the loss of the held-out ones rises: pairs are learnt by heart.",
        "Use the checkpoint with the lowest held-out loss; train one epoch, at a lower learning_rate or with a higher beta.",
    ),
    "no_gain": Word(
        "after",
        "The training pairs are told apart and the held-out ones no better than by a coin.",
        "Look for wrong labels (label_noise in the audit) and for held-out prompts of another kind; add pairs.",
    ),
    "gradient_vanishes": Word(
        "after",
        "The norm of the gradient is 0: nothing is learnt any more, or nothing ever was.",
        "With a large margin: lower learning_rate. With a margin of 0: look for equal or cut-away answers, and at what is trained.",
    ),
    "gradient_grows": Word(
        "after",
        "The gradient has grown far above what it was at the start; clipping hides it, but every step now goes as far as it may.",
        "Lower learning_rate, and read the pairs of these steps.",
    ),
    "killed": Word(
        "after",
        "The run left no word of its end: it is still running, or was killed, by the system (memory, time) or by hand.",
        "See whether it still runs. If not, prefdata train ... --resume goes on from the last checkpoint; for plain Trainer, resume_from_checkpoint.",
    ),
    "slows_down": Word(
        "after",
        "The last steps took more than twice as long for a token as the first: heat, swapped memory, or another program on the machine.",
        "Look at the temperature and clock of the GPU, and at what else runs there.",
    ),
}  # fmt: skip
