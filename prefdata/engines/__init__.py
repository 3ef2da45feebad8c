"""Engines map a function over chunks, and know nothing else. An engine is chosen by name, never started unasked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from prefdata.errors import ConfigError

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Where chunk functions run."""

    name: str
    workers: int

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        done: Callable[[int, Result], None],
        warm: Callable[[], None] | None = None,
    ) -> list[Result]:
        """Results in the order of the tasks; ``done(i, result)`` is called here as each one is ready.

        ``warm`` is called where it saves work: before many tasks run here, or workers are forked. The first error stops the rest and is raised.
        """

    def close(self) -> None:
        """Let the workers go."""


def engine(name: str, workers: int) -> Engine:
    """The engine of that name with so many workers."""
    if name == "local":
        from prefdata.engines.local import Local

        return Local(workers)
    if name == "ray":
        from prefdata.engines.ray import RayEngine

        return RayEngine(workers)
    raise ConfigError(f"no such engine: {name}", hint="Known: local, ray")
