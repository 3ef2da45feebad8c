"""The words of guards that look while a run goes on."""

from __future__ import annotations

from prefdata.training.word import Word

DURING: dict[str, Word] = {
    "nonfinite_parameter": Word(
        "during",
        "A trained weight is no finite number: everything that the model says from here on is NaN or garbage.",
        "Look at dtype and learning_rate first; train float32 weights.",
    ),
    "nonfinite_loss": Word(
        "during",
        "The loss or a log-probability of this batch is no finite number; the rows are named.",
        "Read the rows named. With finite inputs it is the type of the weights or the learning rate.",
    ),
}
