"""What the numbers of an evaluation mean: those of ``train.json``, ``train.html`` and ``metrics.jsonl``."""

from __future__ import annotations

NUMBERS: dict[str, str] = {
    "pairs": "Held-out pairs that were evaluated.",
    "accuracy": "Share of held-out pairs whose chosen answer has strictly the larger reward. 0 before training, where every pair is a tie.",
    "margin": "Mean reward of the chosen minus that of the rejected answer; a reward is beta times (log-probability of the policy minus that of the reference).",
    "ties": "Share of pairs whose margin is exactly 0: all of them before training.",
    "loss": "The loss on held-out pairs; ln 2 = 0.693 before training with the loss sigmoid. If it turns up while the training loss falls, the model learns the pairs by heart.",
    "reference_accuracy": "Share of held-out pairs whose chosen answer is the likelier one to the model itself, whatever the reference says.",
    "length_accuracy": "What 'the longer answer wins' would score on the held-out pairs. An accuracy that is not above it may be nothing but length.",
    "chosen": "Mean log-probability of the chosen answers, summed over their tokens. If it falls far, see likelihood_falls.",
    "rejected": "Mean log-probability of the rejected answers, summed over their tokens.",
    "forgetting": "Perplexity on neutral text that has nothing to do with the pairs. If it rises much, the model forgets.",
}
