"""Dense features of models, for the scorer ``strong`` of label noise: sentence vectors, and what a causal language
model makes of an answer.

Every feature is f(prompt, chosen) - f(prompt, rejected), so a pair that is turned round has the negated features.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from prefdata.encoders import digest, load
from prefdata.errors import ConfigError, first_line
from prefdata.noise.pretrained import check, device, loaded, threads
from prefdata.pairs import Pairs, readable

Matrix = npt.NDArray[np.float32]

STATISTICS = (
    "sum", "mean", "least", "spread",  # log p(y | x) of the answer's tokens
    "alone_sum", "alone_mean",  # log p(y): after an empty prompt
    "pmi_sum", "pmi_mean", "pmi_begin", "pmi_positive",  # log p(y | x) - log p(y): begin is the first 16 tokens
)  # fmt: skip
BEGIN = 16
MARK = "\ue000"  # stands for the prompt in a chat template


class Strong:
    """Features of one batch of pairs by a sentence encoder and a causal language model; either may be left out.

    ``encoder`` is a name for ``encoders.load``; ``lm`` the folder or hub name of a causal language model. ``layer`` is the
    hidden layer that is pooled, 1 to the number of layers minus 1 (None: two thirds of the way up; 0: none); without
    ``statistics`` the layers above it are not even loaded. Of a prompt the last ``prompt_tokens`` are read, of an answer
    the first ``answer_tokens``.
    """

    def __init__(
        self,
        encoder: str | None,
        lm: str | None,
        *,
        statistics: bool = True,
        layer: int | None = None,
        prompt_tokens: int = 96,
        answer_tokens: int = 112,
    ) -> None:
        self.encoder, self.lm = encoder, lm
        self.options = (statistics, layer, prompt_tokens, answer_tokens)

    def warm(self) -> None:
        """Find out early what is missing. Weights are not loaded: torch does not survive a fork."""
        for name in (self.encoder, self.lm):
            if name and name != "wordllama":
                check(name)

    def depends_on(self) -> str:
        """The files of both models."""
        return " ".join(digest(name) for name in (self.encoder, self.lm) if name)

    def features(self, pairs: Pairs) -> dict[str, Matrix]:
        """Blocks of features by name, each (n, width), chosen minus rejected.

        ``sentence`` and ``product`` are the unit vectors of the answers, and those times the prompt's vector; ``hidden`` is the
        unit vector of the layer's mean over the answer's tokens; ``statistics`` has one column a word of ``STATISTICS``.
        Vectors are to be scaled as a block, statistics each for itself. A pair's row is the same bits in every batch
        on one CPU; on a GPU the same to about 1e-4.
        """
        prompt, chosen, rejected = ([readable(t) for t in pairs.texts(s)] for s in ("prompt", "chosen", "rejected"))
        out: dict[str, Matrix] = {}
        if self.encoder:
            with threads(1):
                p, c, r = self._vectors(prompt, chosen, rejected)
            out["sentence"] = c - r
            out["product"] = p * (c - r)
        if self.lm:
            model = _model(self.lm, *self.options)
            c, r = model.read(prompt, chosen), model.read(prompt, rejected)
            if model.layer:
                out["hidden"] = (c - r)[:, len(STATISTICS) :]
            if model.statistics:
                out["statistics"] = (c - r)[:, : len(STATISTICS)]
        return out

    def _vectors(self, *sides: Sequence[str]) -> Iterator[Matrix]:
        texts = {t: i for i, t in enumerate(dict.fromkeys(t for side in sides for t in side))}  # prompts recur
        vectors = load(self.encoder or "").embed(list(texts))
        return (vectors[[texts[t] for t in side]] for side in sides)


class _CausalLM:
    """A causal language model that reads one text at a time: a padded batch would add up in another order."""

    def __init__(self, name: str, statistics: bool, layer: int | None, prompt_tokens: int, answer_tokens: int) -> None:
        config = loaded("AutoConfig", name)
        top = config.num_hidden_layers
        self.statistics, self.prompt_tokens, self.answer_tokens = statistics, prompt_tokens, answer_tokens
        self.layer = max(1, round(top * 2 / 3)) if layer is None else layer
        if not 0 <= self.layer <= top:
            raise ConfigError(f"has {top} layers, not {layer}", where=name)
        if not statistics and self.layer < top:
            config.num_hidden_layers = self.layer + 1  # one more, for what comes out of the last one is normed
        self.tokenizer = loaded("AutoTokenizer", name)
        self.before, self.after = self._frame(name)
        room = getattr(config, "max_position_embeddings", None)
        if room and len(self.before + self.after) + prompt_tokens + answer_tokens > room:
            raise ConfigError(
                f"reads at most {room} tokens", where=name, hint="Give fewer prompt_tokens or answer_tokens."
            )
        kind = "AutoModelForCausalLM" if statistics else "AutoModel"
        self.device = device()
        self.model = loaded(kind, name, config=config).to(self.device).eval()
        self.width = len(STATISTICS) + (config.hidden_size if self.layer else 0)
        # only the answer's logits: those of the prompt cost as much again where the vocabulary is large
        self.some = statistics and "logits_to_keep" in inspect.signature(self.model.forward).parameters

    def _frame(self, name: str) -> tuple[list[int], list[int]]:
        """What stands before and after a prompt: the chat template's tokens, or a begin of text and an empty line."""
        if self.tokenizer.chat_template:
            turn = [{"role": "user", "content": MARK}]
            try:
                text = self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
            except Exception as error:  # a template is a program of the model's author
                raise ConfigError(f"its chat template fails: {first_line(error)}", where=name) from error
            before, _, after = text.partition(MARK)
            ids = self._ids([before, after])
        else:
            special = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
            ids = [[i for i in special if i is not None][:1], *self._ids(["\n\n"])]
        if not ids[0] + ids[1]:
            raise ConfigError("its tokenizer has no token to begin a text with (bos or eos)", where=name)
        return ids[0], ids[1]

    def read(self, prompts: Sequence[str], answers: Sequence[str]) -> Matrix:
        """``STATISTICS`` and the pooled layer of each answer, (n, 10 + hidden size); zeros for what is not asked for."""
        import torch

        x, y = self._ids([p.rstrip() for p in prompts]), self._ids(answers)
        with torch.inference_mode(), threads(1):
            rows = [self._one(p[-self.prompt_tokens :], a[: self.answer_tokens]) for p, a in zip(x, y, strict=True)]
        return np.array(rows, np.float32).reshape(len(rows), self.width)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        found: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return found

    def _one(self, prompt: list[int], answer: list[int]) -> npt.NDArray[np.float64]:
        out = np.zeros(self.width)
        if not answer:
            return out
        given, states = self._forward([*self.before, *prompt, *self.after], answer, pool=True)
        if self.layer:
            out[len(STATISTICS) :] = states / max(float(np.sqrt(states @ states)), 1e-12)
        if self.statistics:
            alone, _ = self._forward([*self.before, *self.after], answer, pool=False)
            pmi = given - alone
            out[: len(STATISTICS)] = (
                given.sum(), given.mean(), given.min(), given.std(), alone.sum(), alone.mean(),
                pmi.sum(), pmi.mean(), pmi[:BEGIN].mean(), (pmi > 0).mean(),
            )  # fmt: skip
        return out

    def _forward(self, head: list[int], answer: list[int], pool: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The log-probability of each token of ``answer`` after ``head``, and the mean of its hidden states."""
        import torch

        n, none = len(answer), np.zeros(0)
        ids = torch.tensor([head + answer], device=self.device)
        options = {"logits_to_keep": n + 1} if self.some else {}
        seen = self.model(input_ids=ids, output_hidden_states=pool and self.layer > 0, use_cache=False, **options)
        states = seen.hidden_states[self.layer][0, -n:].double().mean(0).cpu().numpy() if pool and self.layer else none
        if not self.statistics:
            return none, states
        logits = seen.logits[0, -n - 1 : -1].float()
        said = torch.log_softmax(logits, -1).gather(1, ids[0, -n:, None])[:, 0]
        return said.double().cpu().numpy(), states


@lru_cache(maxsize=1)
def _model(name: str, statistics: bool, layer: int | None, prompt_tokens: int, answer_tokens: int) -> _CausalLM:
    return _CausalLM(name, statistics, layer, prompt_tokens, answer_tokens)
