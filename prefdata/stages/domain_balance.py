"""Shares of domains: who is over-represented, and what to drop, weigh or collect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from prefdata import cells, domains, encoders, languages
from prefdata.decisions import Decisions, Finding, Signals
from prefdata.domains import Domains
from prefdata.intervals import wilson
from prefdata.mixes import Floats, Ints, Mix, shares_below, shares_wanted
from prefdata.pairs import Pairs
from prefdata.ragged import places
from prefdata.stage import Stage

_SHOWN, _ROWS = 20, 50
_OWN = "domain_balance"
_ASKED = "the target is"


class DomainBalance(Stage):
    """How are the pairs spread over domains, and is that the mix that is wanted?

    Why it matters: a model learns most from what it sees most. A set with nine pairs of chat for one of code moves the model's
    chat, and the mean over such a set hides that. But balance is a decision, not a repair: equal shares are seldom
    the mix in which a model is used, and rows that are dropped for balance are good rows.

    How it decides: the domain is the value of a ``column`` (a path such as ``meta.domain`` too), the language of the prompt (offline,
    extra [lang]), or a cluster of prompts (mini-batch k-means on embeddings, fitted to at most 20,000 pairs, called by the words that
    stand out in it). ``by: auto`` takes the first known column with 2 to 1,000 different short texts (domain, category, topic,
    ..., source; the findings say which), else the language where the extra is there. A row with a null or a blank has no domain, nor has a prompt whose
    language is not clear: such rows are counted, and take no part in shares, caps or weights. The target is ``uniform``, ``sqrt`` (of
    the present counts), a mix (``{law: 0.3, code: 0.5}``; domains that it does not name share the rest in their present
    proportions, or are left alone where there is none), to which the largest |share - target| / target may be
    ``max_deviation``; or ``max_share`` for every domain. ``method`` says what is done: ``none``, findings alone; ``cap``
    drops as few rows of too large domains as will do, first those with the lowest ``keep_by``, else by a seeded hash of the
    texts; it never empties a domain, and drops nothing where the target cannot be reached or needs more than ``max_dropped``
    of the pairs; ``weight`` writes a weight (mean 1) for the trainer; ``request`` lists what to collect. Rows of
    other splits than the first are left alone. What was capped is within the target, so a second run drops nothing; that
    is why ``cap`` takes no ``sqrt``, which would be another target each time.

    What it misses: rows in several domains, and domains that no column, language or cluster tells. It repeats no row: oversampling
    teaches the same few rows by heart, and a weight says the same without it.

    References: imbalanced-learn (scikit-learn-contrib/imbalanced-learn#751), class-based TF-IDF (arXiv:2203.05794),
    fastText language identification (arXiv:1607.01759)
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "balanced_out": "The row's domain has a larger share than was asked for, and other rows of it were kept. Nothing is wrong with"
        " the row: set method to weight to keep it with a smaller weight, or collect more of the other domains.",
    }
    measured: ClassVar[frozenset[str]] = frozenset({"by", "column", "encoder", "keep_by"})
    train_only: ClassVar[bool] = True
    judged: ClassVar[bool] = False

    by: Literal["auto", "column", "language", "cluster"] = "auto"
    column: str = "auto"
    """The column that holds the domain; auto: the first of the known names that has texts that repeat."""
    encoder: str = "wordllama"
    """For clusters: wordllama, or the folder or hub name of a SentenceTransformer."""
    clusters: int | None = Field(None, ge=2, le=200)
    """How many clusters; null: 3 to 20, as fits best."""
    target: Literal["uniform", "sqrt"] | dict[str, Annotated[float, Field(gt=0, le=1)]] | None = None
    """The mix that is wanted (null: uniform, unless max_share is given)."""
    max_deviation: float = Field(0.2, ge=0, lt=1)
    """The largest |share - target| / target that is within the target."""
    max_share: float | None = Field(None, gt=0, lt=1)
    """Instead of a target: no domain has a larger share than this."""
    method: Literal["none", "cap", "weight", "request"] = "none"
    keep_by: str | None = None
    """For cap: a column of numbers; rows with the lowest (or none) go first."""
    max_dropped: float = Field(1.0, gt=0, le=1)
    """For cap: drop nothing where more than this share of the pairs would have to go."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.target is not None and self.max_share is not None:
            raise ValueError("give a target or a max_share, not both")
        if isinstance(self.target, dict) and not 0 < sum(self.target.values()) <= 1 + 1e-6:
            raise ValueError(f"the shares of the target sum to {sum(self.target.values()):.4g}; at most 1 is whole")
        if self.method == "cap" and self.target == "sqrt":
            raise ValueError(
                "cap takes no sqrt, a new target at every run: write its shares (see method none) as a mix"
            )
        if self.column != "auto" and self.by not in ("auto", "column"):
            raise ValueError(f"a column is given, and by is {self.by}")
        return self

    def depends_on(self) -> str:
        """The encoder's files; whether languages can be told."""
        if self.by == "cluster":
            return encoders.digest(self.encoder)
        return f"languages {languages.installed()}" if self._looks else ""

    @property
    def _looks(self) -> bool:
        """Whether known columns are looked for, and the language where none is there."""
        return self.by == "auto" and self.column == "auto"

    def measure(self, pairs: Pairs) -> pa.Table:
        """``domain`` (a named column's values), ``language``, ``vector`` (float16) and ``keep_by``,
        as the parameters need them; ``no_column``, ``no_keep_by`` list the columns there are where the named one is not.
        """
        out: dict[str, pa.Array] = {}
        if self.by == "cluster":
            vectors = encoders.load(self.encoder).embed(pairs.texts("prompt")).astype(np.float16)
            width = vectors.shape[1] if len(pairs) else 0
            offsets = pa.array(np.arange(len(pairs) + 1, dtype=np.int32) * width)
            out["vector"] = pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel()))
        elif self.by == "language":
            out["language"] = pa.array([languages.language(t) for t in pairs.texts("prompt")], pa.string())
        elif self.column != "auto":
            column = cells.find(pairs.columns, self.column)
            out["domain"] = pa.nulls(len(pairs), pa.string()) if column is None else cells.labels(column)
            out["no_column"] = domains.others(pairs, column is None)
        elif self._looks:
            found = domains.known_columns(pairs)
            bare = np.logical_and.reduce([f.is_null().to_numpy(zero_copy_only=False) for f in found.flatten()])
            texts = zip((bare & languages.installed()).tolist(), pairs.texts("prompt"), strict=True)
            out["language"] = pa.array([languages.language(t) if b else None for b, t in texts], pa.string())
        if self.keep_by is not None:
            column = cells.find(pairs.columns, self.keep_by)
            out["keep_by"] = pa.array(np.full(len(pairs), np.nan) if column is None else cells.numbers(column))
            out["no_keep_by"] = domains.others(pairs, column is None)
        return pa.table(out)

    def decide(self, signals: Signals) -> Decisions:
        """Count, and hold the counts to the target."""
        out = Decisions(signals.index)
        found = self._domains(signals)
        if found is None:
            where = f"the columns {', '.join(domains.COLUMNS)}; the language" if self._looks else f"by: {self.by}"
            what = f"no domains are known ({where}): name a column, or set by to language or cluster"
            out.findings.append(Finding("no_domains", 1, len(out), what))
            return out
        if self.keep_by is not None:
            domains.must_be_there(signals, f"{_OWN}.no_keep_by", self.keep_by, f"{_OWN}.keep_by")
        counts = found.counts
        wanted = self._wanted(found.names, counts)
        among = np.flatnonzero(wanted > 0)
        out.findings.append(Finding("domains", len(counts), int(counts.sum()), _counted(found, len(out), len(among))))
        if not len(among):
            out.findings.append(_not_reached(counts, "no row has a domain that it names"))
            out.findings += _shares(signals, found, "", wanted, counts)
            return out
        aim = "equal shares would be" if self.target is None and self.max_share is None else _ASKED
        mix, now = Mix(wanted[among], self.max_deviation, self.max_share), counts[among]
        before = _deviation(found, among, mix, now, "all")
        after: list[Finding] = []
        kept = counts
        if isinstance(self.target, dict) and (none := sorted(set(self.target) - set(found.names))):
            after = [_not_reached(counts, f"no row has the domain {', '.join(none)}")]
        elif self.method == "cap":
            kept, after = self._capped(out, signals, found, among, mix)
        elif self.method == "weight":
            after = [self._weighed(out, found, among, mix)]
        elif self.method == "request":
            after = _requests(found, among, mix)
        out.findings += [before, *_shares(signals, found, aim, wanted, kept), *after]
        return out

    def _domains(self, signals: Signals) -> Domains | None:
        if self.by == "cluster":
            return domains.by_cluster(signals, f"{_OWN}.vector", self.clusters, self.encoder)
        if self.by == "language":
            return domains.by_language(signals, f"{_OWN}.language")
        if self.column != "auto":
            domains.must_be_there(signals, f"{_OWN}.no_column", self.column, f"{_OWN}.column")
            return domains.by_column(signals, f"{_OWN}.domain", self.column)
        found = domains.by_known_column(signals, "pair.known")
        return domains.by_language(signals, f"{_OWN}.language") if found is None and self._looks else found

    def _wanted(self, names: list[str], counts: Ints) -> Floats:
        """The target shares; equal ones, the nearest there is, where none keep to ``max_share``."""
        below = None if self.max_share is None else shares_below(counts, self.max_share)
        return shares_wanted(names, counts, self.target or "uniform") if below is None else below

    def _capped(
        self, out: Decisions, signals: Signals, found: Domains, among: Ints, mix: Mix
    ) -> tuple[Ints, list[Finding]]:  # fmt: skip
        """Drop what is beyond the caps: the counts that are left, and what there is to say."""
        counts, kept = found.counts, found.counts
        fitting = mix.capped(counts[among])
        if fitting is None:
            return counts, [_not_reached(counts, "leaving rows out does not do it")]
        kept[among] = fitting
        gone = int((counts - kept).sum())
        if gone > self.max_dropped * len(out):
            why = (
                f"{gone:,} of {len(out):,} pairs would have to go, more than max_dropped ({self.max_dropped:g}) allows"
            )
            return counts, [_not_reached(counts, why)]
        value = np.zeros(len(out)) if self.keep_by is None else signals.column(f"{_OWN}.keep_by").astype(np.float64)
        order = np.lexsort((domains.hashes(signals), -np.where(np.isnan(value), -np.inf, value), found.of))
        order = order[found.of[order] >= 0]
        out.mark(order[places(0, counts) >= np.repeat(kept, counts)], "drop", "balanced_out")
        return kept, [_deviation(found, among, mix, fitting, "kept")] if gone else []

    def _weighed(self, out: Decisions, found: Domains, among: Ints, mix: Mix) -> Finding:
        """Weights that make the mix exact, of mean 1; pairs outside of it have 1."""
        counts = found.counts
        if self.max_share is not None and not mix.fits(mix.shares):
            return _not_reached(counts, f"{len(among)} domains cannot all be below {self.max_share:g}")
        weights = np.ones(len(counts) + 1)
        weights[among] = mix.shares * counts[among].sum() / counts[among]
        weight = weights[found.of]
        out.weight = weight.astype(np.float32)
        worth = round(float(weight.sum() ** 2 / (weight**2).sum()))
        text = f"equal pairs would be worth as much (Kish); weights from {weight.min():.3g} to {weight.max():.3g} make the mix exact"
        return Finding("effective_pairs", worth, len(out), text)


def _counted(found: Domains, pairs: int, among: int) -> str:
    text = f"domains, by {found.source}; {int((found.of < 0).sum()):,} of {pairs:,} pairs have none and are left alone"
    return text if among == len(found.names) else f"{text}, as are the domains that the target leaves no share"


def _not_reached(counts: Ints, why: str) -> Finding:
    return Finding("target_not_reached", 1, int(counts.sum()), f"the target cannot be reached: {why}. Nothing is done")


def _naming(finding: Finding, found: Domains, domain: int) -> Finding:
    """The finding; of a cluster, with the words for its name and rows that hold them."""
    if found.words is None or found.examples is None:
        return finding
    return replace(finding, words=found.words[domain], rows=found.examples[domain])


def _deviation(found: Domains, among: Ints, mix: Mix, counts: Ints, when: Literal["all", "kept"]) -> Finding:
    """How far the counts are from the target, and which domain is farthest."""
    n = int(counts.sum())
    if mix.most is not None:
        worst = int(counts.argmax())
        share = float(counts[worst] / n)
        text = f"the largest share, of {found.called(int(among[worst]))}; at most {mix.most:g} is wanted"
        made = Finding("largest_share", round(share, 6), n, text, *wilson(share, n), when=when)
    else:
        off = mix.off(counts)
        worst = int(off.argmax())
        what = f"the largest |share - target| / target, of {found.called(int(among[worst]))}"
        text = f"{what}; up to {mix.deviation:g} is within the target"
        made = Finding("largest_deviation", round(float(off.max()), 6), n, text, when=when)
    return _naming(made, found, int(among[worst]))


def _shares(signals: Signals, found: Domains, aim: str, wanted: Floats, kept: Ints) -> Iterator[Finding]:
    """The share of each domain; of many, the largest ones and the rest together."""
    counts = found.counts
    n = int(counts.sum())
    shown = len(counts) if len(counts) <= _SHOWN else _SHOWN - 1
    for i, name in enumerate(_slugs(found.names[:shown])):
        told = f"{aim} {100 * wanted[i]:.3g} %" if wanted[i] > 0 else "outside of the target"
        stay = f"; {kept[i]:,} stay ({100 * kept[i] / kept.sum():.3g} %)" if kept.sum() < n else ""
        text = f"{found.called(i)}: {counts[i]:,} of {n:,} pairs; {told}{stay}"
        rows = tuple(signals.index[np.flatnonzero(found.of == i)[:_ROWS]].tolist())
        share = float(counts[i] / n)
        goal = (found.source, found.names[i], float(wanted[i])) if aim == _ASKED and wanted[i] > 0 else None
        yield _naming(
            Finding(f"share.{name}", round(share, 6), n, text, *wilson(share, n), rows=rows, wanted=goal), found, i
        )
    if shown < len(counts):
        share = float(counts[shown:].sum() / n)
        text = f"the {len(counts) - shown:,} smaller domains together; {aim} {100 * wanted[shown:].sum():.3g} %"
        yield Finding("share_of_the_rest", round(share, 6), n, text, *wilson(share, n))


def _requests(found: Domains, among: Ints, mix: Mix) -> list[Finding]:
    """What to collect, the most first; of many, the largest requests."""
    now = found.counts[among]
    fitting = mix.filled(now)
    if fitting is None:
        return [_not_reached(now, "adding rows does not do it")]
    more = fitting - now
    what = "pairs to collect in all to reach the target, as few as will do"
    out = [Finding("to_collect", int(more.sum()), int(now.sum()), what)]
    wanted = [int(i) for i in np.argsort(-more, kind="stable")[:_SHOWN] if more[i] > 0]
    for i, name in zip(wanted, _slugs([found.names[among[i]] for i in wanted]), strict=True):
        text = f"collect {more[i]:,} more of {found.called(int(among[i]))}"
        out.append(_naming(Finding(f"collect.{name}", int(more[i]), int(now[i]), text), found, int(among[i])))
    return out


def _slugs(names: list[str]) -> list[str]:
    """Names as parts of a finding's name, each once; one without Latin letters or digits goes by its place."""
    out: list[str] = []
    for place, name in enumerate(names, 1):
        word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or f"no_{place}"
        out.append(word if word not in out else f"{word}.{place}")
    return out
