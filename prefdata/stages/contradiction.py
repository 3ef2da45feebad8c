"""Pairs that cannot all be true: answers preferred both ways round, cycles, and labels against their scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from prefdata.acyclic import Edge, feedback
from prefdata.decisions import ACTIONS, Decisions, Finding, Index, Signals
from prefdata.errors import ConfigError
from prefdata.near import bands, buckets, combined, grams, jaccard, joined
from prefdata.stage import Stage
from prefdata.words import Words

U64 = npt.NDArray[np.uint64]
_SCORES = ("pair.score_chosen", "pair.score_rejected")


class Contradiction(Stage):
    """Do the pairs of one prompt contradict each other, or the scores that came with them?

    Why it matters: a pair and its mirror pull the model both ways and cancel out at best; where labels were shuffled or
    a sign was lost, contradictions are the first trace. Duplicate removal hides them, so this comes first.

    How it decides: the answers of each prompt are the nodes of a graph, each pair a vote. Answers are one node if
    their normal forms are equal, or if they share at least the limit (near) of their word pairs and all numbers,
    negations and code; near ones join their nearest representative, without chains, and never the other side of their own
    pair (nor any, if the sides of their own pair are that near). Of two answers with votes both ways the side with fewer votes is dropped and the majority flagged; without
    a majority all are dropped. Cycles over what remains lose the set of votes that costs least (exact up to 11
    answers in one knot, by local search beyond; equal costs by a hash of the texts, so that the order of rows does
    not matter); the rows that close the cycle with a dropped one are flagged. A higher score for the rejected answer is
    flagged. With a ``min_margin``, pairs whose chosen answer is ahead by less than that on the scale of the scores are
    dropped (or flagged, as ``action`` says), ties that were to stay among them, and have no vote; nor has any tie, nor a row that is marked as the
    mirror of another (``pd_reversed``). The score of a row is the share of the votes on its
    two answers that speak against it.

    What it misses: contradictions between paraphrased answers or prompts, and single wrong labels.

    References: TIGER-AI-Lab/EditReward#14, tournesol-app/tournesol#671, argilla-io/distilabel#264,
    OpenBMB/UltraFeedback#8
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "contradiction": "Another row (named as peer) prefers the same two answers to the same prompt the other way"
        " round. The minority is dropped; without a majority all are. Read them and decide, or collect another vote.",
        "cycle": "This pair and others of its prompt prefer in a circle (a over b over c over a). The votes that cost"
        " least are dropped, the rest of the circle is flagged; peer names another row of it.",
        "score_inverted": "The rejected answer has the higher score. If many rows are flagged, a sign or a column was"
        " mixed up where the pairs were made.",
        "small_margin": "The score of the chosen answer is above the other one's by less than min_margin: whoever gave them"
        " was not sure. The scores stand in the row.",
    }
    measured: ClassVar[frozenset[str]] = frozenset()
    drops: ClassVar[Literal["above", "below"] | None] = None
    scale: ClassVar[str] = "share of the votes on the same two answers that speak against this row, 0-1"

    near: float = Field(0.9, gt=0, le=1)
    action: Literal["drop", "flag"] = "drop"
    inverted: Literal["flag", "drop", "keep"] = "flag"
    min_margin: float = Field(0, ge=0, allow_inf_nan=False)

    def decide(self, signals: Signals) -> Decisions:
        """Scores first, then votes both ways, then cycles over the votes that are left."""
        out = Decisions(signals.index, np.zeros(len(signals), np.float32))
        votes, margin = np.ones(len(signals), bool), np.full(len(signals), np.nan)
        mirrors = signals.mask("pair.reversed")  # the wrong way round on purpose: they speak against nothing
        if set(_SCORES) <= set(signals.names):
            chosen, rejected = (signals.column(name).astype(np.float64) for name in _SCORES)
            if self.inverted != "keep":
                out.mark((rejected > chosen) & ~mirrors, self.inverted, "score_inverted")
            votes, margin = chosen != rejected, chosen - rejected
        votes &= ~mirrors
        if "pair.tie" in signals.names:  # there only if ties were asked to be kept
            votes &= signals.column("pair.tie") != True  # noqa: E712 - null for broken rows
        if self.min_margin and len(out):
            small = self._small_margin(out, margin)
            votes &= ~(small & out.of("drop"))  # what is dropped for that has no vote either
        keys = [signals.column(f"pair.{side}_key") for side in ("prompt", "chosen", "rejected")]
        at = _several(keys, votes & (keys[1] != keys[2]))
        if len(at):
            won, lost = _nodes(signals, keys, at, self.near, out)
            self._graph(out, signals.index, at, won, lost)
        return out

    def _small_margin(self, out: Decisions, margin: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Mark the pairs whose scores are too close (NaN: not both are there), and say how many could not be asked."""
        unscored = int(np.isnan(margin).sum())
        if unscored == len(out):
            hint = "Leave min_margin out, or rename the columns of the scores: score_chosen, score_rejected."
            raise ConfigError(f"contradiction.min_margin={self.min_margin:g}: no pair has two scores", hint=hint)
        small: npt.NDArray[np.bool_] = (margin >= 0) & (margin < self.min_margin) & ~out.of("drop")
        out.mark(small, self.action, "small_margin", score=np.nan)
        if unscored:
            text = "pairs without two scores stay: min_margin cannot be asked of them"
            out.findings.append(Finding("margin_unknown", unscored, len(out), text))
        return small

    def _graph(self, out: Decisions, rows: Index, at: Index, won: Index, lost: Index) -> None:
        """Decide the rows at these positions, each a vote for ``won`` over ``lost``."""
        size = int(max(won.max(), lost.max())) + 1
        pair, of, votes = np.unique(won * size + lost, return_inverse=True, return_counts=True)
        first = np.full(len(pair), len(rows))  # the first row of each direction
        np.minimum.at(first, of, at)
        other = np.searchsorted(pair, pair % size * size + pair // size)
        other = np.where(pair[np.minimum(other, len(pair) - 1)] == pair % size * size + pair // size, other, -1)
        against = np.where(other >= 0, votes[other], 0)
        peer = np.where(other >= 0, rows[np.minimum(first[other], len(rows) - 1)], -1)
        out.score[at] = (against / (votes + against))[of]
        loses, contested = (against >= votes)[of], (against > 0)[of]
        loses &= out.action[at] != ACTIONS.index("drop")  # a drop for its scores stands
        out.mark(at[loses], self.action, "contradiction", peer=peer[of][loses])
        majority = contested & ~loses & (out.action[at] == 0)
        out.mark(at[majority], "flag", "contradiction", peer=peer[of][majority])

        stay = np.flatnonzero(against < votes)
        number = {(int(p // size), int(p % size)): int(i) for i, p in zip(stay, pair[stay], strict=True)}
        broken = feedback({edge: int(votes[i]) for edge, i in number.items()})
        if not broken:
            return
        members: defaultdict[int, list[int]] = defaultdict(list)
        wanted = {number[e] for edge, path in broken.items() for e in (edge, *path)}
        for position, i in zip(at.tolist(), of.tolist(), strict=True):
            if i in wanted:
                members[i].append(position)

        def mark(edge: Edge, action: Literal["flag", "drop"], of_cycle: Edge) -> None:
            some = [p for p in members[number[edge]] if action == "drop" or out.action[p] == 0]
            peer = rows[first[number[of_cycle]]]
            out.mark(np.array(some, np.int64), action, "cycle", peer=peer, score=np.nan)

        for edge, path in broken.items():
            mark(edge, self.action, path[0])
        for edge, path in broken.items():
            for e in path:
                mark(e, "flag", edge)


def _several(keys: list[U64], votes: npt.NDArray[np.bool_]) -> Index:
    """Positions of the votes whose prompt has at least two different pairs."""
    at = np.flatnonzero(votes)
    prompt, chosen, rejected = (k[at] for k in keys)
    order = np.lexsort((rejected, chosen, prompt))
    p = prompt[order]
    new = np.ones(len(order), bool)
    new[1:] = np.logical_or.reduce([k[order][1:] != k[order][:-1] for k in (prompt, chosen, rejected)])
    group = np.cumsum(np.append(True, p[1:] != p[:-1])[: len(p)]) - 1
    several = np.bincount(group, weights=new) > 1
    return np.sort(at[order[several[group]]]) if len(p) else at


def _nodes(signals: Signals, keys: list[U64], at: Index, near: float, out: Decisions) -> tuple[Index, Index]:
    """The node of the chosen and of the rejected answer of each row; numbered by prompt and text, not by row."""
    prompt = np.tile(keys[0][at], 2)
    answer = np.concatenate([keys[1][at], keys[2][at]])
    order = np.lexsort((answer, prompt))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(prompt[order]) != 0) | (np.diff(answer[order]) != 0)
    node = np.empty(len(order), np.int64)
    node[order] = np.cumsum(new) - 1
    won, lost = node[: len(at)], node[len(at) :]
    if near < 1:
        source = order[new]  # the first row of each node, as lexsort is stable
        texts = _Texts(signals, at[source % len(at)], source >= len(at), prompt[source])
        paired: defaultdict[int, set[int]] = defaultdict(set)
        candidates = texts.alike()
        wanted = np.isin(np.arange(len(source)), candidates)
        for a, b in zip(won[wanted[won]].tolist(), lost[wanted[won]].tolist(), strict=True):
            paired[a].add(b)
        for a, b in zip(won[wanted[lost]].tolist(), lost[wanted[lost]].tolist(), strict=True):
            paired[b].add(a)
        joins = _merged(texts, candidates, paired, near, out)
        if joins:
            to = np.arange(len(source))
            to[list(joins)] = list(joins.values())
            won, lost = to[won], to[lost]
    return won, lost


def _merged(
    texts: _Texts, candidates: Index, paired: Mapping[int, set[int]], near: float, out: Decisions
) -> dict[int, int]:
    """Which node joins which: near, and not the other side of a pair with any that joined before."""
    # Where the two sides of a pair are near each other, which one an outsider is nearer to says nothing.
    clear = [n for n in candidates.tolist() if all(texts.likeness(n, other) < near for other in paired[n])]
    candidates = np.array(clear, np.int64)
    members: defaultdict[int, list[int]] = defaultdict(list)

    def find(item: int, earlier: list[int]) -> int:
        node = int(candidates[item])
        best, most = -1, near
        for (
            other
        ) in earlier:  # the nearest: of two answers that are alike themselves, the first one may be the wrong one
            head = int(candidates[other])
            likeness = texts.likeness(node, head)
            if (likeness > most or (best < 0 and likeness >= near)) and paired[node].isdisjoint([head, *members[head]]):
                best, most = other, likeness
        if best >= 0:
            members[int(candidates[best])].append(node)
        return best

    joins, unsure = joined(buckets(texts.bands(candidates)), find)
    if unsure:
        said = "answers compared with only some of those of their prompt that may be near; contradictions may be left"
        out.findings.append(Finding("contradiction_cut", unsure, len(candidates), said))
    return {int(candidates[a]): int(candidates[b]) for a, b in joins.items()}


class _Texts:
    """The texts of the nodes, by the row and side they were first seen at; words are read when asked for."""

    def __init__(self, signals: Signals, row: Index, rejected: npt.NDArray[np.bool_], prompt: U64) -> None:
        self.signals, self.row, self.rejected = signals, signals.index[row], rejected
        counts = [signals.column(f"pair.{s}_words")[row].astype(np.int64) for s in ("prompt", "chosen", "rejected")]
        self.start = counts[0] + np.where(rejected, counts[1], 0)
        self.end = self.start + np.where(rejected, counts[2], counts[1])
        content = [signals.column(f"pair.{s}_content")[row] for s in ("chosen", "rejected")]
        self.group = combined([prompt, np.where(rejected, content[1], content[0])])
        self.pairs = lru_cache(8192)(lambda node: grams(self.words([node])[0]))

    def words(self, nodes: list[int]) -> list[npt.NDArray[np.uint32]]:
        """The word hashes of some nodes."""
        found = self.signals.rows("pair.words", self.row[nodes])
        return [w[self.start[n] : self.end[n]] for n, w in zip(nodes, found, strict=True)]

    def alike(self) -> Index:
        """Nodes that share prompt and content with another one: only these can be near."""
        _, of, count = np.unique(self.group, return_inverse=True, return_counts=True)
        return np.flatnonzero(count[of] > 1)

    def likeness(self, a: int, b: int) -> float:
        """The Jaccard index of two texts; 0 where prompt or content differ."""
        return jaccard(self.pairs(a), self.pairs(b)) if self.group[a] == self.group[b] else 0.0

    def bands(self, nodes: Index) -> Iterator[U64]:
        """MinHash keys of the nodes, band after band."""
        made = []
        for first in range(0, len(nodes), 2000):
            some = nodes[first : first + 2000]
            found = self.words(some.tolist())
            offsets = np.concatenate([[0], np.cumsum([len(w) for w in found])])
            made.append(bands([Words(np.concatenate(found), offsets, self.group[some])]))
        yield from np.ascontiguousarray(np.concatenate(made).T) if made else []
