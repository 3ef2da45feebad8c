"""Stage ``similar_responses``: see the class."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from prefdata import similarity
from prefdata.decisions import Decisions, Finding, Signals
from prefdata.encoders import digest, load
from prefdata.pairs import Pair, Pairs, Side
from prefdata.similarity import DIFFERENT, EXACT, FORMAT_ONLY, NORMALISED, SMALL
from prefdata.stage import Stage

_COUNTED = {
    EXACT: ("identical_exact", "both answers are the same characters"),
    NORMALISED: (
        "identical_normalised",
        "both answers are the same after Unicode form, line ends, trailing white space and hidden marks",
    ),
    FORMAT_ONLY: ("format_only", "the answers differ in commas, full stops or emphasis marks alone"),
    SMALL: (
        "small_but_decisive",
        "the answers are nearly the same text, and the difference is content: they stay",
    ),
}
_LIMITS = (0.7, 0.8, 0.9, 0.95)


class SimilarResponses(Stage):
    """Do chosen and rejected differ in anything that can be preferred?

    Why it matters: two answers that are the same teach nothing, and a comma teaches commas. But the best
    pairs can be nearly the same text: one digit, one word or one line of code decides. A limit on a
    similarity score throws those away first.

    How it decides: four kinds are told apart. Exactly identical and identical after normalising (NFC, line
    ends, trailing white space, hidden marks; white space inside and at the head of lines counts) are
    dropped as ``identical_pair``. Prose of at least five words on both sides, without digits or code, that
    differs only in commas, full stops (also CJK ones) or the emphasis marks ``*`` and ``_`` is dropped as
    ``too_similar``. Case is never format. Everything else stays and is counted, with a score of the chosen
    ``metric`` for every pair. If ``max_similarity`` is set, every other pair whose score is at that number
    or above it is ``too_similar`` as well, decisive or not.

    What it misses: paraphrases that say the same; format differences of other kinds (lists, headings,
    quotes). The metric ``ratio`` compares words where both answers have more than 8,000 characters.

    References: arXiv:2410.08847, arXiv:2408.06266; OpenRLHF/OpenRLHF#1311; rapidfuzz/RapidFuzz#366.
    """

    reasons: ClassVar = {
        "identical_pair": "Chosen and rejected are the same text: the pair carries no signal. Look where the "
        "pair was made.",
        "too_similar": "The answers differ in commas, full stops or emphasis alone, or their similarity is "
        "at or above max_similarity. Set max_similarity to null, or action to flag, to keep near pairs.",
    }
    measured: ClassVar = frozenset({"metric", "encoder"})
    drops: ClassVar = "above"
    scale: ClassVar = "similarity of the two answers by the chosen metric, 0-1; dropped at the limit and above"

    metric: Literal["ratio", "rouge_l", "bleu", "cosine"] = "ratio"
    """Character ratio, ROUGE-L on words, BLEU (both directions), or cosine of the encoder's vectors."""
    encoder: str = "wordllama"
    """For cosine: wordllama, or the folder or hub name of a SentenceTransformer."""
    max_similarity: float | None = Field(None, gt=0, le=1)
    """Drop every pair with this score or more; null: only the kinds above."""
    action: Literal["drop", "flag"] = "drop"
    """What happens to the pairs found."""

    def depends_on(self) -> str:
        """The encoder's files."""
        return digest(self.encoder) if self.metric == "cosine" else ""

    def measure(self, pairs: Pairs) -> pa.Table:
        """``score`` (float32) and ``kind`` (int8; 0 different, 1 exact, 2 normalised, 3 format only, 4
        small).
        """
        n = len(pairs)
        chosen, rejected = pairs.texts("chosen"), pairs.texts("rejected")
        kind = np.zeros(n, np.int8)
        score = np.ones(n)
        chat = pairs.chat
        for i in np.flatnonzero(pairs.keys["chosen"] == pairs.keys["rejected"]).tolist():
            if chat is None or _same_thoughts(chat[i]):
                kind[i] = similarity.kind_of_equal(chosen[i], rejected[i])
            else:
                kind[i] = SMALL
        rest = np.flatnonzero((kind != EXACT) & (kind != NORMALISED))
        a, b = [chosen[i] for i in rest], [rejected[i] for i in rest]
        ratio = similarity.ratios(a, b, cutoff=None if self.metric == "ratio" else 0.6)
        found = similarity.kinds_of_unlike(a, b, ratio)
        kind[rest] = np.where(kind[rest] == DIFFERENT, found, kind[rest])
        score[rest] = ratio if self.metric == "ratio" else self._score(pairs, rest, a, b)
        return pa.table({"score": pa.array(score.astype(np.float32)), "kind": pa.array(kind)})

    def _score(self, pairs: Pairs, rows: similarity.Rows, a: list[str], b: list[str]) -> similarity.Scores:
        if self.metric == "cosine":
            return similarity.cosines(a, b, load(self.encoder))
        metric = similarity.word_ratios if self.metric == "rouge_l" else similarity.bleus
        return metric(pairs.words["chosen"], pairs.words["rejected"], rows)

    def decide(self, signals: Signals) -> Decisions:
        """Drop identical and format-only pairs, and what reaches ``max_similarity`` where it is set."""
        score, kind = signals.column("similar_responses.score"), signals.column("similar_responses.kind")
        out = Decisions(signals.index, score=score, limit=self.max_similarity)
        identical = (kind == EXACT) | (kind == NORMALISED)
        similar = kind == FORMAT_ONLY
        if self.max_similarity is not None:
            similar = similar | (score >= np.float32(self.max_similarity))
        out.mark(similar & ~identical, self.action, "too_similar")
        out.mark(identical, self.action, "identical_pair")
        n = len(out)
        for number, (name, text) in _COUNTED.items():
            at = np.flatnonzero(kind == number)
            out.findings.append(Finding(name, len(at), n, text, rows=tuple(signals.index[at[:50]].tolist())))
        if n:
            for q in (50, 90, 95, 99):
                value = round(float(np.nanpercentile(score, q)), 4)
                text = f"{self.metric}: {q} % of the pairs score less"
                out.findings.append(Finding(f"similarity_p{q}", value, n, text))
        for limit in _LIMITS:
            above = int((score >= np.float32(limit)).sum())
            text = f"pairs that max_similarity {limit} would drop ({self.metric})"
            out.findings.append(Finding(f"similarity_from_{limit}", above, n, text))
        return out


_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "name", "tool_call_id")


def _same_thoughts(pair: Pair | None) -> bool:
    """True if messages whose visible text is the same are also the same in what else a chat template may
    render.
    """

    def rest(side: Side) -> list[list[Any]]:
        return [] if isinstance(side, str) else [[m.get(k) for k in _THOUGHTS] for m in side]

    return pair is None or rest(pair.chosen) == rest(pair.rejected)
