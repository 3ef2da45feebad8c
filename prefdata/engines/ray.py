"""Ray tasks: one machine, or a cluster whose nodes all see the same file system. Extra ``[ray]``; never started unasked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from prefdata.engines import Result, Task
from prefdata.errors import MissingExtra, PrefdataError


class RayEngine:
    """Joins the cluster that ``RAY_ADDRESS`` names or that this process has joined already, else starts one here."""

    name = "ray"

    def __init__(self, workers: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra.of("ray", "--engine ray") from error
        self.workers = workers
        self._ray: Any = ray
        self._own = not ray.is_initialized()
        if self._own:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            address = os.environ.get("RAY_ADDRESS")
            local = {} if address else {"num_cpus": workers, "include_dashboard": False}
            ray.init(address=address, log_to_driver=False, logging_level="error", **local)

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        done: Callable[[int, Result], None],
        warm: Callable[[], None] | None = None,
    ) -> list[Result]:
        """See ``Engine.map``."""
        remote = self._ray.remote(function)
        results: list[Any] = [None] * len(tasks)
        waiting = list(enumerate(tasks))[::-1]
        running: dict[Any, int] = {}
        while waiting or running:
            while waiting and len(running) < 2 * self.workers:
                i, task = waiting.pop()
                running[remote.remote(task)] = i
            ready, _ = self._ray.wait(list(running))
            for ref in ready:
                i = running.pop(ref)
                try:
                    results[i] = result = self._ray.get(ref)
                except self._ray.exceptions.RayError as error:
                    for other in running:
                        self._ray.cancel(other)
                    cause = getattr(error, "cause", None)
                    if isinstance(cause, PrefdataError):
                        raise cause from None
                    if isinstance(error, self._ray.exceptions.RayTaskError):
                        raise
                    raise PrefdataError("a worker was lost", hint="Out of memory? --resume goes on.") from error
                done(i, result)
        return results

    def close(self) -> None:
        """Leave the cluster, if it was joined here."""
        if self._own:
            self._ray.shutdown()
