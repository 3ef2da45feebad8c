"""Mixes of domains: what shares are wanted, how far a mix is from them, and which counts would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Target = Literal["uniform", "sqrt"] | Mapping[str, float]
_ROUNDING = 1e-9
_TRIED = 4_096  # levels of whole rows that are tried below the best level of fractions


@dataclass(frozen=True)
class Mix:
    """What is wanted of the domains: ``shares`` that sum to 1, kept to ``deviation``; or no share above ``most``.

    With ``most``, ``shares`` are the nearest ones that keep to it: those above are cut to it, the others keep their proportions.
    """

    shares: Floats
    deviation: float
    most: float | None = None

    def off(self, counts: npt.NDArray[np.number]) -> Floats:
        """``|share - target| / target`` of each domain."""
        return np.asarray(np.abs(counts / counts.sum() - self.shares) / self.shares)

    def fits(self, counts: npt.NDArray[np.number]) -> bool:
        """Whether these counts keep to the mix."""
        if self.most is not None:
            return bool(counts.max() <= self.most * counts.sum() + _ROUNDING)
        return bool(self.off(counts).max() <= self.deviation + _ROUNDING)

    def capped(self, counts: Ints) -> Ints | None:
        """The most rows of each domain that keep to the mix; None where leaving out cannot do it.

        No domain is emptied: it would be off by 1, more than any deviation that is allowed; and a level of rows is at least 1.
        """
        return self._levelled(counts, -1)

    def filled(self, counts: Ints) -> Ints | None:
        """The fewest rows of each domain, none of them less than there are, that keep to the mix; None where none do."""
        return self._levelled(counts, 1)

    def _levelled(self, counts: Ints, sign: Literal[-1, 1]) -> Ints | None:
        """The counts cut to (-1) or filled up to (1) one level of the shares, as little as will do, in whole rows."""
        base = np.full(len(counts), 1.0) if self.most is not None else self.shares
        bound, whole = (np.maximum, np.ceil) if sign > 0 else (np.minimum, np.floor)

        def held(level: float, rounded: Callable[[Floats], Floats] = np.asarray) -> Floats:
            return np.asarray(bound(counts, rounded(level * base - sign * _ROUNDING)))

        far, near = (float(v) for v in ((counts / base).min(), (counts / base).max())[::sign])
        level = _edge(far, near, lambda c: self.fits(held(c)))
        if level is None:
            return None
        steps = (whole(level * base)[:, None] + sign * (np.arange(64) - 2)) / base[:, None]
        levels = np.unique(steps[(steps > 0) & (sign * steps >= sign * far)])[::sign][:_TRIED]
        return next((k.astype(np.int64) for c in levels if self.fits(k := held(c, whole))), None)


def _edge(far: float, near: float, fits: Callable[[float], bool]) -> float | None:
    """The level nearest to ``far`` that fits, where ``near`` and all between it and that level do; None if ``near`` does not."""
    if not fits(near):
        return None
    for _ in range(100):
        middle = (far + near) / 2
        far, near = (far, middle) if fits(middle) else (middle, near)
    return near


def shares_wanted(names: Sequence[str], counts: Ints, target: Target) -> Floats:
    """The target share of each domain, 0 for one that the mix leaves out. Domains that a mix does not name share what it
    leaves over, in their own proportions; shares are made to sum to 1 over the domains that are there.
    """
    if target == "uniform":
        wanted = np.ones(len(counts))
    elif target == "sqrt":
        wanted = np.sqrt(counts)
    else:
        assert isinstance(target, Mapping)
        named = np.array([n in target for n in names], bool)
        wanted = np.array([target.get(n, 0.0) for n in names])
        over = max(0.0, 1 - sum(target.values()))
        if over > _ROUNDING and (~named).any():
            wanted[~named] = over * counts[~named] / counts[~named].sum()
    return np.asarray(wanted / max(wanted.sum(), _ROUNDING))


def shares_below(counts: Ints, most: float) -> Floats | None:
    """The present shares, those above ``most`` cut to it and the others raised in proportion; None where that cannot be."""
    shares, held = counts / counts.sum(), np.zeros(len(counts), bool)
    if most * len(counts) < 1 - _ROUNDING:
        return None
    while (above := ~held & (shares > most + _ROUNDING)).any():
        held |= above
        shares[held] = most
        if (~held).any():
            shares[~held] *= (1 - most * held.sum()) / shares[~held].sum()
    return np.asarray(shares)
