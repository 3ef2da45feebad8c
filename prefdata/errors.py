"""One exception tree: every error a user can cause says where, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class PrefdataError(Exception):
    """A mistake in the input, the configuration or the surroundings; printed as ``where: what. hint``."""

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(what, where, hint)  # all of them, so that it survives pickling from a worker

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.hint)

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head.rstrip('.')}. {self.hint}" if self.hint else head


def _rebuild(kind: type[PrefdataError], what: str, where: str, hint: str) -> PrefdataError:
    return kind(what, where=where, hint=hint)


class InputError(PrefdataError):
    """The input cannot be read, or holds no rows or no pairs."""


class ConfigError(PrefdataError):
    """A pipeline, a parameter or an option is wrong."""


class OutputError(PrefdataError):
    """The output folder cannot be used."""


class MissingExtra(PrefdataError):
    """An optional part is not installed."""

    @classmethod
    def of(cls, extra: str, needed_for: str) -> MissingExtra:
        """Name the extra and the command that installs it."""
        return cls(f"{needed_for} needs the extra [{extra}]", hint=f"pip install 'prefdata[{extra}]'")


@contextmanager
def located(where: str) -> Iterator[None]:
    """Errors raised inside that name no place get this one."""
    try:
        yield
    except PrefdataError as error:
        error.where = error.where or where
        raise


def first_line(error: BaseException) -> str:
    """What an error of a library says first, for people; its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like this one, or nothing if none is near."""
    from rapidfuzz import process

    best = process.extractOne(word, list(known), score_cutoff=60)
    return best[0] if best else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``Did you mean x?``, or nothing if no known word is near."""
    near = nearest(word, known)
    return f"Did you mean {near}?" if near else ""


def near_or_all(word: str, known: Iterable[str], named: str = "Known") -> str:
    """The hint for a word that is none of the known ones: the nearest, or all of them if none is near."""
    known = list(known)
    return did_you_mean(word, known) or f"{named}: {', '.join(known)}"
