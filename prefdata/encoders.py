"""Text encoders, loaded once a process and only from files that are here (``--online`` allows a download).

A text becomes one unit vector for the whole of it, whatever its length, and the same one in every batch.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from prefdata import model_files
from prefdata.errors import MissingExtra

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Anything that turns texts into vectors."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text; a text without a token gets zeros."""


def digest(name: str) -> str:
    """What the files of an encoder's folder are: a change of them changes the scores."""
    folder = Path(name).expanduser()
    files = sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []
    return xxhash.xxh3_64_hexdigest(
        "|".join(f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files).encode()
    )


@lru_cache(maxsize=2)
def load(name: str) -> Encoder:
    """``wordllama``, or a SentenceTransformer by folder or hub name."""
    return _WordLlama() if name == "wordllama" else _Sentences(name)


def _unit(vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
    norm = float(np.sqrt((vector.astype(np.float64) ** 2).sum()))
    return vector / norm if norm > 0 and np.isfinite(norm) else np.zeros_like(vector)


class _WordLlama:
    """Mean of static token vectors: the two files of the wordllama wheel, read without its hub-bound loader."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise MissingExtra.of("embed", "the encoder wordllama")
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        home = Path(spec.origin).parent
        self.tokenizer = Tokenizer.from_file(str(home / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        weights = load_file(str(home / "weights" / "l2_supercat_256.safetensors"))
        self.weights: Vectors = weights["embedding.weight"].astype(np.float32)

    def embed(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self.weights.shape[1]), np.float32)
        for i in range(0, len(texts), 256):
            block = self.tokenizer.encode_batch_fast(list(texts[i : i + 256]), add_special_tokens=False)
            for k, encoded in enumerate(block, i):
                ids = encoded.ids
                if ids:  # text by text: a padded batch would add up in another order
                    out[k] = _unit(self.weights[ids].mean(axis=0))
        return out


class _Sentences:
    """A SentenceTransformer; texts beyond its window are read in parts and the parts weighed by their tokens."""

    def __init__(self, name: str) -> None:
        where = model_files.place("encoder", name)
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingExtra.of("models", f"the encoder {name}")
        from sentence_transformers import SentenceTransformer

        with model_files.loading("encoder", name) as allowed:
            self.model: Any = SentenceTransformer(where, **allowed)

    def embed(self, texts: Sequence[str]) -> Vectors:
        # one part at a time: padding and batch size change the last bits of a vector
        return np.stack([self._one(t) for t in texts]).astype(np.float32) if texts else np.zeros((0, 1), np.float32)

    def _one(self, text: str) -> npt.NDArray[Any]:
        total: npt.NDArray[Any] | None = None
        for part, weight in self._parts(text):
            vector = self.model.encode(part, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
            total = weight * vector if total is None else total + weight * vector
        assert total is not None
        return _unit(total)

    def _parts(self, text: str) -> list[tuple[str, int]]:
        limit = self.model.max_seq_length
        tokenizer = self.model.tokenizer
        if not limit or limit > 1_000_000 or not getattr(tokenizer, "is_fast", False):
            return [(text, 1)]
        encoded = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
        )
        places = encoded["offset_mapping"]
        # a part that is cut out may come out a little longer when it is tokenised anew
        size = max(limit - tokenizer.num_special_tokens_to_add() - 8, 1)
        out, start = [], 0
        while start < len(places):
            stop = min(start + size, len(places))
            if stop < len(places):  # back to a white space, if there is one near
                near = [k for k in range(stop, max(stop - 32, start + 1), -1) if places[k][0] > places[k - 1][1]]
                stop = near[0] if near else stop
            out.append((text[places[start][0] : places[stop - 1][1]], stop - start))
            start = stop
        return out or [(text, 1)]
