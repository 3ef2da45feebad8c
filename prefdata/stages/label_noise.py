"""Labels that the rest of the set, and whoever else was asked, contradict."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field, model_validator

from prefdata import domains, encoders
from prefdata.decisions import Decisions, Finding, Signals
from prefdata.errors import ConfigError
from prefdata.noise import annotators, evidence, opinions
from prefdata.noise.encoder import Encoder
from prefdata.noise.judge import Judge
from prefdata.noise.reward import ImplicitReward, RewardModels
from prefdata.noise.ruling import Ruling, score
from prefdata.noise.strong import Strong
from prefdata.noise.telling import told
from prefdata.pairs import SIDES, Pairs
from prefdata.stage import Stage

Bools = npt.NDArray[np.bool_]
DOUBTED = 0.5  # a label that is more likely wrong than right is flagged
_ENCODER = "encoder:"


class LabelNoise(Stage):
    """Does what the rest of the set shows of good answers contradict the label?

    Why it matters: a fifth and more of the labels of published preference sets are the wrong way round by the judgement of
    others, and a trainer that is told so learns it: it cannot tell a rule from its exceptions.

    How it decides: a classifier learns from the set itself which answer is chosen, from how answers are written (47
    counts), static word vectors if wordllama is installed, and words and word pairs. It is cross-fitted: each pair is
    judged by models that saw no pair of its prompt or of a nearly equal one. Swapping a pair negates its score exactly.
    If the models are not better than chance (z of at least 3, 53 % agreement, 100 pairs), the verdict is no_signal and
    nothing is decided. The score is the log-odds that the label is right; with the rate of wrong labels it becomes a
    calibrated probability that it is wrong. The rate is yours (rate, or a column of verified rows), or estimated where the
    set identifies it; else only an upper bound is told, and pairs are ranked but not acted upon. What length and refusing
    explain is taken out of the score for a second vote: a pair is dropped only if both votes contradict its label, so
    that no answer is called wrong for being short or for refusing. A self-check plants known flips and tells how many of
    them are found. Further votes join where there are some: scores, single annotators' votes (Dawid-Skene), reward
    models, a policy and its reference, a judge; each by a weight that the set decides.

    What it misses: labels that are wrong in a consistent way (a whole source turned round is taken for the rule), and sets
    where surface says nothing of quality. A high probability says that a label is inconsistent with the set, not that it
    is false: read some before you trust it. Wrong labels of people are found less well than random flips.

    References: arXiv:2401.06080, arXiv:2509.23564, arXiv:1911.00068 (confident learning), Dawid and Skene 1979
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "likely_flipped": "What the rest of the set, and further votes if there are some, show of good answers says that the"
        " other answer is the better one. Read both: if many of these labels are right, keep them (action: flag)."
    }
    measured: ClassVar[frozenset[str]] = frozenset((
        "scorer", "vectors", "sentences", "lm", "reward_models", "policy", "reference", "beta", "judge", "judge_model", "judge_key",
        "verified", "max_length",
    ))  # fmt: skip
    drops: ClassVar[Literal["above", "below"] | None] = "below"
    scale: ClassVar[str] = "log-odds that the label is right, by models that did not see the pair"
    train_only: ClassVar[bool] = True

    scorer: str = Field("default", pattern=r"^(default|strong|encoder:.+)$")
    action: Literal["drop", "drop_top", "flag", "swap", "weight", "soft"] = "drop"
    rule: Literal["probability", "all", "majority", "lowest"] = "probability"
    min_flip_prob: float = Field(0.8, ge=0.5, lt=1)
    rate: float | None = Field(None, gt=0, lt=0.5)
    verified: str | None = Field(None, min_length=1)
    self_check: bool = True
    vectors: Literal["auto", "yes", "no"] = "auto"
    sentences: str | None = Field(None, min_length=1)
    lm: str | None = Field(None, min_length=1)
    reward_models: tuple[str, ...] = ()
    policy: str | None = Field(None, min_length=1)
    reference: str | None = Field(None, min_length=1)
    beta: float = Field(0.1, gt=0)
    judge: str | None = Field(None, min_length=1)
    judge_model: str | None = Field(None, min_length=1)
    judge_key: str | None = Field(None, min_length=1)
    judge_price: tuple[float, float] | None = None
    judge_at_once: int = Field(4, ge=1, le=64)
    folds: int = Field(20, ge=2, le=100)
    sample: int = Field(100_000, ge=100)
    epochs: int = Field(2, ge=1)
    max_length: int = Field(256, ge=16)

    @model_validator(mode="after")
    def _whole(self) -> LabelNoise:
        if (self.policy is None) != (self.reference is None):
            raise ValueError("policy and reference go together")
        if (self.judge is None) != (self.judge_model is None):
            raise ValueError("judge (an address) and judge_model (a name) go together")
        if self.scorer == "strong" and not (self.sentences or self.lm):
            what = (
                "scorer strong needs sentences (a sentence-transformers model), lm (a causal language model), or both"
            )
            raise ValueError(what)
        if self.scorer != "strong" and (self.sentences or self.lm):
            raise ValueError("sentences and lm are for the scorer strong: set scorer to strong")
        if self.rule != "probability" and self.action in ("drop_top", "weight", "soft"):
            raise ValueError(f"action {self.action} goes by probability: it does not go with rule {self.rule}")
        return self

    def idle(self) -> tuple[str, str] | None:
        """See ``Stage.idle``."""
        fine_tuned = self.scorer.startswith(_ENCODER)
        needs = {
            "scorer encoder:NAME": () if fine_tuned else ("epochs", "max_length"),
            "another scorer than encoder:NAME": ("vectors",) if fine_tuned and self.vectors == "yes" else (),
            "policy and reference": () if self.policy else ("beta",),
            "judge": () if self.judge else ("judge_key", "judge_price", "judge_at_once"),
            "rule probability": () if self.rule == "probability" else ("min_flip_prob",),
        }
        fields = type(self).model_fields
        given = ((n, other) for other, names in needs.items() for n in names if getattr(self, n) != fields[n].default)
        return next(given, None)

    def warm(self) -> None:
        """Find out early which models are missing."""
        if self._static:
            encoders.load("wordllama")
        for source in _sources(self):
            source.warm()

    def depends_on(self) -> str:
        """The files of the models, and whether static vectors are there."""
        return " ".join([str(self._static), *(source.depends_on() for source in _sources(self))])

    def notice(self, pairs: int) -> str:
        """What the judge and the models will cost."""
        told = (s.notice(pairs) for s in _sources(self) if hasattr(s, "notice"))
        return "; ".join(t for t in told if t)

    @property
    def _static(self) -> bool:
        if self.scorer.startswith(_ENCODER):
            return False
        return self.vectors == "yes" or (self.vectors == "auto" and importlib.util.find_spec("wordllama") is not None)

    def measure(self, pairs: Pairs) -> pa.Table:
        """Style counts and vectors as differences, what further votes need, and their opinions."""
        blocks: dict[str, Any] = {}
        out: dict[str, Any] = {}
        if self._static:
            encoder = encoders.load("wordllama")
            blocks["vectors"] = encoder.embed(pairs.texts("chosen")) - encoder.embed(pairs.texts("rejected"))
        for source in _sources(self):
            if isinstance(source, Strong):
                blocks |= source.features(pairs)
            elif isinstance(source, Encoder):
                out |= {f"ids_{side}": ids for side, ids in source.ids(pairs).items()}
            else:
                out |= {f"vote_{n}": pa.array(v, pa.float32()) for n, v in source.votes(pairs).items()}
        if self.verified is not None:
            out["verified"] = pa.array(opinions.verified(pairs, self.verified), pa.float32())
            out["no_verified"] = domains.others(pairs, self.verified not in pairs.columns)
        return pa.table(evidence.measured(pairs, blocks) | annotators.measured(pairs) | out)

    def decide(self, signals: Signals) -> Decisions:
        """Score every pair by the others, say what is known of the whole set, then act where enough is."""
        from threadpoolctl import threadpool_limits

        out = Decisions(signals.index)
        asked = ~(signals.mask("pair.reversed") | signals.mask("pair.tie"))
        living = signals.living(signals.index[asked])
        if not len(living):
            return out
        votes = opinions.gathered(living, self.name(), out)
        scores = score(living, self.name(), votes, self.sample, self.folds, self._other(living))
        wrong = self._annotators(living, out)
        rate = self._rate(living, out)
        with threadpool_limits(1):  # sums of several threads have other last bits
            ruling = Ruling.of(scores.margin, scores.side, scores.group, rate, wrong)
        place = np.flatnonzero(asked)
        out.score[place] = scores.margin
        out.flip_prob = np.full(len(out), np.nan, np.float32)
        out.flip_prob[place] = ruling.flip
        check = self.folds if self.self_check and not self.scorer.startswith(_ENCODER) else 0
        said = told(living, scores, ruling, self.min_flip_prob, check)
        out.findings += [f for f in said if f.name != "noise_rate_unknown" or self.rule == "probability"]
        picked, sure = self._picked(ruling, votes)
        limit = ruling.margin_at(self.min_flip_prob)
        if limit is not None and self.rule == "probability":
            out.limit[place] = limit
        doubted = np.nan_to_num(ruling.flip) >= DOUBTED
        if self.action in ("weight", "soft"):
            out.weight = np.ones(len(out), np.float32)
            if self.action == "weight":
                out.weight[place] = np.clip(1 - 2 * np.nan_to_num(ruling.flip), 0, 1)
        act: Any = {"drop_top": "drop", "drop": "drop", "swap": "swap"}.get(self.action, "flag")
        doubted |= picked
        if act == "swap":
            sure &= (votes < 0).sum(axis=1) + (ruling.heard & (scores.alone < 0)) >= 2
        picked &= sure
        out.mark(place[doubted & ~picked], "flag", "likely_flipped")
        out.mark(place[picked], act, "likely_flipped")
        return out

    def _picked(self, ruling: Ruling, votes: evidence.Array) -> tuple[Bools, Bools]:
        """The pairs that the rule picks, and of which the second vote is sure enough to act."""
        everywhere = np.ones(len(ruling.margin), bool)
        if self.rule == "probability":
            if self.action == "drop_top":
                if ruling.signal.there and ruling.rate is None:
                    upper = f"the rate of wrong labels is not identified (at most {ruling.estimate.upper:.2f})"
                    hint = "Give rate, or a column of verified rows."
                    raise ConfigError(f"label_noise.action=drop_top: {upper}", hint=hint)
                top = ruling.top(ruling.rate or 0.0) if ruling.heard else ~everywhere
                return top, everywhere
            return np.nan_to_num(ruling.flip) >= self.min_flip_prob, ruling.both if ruling.heard else everywhere
        if not votes.shape[1]:
            hint = "Give reward_models, a judge, a policy and its reference, or score columns."
            raise ConfigError(f"label_noise.rule={self.rule}: there are no further votes", hint=hint)
        cast, agree = (~np.isnan(votes)).sum(axis=1), (votes > 0).sum(axis=1)
        if self.rule == "lowest":
            if self.rate is None:
                raise ConfigError("label_noise.rule=lowest needs a rate", hint="For example label_noise.rate=0.2.")
            scale = np.sqrt(np.nanmean(votes.astype(np.float64) ** 2, axis=0))
            scaled = np.nan_to_num(votes) / np.where(scale > 0, scale, 1)
            gap = np.nan_to_num(scaled.sum(axis=1) / np.maximum(cast, 1))
            lowest = np.zeros(len(gap), bool)
            lowest[np.argsort(gap, kind="stable")[: round(self.rate * len(gap))]] = True
            return lowest, everywhere
        against = (votes < 0).sum(axis=1)
        picked = (against > 0) & (agree == 0) if self.rule == "all" else 2 * agree < cast
        return np.asarray(picked & (against > 0)), everywhere

    def _other(self, living: Signals) -> Any:
        """The fine-tuned encoder as a scorer, if it was asked for."""
        if not self.scorer.startswith(_ENCODER):
            return None
        encoder = next(s for s in _sources(self) if isinstance(s, Encoder))
        ids = {side: living.rows(f"{self.name()}.ids_{side}", living.index) for side in SIDES}
        turned = living.swapped
        both = (ids["chosen"], ids["rejected"])
        for k, side in enumerate(("chosen", "rejected")):
            ids[side] = [both[k ^ int(t)][i] for i, t in enumerate(turned)]
        return lambda group: encoder.cross_fitted(ids, group, seed=living.seed)

    def _annotators(self, living: Signals, out: Decisions) -> npt.NDArray[np.float64] | None:
        """How likely each label is wrong by the single votes on it, where several people voted."""
        cast = annotators.gathered(living, self.name())
        if cast is None or cast.counts.mean() < opinions.SEVERAL:
            return None
        judged = annotators.dawid_skene(cast.turned(living.swapped))
        rows = ", ".join(f"{a:.2f} ({n:,} votes)" for a, n in list(zip(judged.accuracy, judged.n, strict=True))[:10])
        text = f"how often single annotators are right, by Dawid-Skene: {rows}"
        weighed = float(np.average(judged.accuracy, weights=judged.n))
        out.findings.append(Finding("annotator_accuracy", weighed, int(judged.n.sum()), text))
        return 1 - judged.right

    def _rate(self, living: Signals, out: Decisions) -> float | None:
        """The rate of wrong labels that somebody gave, or that the verified rows show."""
        if self.rate is not None or self.verified is None:
            return self.rate
        domains.must_be_there(living, f"{self.name()}.no_verified", self.verified, f"{self.name()}.verified")
        right = living.column(f"{self.name()}.verified")
        found = opinions.rate_of(np.where(living.swapped, 1 - right, right), self.verified)
        out.findings.append(found)
        wrong = float(found.value)
        if wrong >= 0.5:
            hint = "True means that the label is right. Does the column say the opposite?"
            raise ConfigError(f"label_noise.verified={self.verified}: {found.text}", hint=hint)
        return max(wrong, 0.001)


@lru_cache(maxsize=4)
def _sources(stage: LabelNoise) -> list[Any]:
    """What gives features or opinions beside the set itself."""
    out: list[Any] = []
    if stage.scorer == "strong":
        out.append(Strong(stage.sentences, stage.lm))
    if stage.scorer.startswith(_ENCODER):
        name = stage.scorer.removeprefix(_ENCODER)
        out.append(Encoder(name, epochs=stage.epochs, max_length=stage.max_length, sample=stage.sample))
    if stage.reward_models:
        out.append(RewardModels(stage.reward_models))
    if stage.policy and stage.reference:
        out.append(ImplicitReward(stage.policy, stage.reference, stage.beta))
    if stage.judge and stage.judge_model:
        how: Any = {"key": stage.judge_key, "price": stage.judge_price, "workers": stage.judge_at_once}
        out.append(Judge(stage.judge, stage.judge_model, **how))
    return out
