"""Run a command and measure its process tree: ``python -m prefdata.bench.measure RESULT.json COMMAND...``.

A program of its own, so that it may adopt and reap every orphan: the CPU seconds are those of all processes
the command started, also of ones it never waited for. Memory is anonymous plus shared memory (proportional
shares), summed over the tree, sampled; pages of mapped files are left out: the kernel may drop them any time.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

PERIOD = 0.1
_PR_SET_CHILD_SUBREAPER = 36


def _parents() -> dict[int, int]:
    out = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - hundreds of names ten times a second
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            out[int(entry)] = int(stat[stat.rindex(b")") + 2 :].split()[1])
    return out


def _tree(root: int) -> list[int]:
    parents = _parents()
    found, grew = {root}, True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return [pid for pid in found if pid != root]


def tree_memory(root: int) -> int:
    """Bytes of anonymous and shared memory of all descendants of a process, the process itself left out."""
    total = 0
    for pid in _tree(root):
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def measure(command: list[str]) -> dict[str, float | int | None]:
    """Run the command to its end: code, CPU and wall seconds, peak memory (None where /proc has none)."""
    linux = sys.platform == "linux"
    if linux:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    peak, samples, over = 0, 0, threading.Event()

    def watch() -> None:
        nonlocal peak, samples
        while not over.wait(PERIOD):
            peak, samples = max(peak, tree_memory(os.getpid())), samples + 1

    begin = time.perf_counter()
    child = subprocess.Popen(command)
    watcher = threading.Thread(target=watch, daemon=True)
    if linux:
        watcher.start()
    code = child.wait()
    wall = time.perf_counter() - begin
    deadline = time.monotonic() + 10  # helpers that outlive the command by a moment
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
        except ChildProcessError:
            break
    over.set()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "code": code, "wall": wall, "user": used.ru_utime, "system": used.ru_stime,
        "cpu": used.ru_utime + used.ru_stime, "peak": peak if samples else None, "samples": samples,
    }  # fmt: skip


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure(sys.argv[2:])))
