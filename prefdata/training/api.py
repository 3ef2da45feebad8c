"""``prefdata.train``: training from Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefdata.training import settings
from prefdata.training.dpo import Trained
from prefdata.training.dpo import train as _train
from prefdata.training.telling import Tell


def train(
    source: Any, out: str | os.PathLike[str], model: str | None = None, *, recipe: str | Path | None = None, check: bool = False,
    resume: bool = False, overwrite: bool = False, say: Callable[[str], None] = lambda text: None, tell: Tell | None = None, **given: Any,
) -> Trained:  # fmt: skip
    """Train ``model`` with DPO on a cleaned folder, a dataset or a file, into the folder ``out``.

    Keywords are the settings of a recipe (``beta=0.2``) and override those of the file ``recipe``. With ``check`` nothing is trained.
    ``source`` may also be a list of rows, a DataFrame or a ``datasets.Dataset``. ``say`` hears of alarms, ``tell`` of steps and evaluations.
    Raises ConfigError, InputError and OutputError for what is wrong with these; what a check or a guard found is in the result.
    """
    asked = settings.load(recipe, given={"model": model, **given})
    return _train(source, Path(out), asked, check=check, resume=resume, overwrite=overwrite, say=say, tell=tell)
