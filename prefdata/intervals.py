"""Intervals of shares."""

from __future__ import annotations

import math

Z = 1.959963984540054  # of 95 %


def wilson(share: float, n: float, z: float = Z) -> tuple[float, float]:
    """Score interval (Wilson 1927) of a share of ``n`` independent draws, which may be an effective number."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def difference(hits: int, n: int, hits_then: int, n_then: int) -> tuple[float, float]:
    """95 % interval of a share minus the share of another sample, out of their Wilson bounds (Newcombe 1998, method 10)."""
    now, then = hits / n, hits_then / n_then
    (low, high), (low_then, high_then) = wilson(now, n), wilson(then, n_then)
    change = now - then
    return change - math.hypot(now - low, high_then - then), change + math.hypot(high - now, then - low_then)
