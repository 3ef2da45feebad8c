"""All words of training: of checks before, guards during and diagnoses after it."""

from __future__ import annotations

from prefdata.training.word import Word
from prefdata.training.words_after import AFTER
from prefdata.training.words_before import BEFORE
from prefdata.training.words_during import DURING

WORDS: dict[str, Word] = {**BEFORE, **DURING, **AFTER}
