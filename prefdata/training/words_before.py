"""The words of pre-flight checks."""

from __future__ import annotations

from prefdata.training.word import Word

BEFORE: dict[str, Word] = {
    "fp16_weights": Word(
        "before",
        "The weights to be trained are float16. AdamW's epsilon 1e-8 is 0 in float16 and small squared gradients vanish, so the first step divides 0 by 0 and every weight becomes NaN.",
        "Train float32 weights (dtype: float32), with bf16 arithmetic where the hardware has it, or adapters.",
    ),
}
