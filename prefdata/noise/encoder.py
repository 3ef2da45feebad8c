"""Any Hugging Face encoder fine-tuned as a pairwise (Bradley-Terry) preference classifier, for the scorer ``encoder:NAME``.

One network scores both answers, and a pair's margin is the difference: a pair that is turned round has exactly the negated
margin. Margins are cross-fitted: the model that scores a pair has seen no pair of its prompt. Bradley and Terry (1952);
the loss is that of reward models (arXiv:2203.02155).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from prefdata.errors import ConfigError
from prefdata.noise.crossfit import folds_of
from prefdata.noise.pretrained import Named, device, loaded
from prefdata.pairs import SIDES, Pairs, readable

Ids = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

WARM_UP = 0.1  # of the steps; then the rate falls to nothing in a line
BUCKET = 32  # batches are cut out of so many batches' worth of pairs sorted by length: less padding


@dataclass(frozen=True)
class _Text:
    """How an encoder's tokenizer puts two texts together: the special tokens, and the segment of each part."""

    parts: tuple[list[int], list[int], list[int]]  # before the first text, between the two, after the second
    segments: tuple[list[int], list[int], list[int], list[int], list[int]] | None  # of the five parts; None: has none

    @classmethod
    def of(cls, tokenizer: Any) -> _Text:
        seen = tokenizer("a", "a")
        sides = seen.sequence_ids(0)
        first, second = sides.index(0), sides.index(1)
        edges = [0, first, len(sides) - sides[::-1].index(0), second, len(sides) - sides[::-1].index(1), len(sides)]
        cut = list(pairwise(edges))
        ids = [seen["input_ids"][i:j] for i, j in cut]
        types = [seen["token_type_ids"][i:j] for i, j in cut] if "token_type_ids" in seen else None
        return cls((ids[0], ids[2], ids[4]), None if types is None else tuple(types))

    def join(self, prompt: Ids, answer: Ids, most: int) -> Ids:
        """The end of the prompt and the beginning of the answer, ``most`` tokens at most, as ids and segments, (2, length).

        A short answer leaves its room to the prompt; a long one gets half of it, and what the prompt does not need.
        """
        room = most - sum(map(len, self.parts))
        p = prompt[-max(room - len(answer), room // 2) :]
        a = answer[: room - len(p)]
        before, between, after = self.parts
        ids = [*before, *p, *between, *a, *after]
        if self.segments is None:
            return np.array([ids, [0] * len(ids)], np.int32)
        s = self.segments
        return np.array([ids, [*s[0], *s[1][:1] * len(p), *s[2], *s[3][:1] * len(a), *s[4]]], np.int32)


class Encoder(Named):
    """An encoder by folder or hub name, and how it is trained.

    ``max_length`` tokens of prompt and answer together are read: the end of the prompt and the beginning of the answer.
    ``epochs``, ``lr`` (the highest rate), ``batch`` (pairs) and ``weight_decay`` are AdamW's; ``sample`` bounds the pairs a
    fold is trained on.
    """

    def __init__(
        self,
        name: str,
        *,
        max_length: int = 256,
        epochs: int = 2,
        lr: float = 3e-5,
        batch: int = 16,
        weight_decay: float = 0.01,
        sample: int = 100_000,
    ) -> None:
        self.name, self.names, self.max_length = name, (name,), max_length
        self.epochs, self.lr, self.batch, self.weight_decay, self.sample = epochs, lr, batch, weight_decay, sample

    def ids(self, pairs: Pairs) -> dict[str, pa.ListArray]:
        """Token ids of ``prompt``, ``chosen`` and ``rejected`` (lists of int32), without special tokens and no longer than can
        be read.
        """
        tokenizer = _tokenizer(self.name, self.max_length)
        out = {}
        for side in SIDES:
            texts = [readable(t) for t in pairs.texts(side)]
            found = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
            cut = [i[-self.max_length :] if side == "prompt" else i[: self.max_length] for i in found]
            out[side] = pa.array(cut, pa.list_(pa.int32()))
        return out

    def cross_fitted(
        self,
        ids: Mapping[str, Sequence[Ids]],
        groups: npt.NDArray[np.uint64],
        *,
        folds: int = 3,
        seed: int = 0,
    ) -> npt.NDArray[np.float64]:
        """Out-of-fold margins in log-odds, (n,): how much better chosen is than rejected; 0 where nothing could be learnt.

        ``ids`` has the lists of ``ids()`` for n pairs; pairs of one group fall into one fold, by the hash of the group's
        number, which must speak of the prompt and not of the row. The order of the rows is of no consequence. Byte-equal on
        one CPU with a fixed number of threads, not on a GPU. Raises ConfigError where training diverges.
        """
        import torch

        tokenizer = _tokenizer(self.name, self.max_length)
        pairs, texts = self._sequences(_Text.of(tokenizer), ids)
        fold = folds_of(groups, folds, seed)
        # rows in an order of their own: neither the order of the file nor which answer is the chosen one is in it
        order = np.lexsort((pairs[:, 0], pairs.max(1), pairs.min(1))) if len(pairs) else np.empty(0, np.int64)
        margins = np.zeros(len(pairs))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = _Network(self.name, tokenizer)
            start = {k: v.clone() for k, v in network.model.state_dict().items()}
            for k in range(folds):
                held = np.flatnonzero(fold == k)
                if not len(held) or len(held) == len(pairs):
                    continue
                network.model.load_state_dict(start)
                torch.manual_seed(seed + k)
                rng = np.random.default_rng([seed, k])
                some = rng.permutation(order[fold[order] != k])[: self.sample]
                self._train(network, pairs[some], texts, rng)
                wanted = np.unique(pairs[held])  # in the order of lengths
                score = np.zeros(len(texts))
                score[wanted] = network.scores([texts[i] for i in wanted.tolist()], 4 * self.batch)
                margins[held] = score[pairs[held, 0]] - score[pairs[held, 1]]
        if not np.isfinite(margins).all():
            raise ConfigError("training diverged", where=self.name, hint="Give a smaller learning rate.")
        return margins

    def _sequences(self, text: _Text, ids: Mapping[str, Sequence[Ids]]) -> tuple[Places, list[Ids]]:
        """Different texts, by length and then by content, and the numbers of those of each pair (n, 2)."""
        made: dict[bytes, Ids] = {}
        keys = []
        for p, *answers in zip(*(ids[side] for side in SIDES), strict=True):
            joined = [text.join(p, a, self.max_length) for a in answers]
            keys.append([j.tobytes() for j in joined])
            made.update(zip(keys[-1], joined, strict=True))
        number = {key: i for i, key in enumerate(sorted(made, key=lambda k: (len(k), k)))}
        return np.array([[number[k] for k in two] for two in keys], np.int64).reshape(-1, 2), [made[k] for k in number]

    def _train(self, network: _Network, pairs: Places, texts: Sequence[Ids], rng: np.random.Generator) -> None:
        import torch

        parameters = list(network.model.parameters())
        groups = [  # biases and the weights of norms are not decayed
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=self.lr)
        steps = self.epochs * -(-len(pairs) // self.batch)
        first = max(1, round(WARM_UP * steps))
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda s: min((s + 1) / first, (steps - s) / max(1, steps - first))
        )
        lengths = np.array([texts[c].shape[1] + texts[r].shape[1] for c, r in pairs.tolist()])
        network.model.train()
        for _ in range(self.epochs):
            for some in _batches(lengths, self.batch, rng):
                both = pairs[some].T.ravel().tolist()
                chosen, rejected = network([texts[i] for i in both]).chunk(2)
                loss: Any = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                rate.step()


def _batches(lengths: Places, size: int, rng: np.random.Generator) -> Iterator[Places]:
    """Every pair once, in batches of about one length and in random order."""
    order, out = rng.permutation(len(lengths)), []
    for i in range(0, len(order), size * BUCKET):
        some = order[i : i + size * BUCKET]
        some = some[np.argsort(lengths[some], kind="stable")]
        out += [some[j : j + size] for j in range(0, len(some), size)]
    for i in rng.permutation(len(out)):
        yield out[i]


def _tokenizer(name: str, most: int) -> Any:
    tokenizer = loaded("AutoTokenizer", name)
    if not tokenizer.is_fast:
        raise ConfigError("has no fast tokenizer", where=name)
    config = loaded("AutoConfig", name)
    room = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or most)
    if most > room:
        raise ConfigError(f"reads at most {room} tokens, not {most}", where=name, hint="Give a smaller max_length.")
    return tokenizer


class _Network:
    """The encoder with one number as its output, on the GPU where there is one (there in bfloat16)."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        self.device = device()
        model = loaded("AutoModelForSequenceClassification", name, num_labels=1, ignore_mismatched_sizes=True)
        special = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        self.pad = next(i for i in special if i is not None)
        model.config.pad_token_id = self.pad
        self.model = model.to(self.device)
        self.segments = "token_type_ids" in tokenizer.model_input_names

    def __call__(self, texts: Sequence[Ids]) -> Any:
        """The scores of these texts, padded to the longest of them."""
        import torch

        longest = max(t.shape[1] for t in texts)
        block = np.zeros((3, len(texts), longest), np.int64)  # ids, segments, mask
        block[0] = self.pad
        for i, t in enumerate(texts):
            block[:2, i, : t.shape[1]] = t
            block[2, i, : t.shape[1]] = 1
        ids, segments, mask = torch.from_numpy(block).to(self.device)
        options = {"token_type_ids": segments} if self.segments else {}
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            out = self.model(input_ids=ids, attention_mask=mask, **options)
        return out.logits[:, 0].float()

    def scores(self, texts: Sequence[Ids], size: int) -> npt.NDArray[np.float64]:
        """The scores of these texts, without dropout."""
        import torch

        self.model.eval()
        with torch.inference_mode():
            parts = [self(texts[i : i + size]).cpu().numpy() for i in range(0, len(texts), size)]
        return np.concatenate(parts).astype(np.float64)
