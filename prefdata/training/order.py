"""The order in which a run goes through its pairs: as they stand, or by difficulty."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefdata.errors import ConfigError
from prefdata.training.checks import Case
from prefdata.training.settings import Settings


def by_reference(settings: Settings) -> bool:
    """Whether difficulty is to be read off the reference's log-probabilities, which are then made ahead."""
    return settings.order in ("easy_first", "hard_first") and settings.order_by is None


def places(case: Case, trainer: Any) -> list[int]:
    """Places in the training set, each once, in the order of training; a process takes its share of every batch, as of any sampler.

    Pairs of unknown difficulty come last. Raises ConfigError where no pair has one.
    """
    s, dataset = case.settings, trainer.train_dataset
    if s.order == "as_is":
        return list(range(len(dataset)))
    assert case.train is not None
    if s.order_by is None:
        hard = np.asarray(dataset["ref_rejected_logps"], np.float64) - np.asarray(
            dataset["ref_chosen_logps"], np.float64
        )
    else:
        hard = case.data.train.numbers[s.order_by][case.train.rows]
        if np.isnan(hard).all():
            raise ConfigError(
                f"order_by {s.order_by}: no pair has a number in it", hint="Name a column of numbers, or none."
            )
    return [int(i) for i in np.argsort(hard if s.order == "easy_first" else -hard, kind="stable")]
