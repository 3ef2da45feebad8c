"""A pool of processes on this machine; a single task or worker runs here, without a pool."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from prefdata.engines import Result, Task
from prefdata.errors import PrefdataError


class Local:
    """Processes are forked where the system can (no import is paid twice), else spawned."""

    name = "local"

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        done: Callable[[int, Result], None],
        warm: Callable[[], None] | None = None,
    ) -> list[Result]:
        """See ``Engine.map``."""
        results: list[Result | None] = [None] * len(tasks)
        # A fork pays no import twice; but threads, such as torch's, do not survive it.
        forks = sys.platform == "linux" and "torch" not in sys.modules
        alone = self.workers == 1 or len(tasks) == 1
        if warm is not None and len(tasks) > 1 and (alone or forks):
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its thread pool does not survive a fork
            warm()
        if alone:
            for i, task in enumerate(tasks):
                results[i] = result = function(task)
                done(i, result)
            return results  # type: ignore[return-value]
        if self._pool is None:
            context = multiprocessing.get_context("fork" if forks else "spawn")
            self._pool = ProcessPoolExecutor(self.workers, context, _begin)
        futures: dict[Future[Result], int] = {self._pool.submit(function, task): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                i = futures[future]
                results[i] = result = future.result()
                done(i, result)
        except BrokenProcessPool as error:
            raise PrefdataError(
                "a worker was killed", hint="Out of memory? Try --workers 1; --resume goes on."
            ) from error
        finally:
            for future in futures:
                future.cancel()
        return results  # type: ignore[return-value]

    def close(self) -> None:
        """Let the workers go."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def _begin() -> None:
    """A worker leaves Ctrl-C to the main process, and dies with it even where that is killed."""
    gc.freeze()  # what was inherited is not garbage: looking through it copies its pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
