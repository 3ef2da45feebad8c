"""Groups of texts with like vectors, and the words that tell a group from the others."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata.words import words as word_hashes
from prefdata.words_numpy import U32, Ints

Vectors = npt.NDArray[np.floating]
LEAST = 10  # texts a cluster
_TRIED = (3, 5, 8, 12, 20)
_JUDGED = 2_000  # texts that the number of clusters is judged by
# Words to the splitter, but they name nothing.
_MARKS = string.punctuation + "，。？！、：；（）「」『』《》【】“”‘’…—–·•¿¡।،؟"


def fit(vectors: Vectors, clusters: int | None, seed: int) -> npt.NDArray[np.float64] | None:
    """Centres (k, d) of mini-batch k-means over unit vectors (n, d); None where there are too few texts for two clusters.

    The order of the vectors matters: sort them first. Without a number, the one of 3 to 20 with the best mean silhouette
    (Rousseeuw 1987) is taken.
    """
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.metrics import silhouette_score
    from threadpoolctl import threadpool_limits

    vectors = vectors.astype(np.float64)
    most = min(len(vectors) // LEAST, len(np.unique(vectors, axis=0)))
    tried = [clusters] if clusters else [k for k in _TRIED if k < most] or [2]
    best: tuple[float, npt.NDArray[np.float64]] | None = None
    with threadpool_limits(1):  # sums in one order
        for k in tried:
            if k > most:
                continue
            centres = MiniBatchKMeans(k, random_state=seed & 0xFFFFFFFF, n_init=3).fit(vectors).cluster_centers_
            some = vectors[:_JUDGED]
            joined = nearest(some, centres)
            fair = 1 < len(np.unique(joined)) < len(some)
            worth = float(silhouette_score(some, joined)) if fair and len(tried) > 1 else -1.0
            if best is None or worth > best[0]:
                best = worth, centres
    return best[1] if best else None


def nearest(vectors: Vectors, centres: npt.NDArray[np.float64]) -> Ints:
    """The nearest centre of each vector; -1 for a vector of zeros (a text without a token)."""
    vectors = vectors.astype(np.float64)
    closest = ((centres**2).sum(1) - 2 * vectors @ centres.T).argmin(1)
    return np.where(vectors.any(1), closest, -1)


def terms(words: Sequence[U32], cluster: Ints, clusters: int, each: int = 3) -> list[list[int]]:
    """For each cluster the word hashes that stand for it: class-based TF-IDF over texts, a word counted once a text.

    A word's weight in a cluster is the share of its texts with the word, times the squared logarithm of how many times the
    share among all texts that is (a word of every text weighs nothing); at least two texts must hold it. Marks are no words.
    """
    owner = np.repeat(cluster, [len(np.unique(w)) for w in words])
    flat = np.concatenate([np.unique(w) for w in words]) if words else np.empty(0, np.uint32)
    known, at = np.unique(flat, return_inverse=True)
    held = np.zeros((clusters, len(known)))
    np.add.at(held, (owner, at), 1)
    sizes = np.bincount(cluster, minlength=clusters)
    share = held / np.maximum(sizes, 1)[:, None]
    everywhere = held.sum(0) / max(len(words), 1)
    over = np.log(np.maximum(share / np.maximum(everywhere, 1e-9), 1))
    marks = word_hashes(pa.array(list(_MARKS))).hashes
    weight = np.where((held > 1) & ~np.isin(known, marks), share * over**2, 0)
    order = np.argsort(-weight, axis=1, kind="stable")[:, :each]
    return [[int(known[i]) for i in row if weight[c, i] > 0] for c, row in enumerate(order)]
