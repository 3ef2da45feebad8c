"""How far one trait of the answers says which of them is chosen, and which phrases or whole answers do.

Rows are pairs, columns differences (chosen minus rejected): swapping a pair negates its row. Whatever is fitted or picked is
judged on prompts that took no part in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.intervals import wilson
from prefdata.lexicon import Q, mixed
from prefdata.noise import logistic
from prefdata.ragged import places
from prefdata.words_numpy import U32, U64, Ints

Floats = npt.NDArray[np.float64]
FOLDS = 10
EDGE = 4  # words of a beginning or an ending
WIDER = 1.25  # folds share rows: on random labels measures scatter by so much more than those of rows of their own


@dataclass(frozen=True)
class Strength:
    """``accuracy`` over ``n`` pairs, a pair on which the trait is silent counting one half, with its 95 % interval; ``covers`` is
    the share of pairs on which it speaks, ``right`` its accuracy there (NaN if there are none).
    """

    accuracy: float
    low: float
    high: float
    n: int
    covers: float
    right: float


@dataclass(frozen=True)
class Named:
    """One of many traits: the share of ``n`` pairs that the answer with it wins, with its 95 % interval, its number among the
    traits, and positions of pairs that show it.
    """

    trait: int
    share: float
    low: float
    high: float
    n: int
    pairs: Ints


def folds(prompts: U64, seed: int) -> npt.NDArray[np.int8]:
    """The fold of each pair, by hash of its prompt."""
    return (mixed(prompts + np.uint64(seed)) % np.uint64(FOLDS)).astype(np.int8)


def margins(x: Any, fold: npt.NDArray[np.int8], c: float) -> Floats:
    """The cross-fitted score of each pair, above 0 where it says that the chosen answer is chosen.

    ``x`` is dense or CSR, float32; columns are scaled by their root mean square, not centred: a sign would lose its meaning.
    """
    place, out = fold.astype(np.int64), np.zeros(x.shape[0])
    if isinstance(x, np.ndarray):
        scale = np.sqrt(np.square(x, dtype=np.float64).mean(axis=0))
        x = (x / np.where(scale > 0, scale, 1)).astype(np.float32)
        fits = logistic.newton(x, c, place, FOLDS)
    else:
        fits = logistic.descent(x, c, place, FOLDS)
    for f, weights in enumerate(fits):
        out[fold == f] = x[fold == f] @ weights
    return out


def said(trait: Any, fold: npt.NDArray[np.int8], prompts: U64, c: float) -> tuple[Floats, Floats]:
    """What a trait says of each pair, in [-1, 1]: 1 that the chosen answer is chosen, -1 the other one; and its score.

    It is said as surely as it is known from the other folds: by the sign of a number (``trait`` of one dimension), as surely as
    they agree on which sign wins; by a fit, as surely as it is right there. On random labels an accuracy lies less far off.
    """
    from scipy.special import ndtr

    margin = trait.astype(np.float64) if trait.ndim == 1 else margins(trait, fold, c)
    sign = np.sign(margin)
    _, first, group = np.unique(prompts, return_index=True, return_inverse=True)
    sums = np.bincount(group, sign)
    won, spread = (np.bincount(fold[first], v, FOLDS) for v in (sums, sums * sums))
    sure = 2 * ndtr((won.sum() - won) / np.sqrt(np.maximum(spread.sum() - spread, 1)) / WIDER) - 1
    if trait.ndim > 1:  # what is wrong elsewhere is not turned round: it is silent
        sure = np.maximum(sure, 0)
    return sign * sure[fold], margin * np.sign(sure)[fold] if trait.ndim == 1 else margin


def strength(said: Floats, margin: Floats, prompts: U64) -> Strength:
    """The accuracy of what ``said`` returns. Pairs of one prompt are no independent draws: the Wilson interval is that of as
    many as have the variance of the sums over prompts, widened by ``WIDER``.
    """
    n = len(said)
    mean = float((1 + said).mean() / 2)
    speaks = margin != 0
    covers = float(speaks.mean())
    _, group = np.unique(prompts, return_inverse=True)
    hit = (1 + np.sign(margin)) / 2
    sums = np.bincount(group, hit - hit.mean())
    variance = WIDER**2 * float(sums @ sums) / n**2 * len(sums) / max(1, len(sums) - 1)
    low = high = mean
    if variance > 0 or covers > 0:
        low, high = wilson(mean, mean * (1 - mean) / variance if variance > 0 else len(sums))
    return Strength(mean, low, high, n, covers, float((1 + said[speaks]).mean() / 2) if covers else math.nan)


def edges(words: U32, start: Ints, stop: Ints) -> U64:
    """A key for each beginning and each ending of 1 to ``EDGE`` words of each text ``words[start:stop]``, (n, 2 * EDGE): a hash
    whose last bits say what it is (see ``edge_of``); 0 where a text is shorter.
    """
    keys = np.zeros((len(start), 2 * EDGE), np.uint64)
    for end in (0, 1):
        state = np.full(len(start), end, np.uint64)
        for k in range(EDGE):
            there = stop - start > k
            word = words[(stop - 1 - k if end else start + k)[there]]
            state[there] = mixed(state[there] * Q + word)
            keys[there, end * EDGE + k] = state[there] & ~np.uint64(15) | np.uint64(end * 8 + k + 1)
    return keys


def edge_of(keys: U64) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Whether each key is that of an ending, and of how many words."""
    return (keys & np.uint64(8)) > 0, (keys & np.uint64(7)).astype(np.int64)


def grams(words: U32, start: Ints, stop: Ints, width: int) -> Any:
    """Which words and pairs of words each text ``words[start:stop]`` has, as a CSR matrix of ones with hashed columns."""
    from scipy import sparse

    size = stop - start
    row = np.repeat(np.arange(len(size)), size)
    inside = np.flatnonzero(row[1:] == row[:-1])
    one = mixed(words[places(start, size)].astype(np.uint64))
    two = mixed(one[:-1] * Q + one[1:])[inside]
    column = (np.concatenate([one, two]) % np.uint64(width)).astype(np.int32)
    both = np.concatenate([row, row[inside]])
    found = sparse.csr_matrix((np.ones(len(both), np.float32), (both, column)), shape=(len(size), width))
    found.data[:] = 1
    return found


def indicators(chosen: U64, rejected: U64, least: int) -> tuple[Any, U64]:
    """A CSR matrix of traits, +1 where the chosen answer has it alone and -1 where the rejected one does, and their keys.

    ``chosen`` and ``rejected`` hold the keys of each answer's traits, (n, k), 0 for none. Traits that tell the answers of
    fewer than ``least`` pairs apart are left out: that asks no label.
    """
    from scipy import sparse

    n, k = chosen.shape
    both = np.concatenate([chosen.ravel(), rejected.ravel()])
    there = np.flatnonzero(both)
    keys, column = np.unique(both[there], return_inverse=True)
    row = there % (n * k) // k
    value = np.where(there < n * k, 1, -1).astype(np.float32)
    found = sparse.csr_matrix((value, (row, column)), shape=(n, len(keys)), dtype=np.float32)
    found.eliminate_zeros()
    often = np.bincount(found.indices, minlength=len(keys)) >= least
    return found[:, often], keys[often]


def frequent(found: Any, least: int) -> Any:
    """The columns of a CSR matrix that are not zero in at least so many rows, each row scaled to length one."""
    from scipy import sparse

    found.eliminate_zeros()
    found = found[:, np.bincount(found.indices, minlength=found.shape[1]) >= least]
    length = np.sqrt(np.maximum(np.diff(found.indptr), 1)).astype(np.float32)
    return (sparse.diags(1 / length) @ found).tocsr()


def named(traits: Any, first: Ints, fold: npt.NDArray[np.int8], prompts: U64, most: int) -> list[Named]:
    """The traits that win or lose for certain, the surest first (of equals that with the greatest number in ``first``); of
    several on the same pairs one.

    A trait is picked on nine folds (by the sums over prompts, at 5 % among all traits) and counted on the tenth, for each
    fold: the best of many on the same pairs would always look good. ``traits`` is what ``indicators`` gives.
    """
    from scipy import sparse

    if not traits.shape[1]:
        return []
    _, place, group = np.unique(prompts, return_index=True, return_inverse=True)
    size, found = len(place), traits.tocoo()
    sums = sparse.csr_matrix((found.data, (group[found.row], found.col)), shape=(size, traits.shape[1]))
    by_fold = sparse.csr_matrix((np.ones(size), (fold[place], np.arange(size))), shape=(FOLDS, size))
    won = np.asarray((by_fold @ sums).todense())
    spread = np.asarray((by_fold @ sums.multiply(sums)).todense())
    count = np.zeros(won.shape)
    np.add.at(count, (fold[found.row], found.col), 1)
    limit = NormalDist().inv_cdf(1 - 0.025 / traits.shape[1])
    others = (won.sum(0) - won) / np.sqrt(np.maximum(spread.sum(0) - spread, 1))
    picked = np.abs(others) >= limit
    n, wins, wide = ((x * picked).sum(0) for x in (count, (count + won) / 2, spread))
    z = np.where(picked.sum(0) > FOLDS // 2, np.abs(won.sum(0)) / np.sqrt(np.maximum(spread.sum(0), 1)), 0)
    by_trait, out, taken = traits.tocsc(), list[Named](), list[Ints]()
    for trait in np.lexsort((-first, -np.round(z))).tolist():
        if not z[trait] or len(out) == most:
            break
        pairs = by_trait.indices[by_trait.indptr[trait] : by_trait.indptr[trait + 1]].astype(np.int64)
        if any(2 * len(np.intersect1d(pairs, other)) > min(len(pairs), len(other)) for other in taken):
            continue
        taken.append(pairs)
        share = float(wins[trait] / n[trait])
        low, high = wilson(share, float(n[trait] * min(1, n[trait] / max(wide[trait], 1))))
        out.append(Named(trait, share, low, high, int(n[trait]), pairs))
    return out


def recurring(chosen: U64, rejected: U64, prompts: U64, least: int) -> list[Named]:
    """Answers that stand under at least ``least`` prompts and win, or lose, under most of them for certain (exact binomial test,
    at 5 % among all such answers); the most frequent first. Keys are hashes; a prompt counts once.
    """
    from scipy.stats import binom

    n = len(chosen)
    keys = np.concatenate([chosen, rejected])
    order = np.argsort(keys, kind="stable")
    _, start, size = np.unique(keys[order], return_index=True, return_counts=True)
    often = size >= least
    at = order[np.repeat(often, size)]  # a pair's place, plus n where the answer lost
    answer = np.repeat(np.arange(int(often.sum())), size[often])
    prompt = prompts[at % n] if n else prompts
    by = np.lexsort((prompt, answer))
    at, answer, prompt = at[by], answer[by], prompt[by]
    new = np.ones(len(at), bool)
    new[1:] = (answer[1:] != answer[:-1]) | (prompt[1:] != prompt[:-1])
    first = np.flatnonzero(new)
    net = np.add.reduceat(np.where(at < n, 1, -1), first) if len(at) else np.zeros(0, np.int64)
    of = answer[first]
    total, won = (
        np.bincount(of, net_is, minlength=int(often.sum())).astype(np.int64) for net_is in (net != 0, net > 0)
    )
    asked = np.flatnonzero(total >= least)
    tail = binom.cdf(np.minimum(won, total - won)[asked], total[asked], 0.5) * 2
    sure = asked[tail <= 0.05 / max(1, len(asked))]
    out = []
    for k in sure[np.lexsort((keys[order][start[often]][sure], -total[sure]))].tolist():
        share = won[k] / total[k]
        low, high = wilson(share, total[k])
        out.append(Named(k, float(share), low, high, int(total[k]), at[answer == k] % n))
    return out
