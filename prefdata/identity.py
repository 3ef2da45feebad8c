"""Which texts a pair is made of, as one number: rows of another run, and verdicts of people, are known by it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prefdata.decisions import Signals
from prefdata.near import combined
from prefdata.pairs import SIDES

SIDE_KEYS = tuple(f"pair.{side}_key" for side in SIDES)


def content_keys(signals: Signals) -> npt.NDArray[np.uint64]:
    """One hash of the three texts (their normal forms, as read) of each living pair; all of them must be sound."""
    return combined([signals.column(name) for name in SIDE_KEYS])


def spelled(key: int) -> str:
    """The hash as files hold it: 16 hex digits."""
    return f"{key:016x}"
