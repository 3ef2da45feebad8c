"""Votes of models: the score difference of reward models, and the implicit reward of a policy against its reference.

Every vote is f(prompt, chosen) - f(prompt, rejected) in the model's own unit, so a pair that is turned round has the negated
vote. On a CPU texts are read one at a time on one thread, for padding changes the last bits: the same vote in every
batch. On a GPU texts of about one length are read together, in the type that the weights are saved in: equal to about 1e-3 of the
score in float32, 1e-2 in bfloat16. Every worker loads the models for itself: give one worker where they fill the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata import tokenizer_files, trainer_ids
from prefdata.errors import ConfigError
from prefdata.noise.pretrained import Named, device, loaded, threads
from prefdata.pairs import Pairs, readable
from prefdata.ragged import Ragged, common_prefix

Margins = npt.NDArray[np.float32]
Ids = npt.NDArray[Any]

TOKENS = 4096  # of a padded batch on a GPU


class RewardModels(Named):
    """Sequence classifiers that score an answer, by folder or hub name (Bradley-Terry reward models: arXiv:2203.02155).

    A model of one output gives its score. Of two or more, the score is the last logit minus the first: right for "bad, good"
    and for grades from low to high. A model that gives several measures at once (``problem_type: regression``) is refused.

    A tokenizer with a chat template renders prompt and answer as messages, and loses the beginning of what is too long;
    any other gets them as a pair of texts, and cuts the longer one.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def votes(self, pairs: Pairs) -> dict[str, Margins]:
        """Score of chosen minus score of rejected by the model's name, (n,); NaN where the chat template refuses the messages."""
        return {name: _scorer(name).margins(pairs) for name in self.names}


class ImplicitReward(Named):
    """beta * (log pi/ref (chosen) - log pi/ref (rejected)), the reward that DPO trains (arXiv:2305.18290).

    ``policy`` and ``reference`` are causal language models, by folder or hub name, of one vocabulary. The ids are those of
    TRL's ``DPOTrainer``: sums over the answer's tokens, the end token with them; what is beyond the models' window is cut off.
    """

    def __init__(self, policy: str, reference: str, beta: float = 0.1) -> None:
        self.names, self.beta = (policy, reference), beta

    def votes(self, pairs: Pairs) -> dict[str, Margins]:
        """The gap under the name ``implicit``, (n,); NaN where the chat template refuses a row, or no token of an answer is left."""
        policy, reference = self.names
        tokenizer, other = map(tokenizer_files.load, self.names)
        if policy != reference and tokenizer.hf.get_vocab() != other.hf.get_vocab():
            what = f"its vocabulary is not that of {reference}"
            raise ConfigError(what, where=policy, hint="A policy and its reference read the same tokens.")
        models = _causal(policy), _causal(reference)
        room = min(m.room for m in models)
        out = np.full(len(pairs), np.nan, np.float32)
        for at, starts, answers in _trainer_ids(tokenizer, pairs):
            gap = np.zeros(len(at))
            for sign, sequences in zip((1, -1), answers, strict=True):
                ids = [sequences[k][:room].astype(np.int64) for k in range(len(at))]
                first = np.maximum(starts, 1)  # nothing says how likely the first token of all is
                pi, ref = (m.said(ids, first) for m in models)
                gap += sign * np.where([len(x) > s for x, s in zip(ids, first, strict=True)], pi - ref, np.nan)
            out[at] = self.beta * gap
        return {"implicit": out}


def _trainer_ids(
    tokenizer: Any, pairs: Pairs
) -> Iterator[tuple[list[int], npt.NDArray[np.int64], tuple[Ragged, Ragged]]]:
    """Text rows, then chat rows: their places, where the answers begin, and the ids of prompt + chosen and prompt + rejected."""
    chat = pairs.chat or [None] * len(pairs)
    plain = [i for i, c in enumerate(chat) if c is None]
    spoken = [i for i, c in enumerate(chat) if c is not None]
    extra = pairs.columns.get("chat_template_kwargs")
    extras = [None if extra is None else extra[i].as_py() for i in spoken]
    rendered = trainer_ids.render(tokenizer, [c for c in chat if c is not None], extras) if spoken else []
    told = [(i, three) for i, three in zip(spoken, rendered, strict=True) if three is not None]
    blocks = (plain, trainer_ids.wholes(tokenizer, pairs, plain) if plain else [], True), (
        [i for i, _ in told], [three for _, three in told], False,
    )  # fmt: skip
    for at, threes, special in blocks:
        if at:
            prompt, chosen, rejected = (tokenizer.encode([t[k] for t in threes], special)[0] for k in range(3))
            yield at, np.minimum(common_prefix(prompt, chosen), common_prefix(prompt, rejected)), (chosen, rejected)


def _in_batches(
    texts: Sequence[Ids], size: int, read: Callable[[list[int]], npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """One number a text: those of about one length together, ``size`` padded tokens at most (0: each text alone)."""
    out = np.full(len(texts), np.nan)
    batch: list[int] = []
    # the longest first: it shows whether there is room
    for i in np.argsort([-len(t) for t in texts], kind="stable").tolist():
        if batch and (len(batch) + 1) * len(texts[batch[0]]) > size:
            out[batch] = read(batch)
            batch = []
        batch.append(i)
    if batch:
        out[batch] = read(batch)
    return out


def _room(name: str, tokenizer: Any = None) -> int:
    """How many tokens the model reads."""
    config = loaded("AutoConfig", name)
    limits = (getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None))
    return min((int(n) for n in limits if n and 0 < n < 1 << 30), default=1 << 30)


class _Model:
    """A model where it runs: on a GPU in the type of its files, on a CPU in float32."""

    def __init__(self, kind: str, name: str) -> None:
        self.device = device()
        options = {"dtype": "auto"} if self.device == "cuda" else {}
        self.model = loaded(kind, name, **options).to(self.device).eval()
        self.size = TOKENS if self.device == "cuda" else 0

    def __call__(self, texts: Sequence[Ids], pad: int, **more: Any) -> tuple[Any, Any]:
        """The logits in float32, and the ids, padded on the right."""
        import torch

        longest = max(len(t) for t in texts)
        ids = torch.full((len(texts), longest), pad, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for i, t in enumerate(texts):
            ids[i, : len(t)] = torch.from_numpy(t)
            mask[i, : len(t)] = 1
        given = {k: v.to(self.device) for k, v in {"input_ids": ids, "attention_mask": mask, **more}.items()}
        with torch.inference_mode(), threads(1):
            return self.model(**given).logits.float(), given["input_ids"]


class _Scorer(_Model):
    def __init__(self, name: str) -> None:
        self.tokenizer = loaded("AutoTokenizer", name)
        super().__init__("AutoModelForSequenceClassification", name)
        config = self.model.config
        if config.num_labels > 1 and config.problem_type == "regression":
            what = f"gives {config.num_labels} measures, and none of them is said to be the score"
            raise ConfigError(what, where=name, hint="Give a reward model of one output.")
        self.room = _room(name, self.tokenizer)
        self.chat = bool(self.tokenizer.chat_template)
        self.segments = "token_type_ids" in self.tokenizer.model_input_names and not self.chat
        if config.pad_token_id is None:  # without one the last token counts, whatever it is: no padding then
            self.size = 0
        self.pad = config.pad_token_id or 0

    def margins(self, pairs: Pairs) -> Margins:
        chosen, rejected = (self._encoded(pairs, side) for side in ("chosen", "rejected"))
        known = {x.tobytes(): x for x in [*chosen, *rejected] if x is not None}  # answers recur
        texts = list(known.values())
        found = _in_batches([x[0] for x in texts], self.size, lambda at: self._read([texts[i] for i in at]))
        score = dict(zip(known, found, strict=True))
        value = [[np.nan if x is None else score[x.tobytes()] for x in side] for side in (chosen, rejected)]
        margins: Margins = (np.array(value[0]) - np.array(value[1])).astype(np.float32)
        return margins

    def _read(self, texts: Sequence[Ids]) -> npt.NDArray[np.float64]:
        import torch

        more = {}
        if self.segments:
            longest = max(t.shape[1] for t in texts)
            more["token_type_ids"] = torch.tensor(np.stack([np.pad(t[1], (0, longest - t.shape[1])) for t in texts]))
        logits, _ = self([t[0] for t in texts], self.pad, **more)
        score = logits[:, -1] - logits[:, 0] if logits.shape[1] > 1 else logits[:, 0]
        found: npt.NDArray[np.float64] = score.double().cpu().numpy()
        return found

    def _encoded(self, pairs: Pairs, side: str) -> list[Ids | None]:
        """Ids and segments (2, length) of each row's prompt and answer; None where the chat template raises an error."""
        if not self.chat:
            prompts, answers = ([readable(t) for t in pairs.texts(s)] for s in ("prompt", side))
            cut = {"truncation": True, "max_length": self.room} if self.room < 1 << 30 else {}
            made = [self.tokenizer(p, a, verbose=False, **cut) for p, a in zip(prompts, answers, strict=True)]
            return [
                np.array([m["input_ids"], m["token_type_ids"] if self.segments else m["input_ids"]], np.int64)
                for m in made
            ]
        return [self._rendered(pairs, i, side) for i in range(len(pairs))]

    def _rendered(self, pairs: Pairs, i: int, side: str) -> Ids | None:
        pair = pairs.chat[i] if pairs.chat else None
        if pair is None:
            prompt: Any = [{"role": "user", "content": pairs.texts("prompt")[i]}]
            answer: Any = [{"role": "assistant", "content": pairs.texts(side)[i]}]
        else:
            prompt, answer = pair.prompt, getattr(pair, side)
        try:
            text = self.tokenizer.apply_chat_template([*prompt, *answer], tokenize=False)
        except Exception:  # a template may raise anything: its own refusal
            return None
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"][-self.room :]
        return np.array([ids, ids], np.int64)


class _Causal(_Model):
    def __init__(self, name: str) -> None:
        super().__init__("AutoModelForCausalLM", name)
        self.room = _room(name)

    def said(self, texts: Sequence[Ids], first: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The sum of the log-probabilities of each text's tokens from place ``first`` on."""
        return _in_batches(texts, self.size, lambda at: self._read([texts[i] for i in at], first[at]))

    def _read(self, texts: Sequence[Ids], first: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        import torch

        logits, ids = self(texts, 0)
        out = np.zeros(len(texts))
        for i, text in enumerate(texts):
            start, stop = int(first[i]), len(text)
            own = logits[i, start - 1 : stop - 1]
            picked = own.gather(1, ids[i, start:stop, None])[:, 0] - torch.logsumexp(own, -1)
            out[i] = float(picked.double().sum())
        return out


@lru_cache(maxsize=8)
def _scorer(name: str) -> _Scorer:
    return _Scorer(name)


@lru_cache(maxsize=2)
def _causal(name: str) -> _Causal:
    return _Causal(name)
