"""Token ids exactly as a trainer makes them: Hugging Face tokenizers without torch, and a checked faster engine.

`splintr` gives the same ids about 40 times as fast. It is believed only where it agrees with the tokenizer itself on a
fixed sample of many scripts and on the first texts of every batch; otherwise the tokenizer itself does the work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from prefdata.errors import ConfigError

Ints = npt.NDArray[np.int64]

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PLAIN = _SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Published split rules in which no match holds a letter followed by a space, and none looks behind: text may be cut
# between the two, and the parts tokenised apart, without a change of ids. (GPT-2, Llama 3, Qwen 2, o200k, Tekken,
# DeepSeek 2/3.) A rule that is not listed only costs time.
_CUTTABLE = frozenset({
    _GPT2,
    _PLAIN % r"\p{N}{1,3}",
    _PLAIN % r"\p{N}",
    _CASED % (_SHORT + "?", _SHORT + "?", r"\p{N}{1,3}"),
    _CASED % ("", "", r"\p{N}"),
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
})  # fmt: skip

# What engines have been seen to differ on: many scripts, marks, joiners, digits, white space, code, control characters.
_SAMPLE = (
    "", " ", "\n\n", "a", "The cat's out; they'll say it's 12,345.67 (or 50%)!", "  two  spaces \t tab\r\nnext\n\n\nend  ",
    "Zürich, cafe\u0301, naïve, ﬁne, Ⅷ ½ ٣", "日本語の文章。カタカナ、漢字。", "中文句子，包括标点。", "한국어 문장입니다.", "नमस्ते दुनिया",
    "ภาษาไทยไม่มีช่องว่าง", "مرحبا بالعالم", "שלום עולם", "Привет, мир!", "👍🏽 👨‍👩‍👧 \u200b\u00a0\u3000\ufeff|\u2028",
    "def f(x):\n\treturn {'a': [x**2, x_1]}  # ok\n```\n<b>&amp;</b> https://x.org/?q=1",
    "\x00\x1f\x7f\ufffd", "x" * 300, "1" * 40, "--- *** ___ ...!!!", "<|im_start|>user\nhi<|im_end|>\n", "</s><s> [INST] x [/INST]",
)  # fmt: skip


@dataclass(frozen=True)
class Ragged:
    """Many id sequences in one array: sequence ``i`` is ``ids[at[i]:at[i + 1]]``."""

    ids: npt.NDArray[np.uint32]
    at: Ints

    @cached_property
    def lengths(self) -> Ints:
        """The length of each sequence."""
        return np.diff(self.at)

    def __len__(self) -> int:
        return len(self.at) - 1

    def __getitem__(self, i: int) -> npt.NDArray[np.uint32]:
        return self.ids[self.at[i] : self.at[i + 1]]

    def part(self, start: int, stop: int) -> Ragged:
        """The sequences from ``start`` up to ``stop``, as a view."""
        lo, hi = self.at[start], self.at[stop]
        return Ragged(self.ids[lo:hi], self.at[start : stop + 1] - lo)

    def followed_by(self, tail: Sequence[int]) -> Ragged:
        """Every sequence with the same ids put behind it."""
        if not tail:
            return self
        n, k = len(self), len(tail)
        at = self.at + np.arange(n + 1) * k
        out = np.empty(len(self.ids) + n * k, np.uint32)
        own = np.arange(len(self.ids)) + np.repeat(np.arange(n) * k, self.lengths)
        out[own] = self.ids
        out[(at[1:] - k)[:, None] + np.arange(k)] = np.asarray(tail, np.uint32)
        return Ragged(out, at)


def common_prefix(a: Ragged, b: Ragged) -> Ints:
    """How many leading ids sequence ``i`` of ``a`` shares with sequence ``i`` of ``b``."""
    most = np.minimum(a.lengths, b.lengths)
    out = most.copy()
    rows, done, step = np.arange(len(a)), 0, 16
    while len(rows):  # most pairs part early: look at few ids of all, then at many of the few that are left
        take = np.minimum(most[rows] - done, step)
        which = np.repeat(np.arange(len(rows)), take)
        k = np.arange(len(which)) - np.repeat(np.cumsum(take) - take, take) + done
        unlike = np.flatnonzero(a.ids[a.at[rows][which] + k] != b.ids[b.at[rows][which] + k])
        first = unlike[np.diff(which[unlike], prepend=-1) > 0]
        out[rows[which[first]]] = k[first]
        open_ = most[rows] > done + step
        open_[which[first]] = False
        rows, done, step = rows[open_], done + step, step * 16
    return out


class Tokenizer:
    """A tokenizer with its chat template; ``load`` makes it, once a process."""

    def __init__(self, hf: Any, name: str) -> None:
        self.hf, self.name = hf, name
        hf.model_max_length = int(1e30)  # nothing is cut here, so no warning that something would be
        backend = getattr(hf, "backend_tokenizer", None)
        self.config: dict[str, Any] = orjson.loads(backend.to_str()) if backend is not None else {}
        self.affixes = self._affixes()

    @property
    def eos(self) -> str | None:
        """The end token as text."""
        return self.hf.eos_token  # type: ignore[no-any-return]

    def _affixes(self) -> tuple[list[int], list[int]] | None:
        """Ids that the tokenizer puts before and behind every plain text; None where it is not that simple."""
        found = None
        for text in ("a", "Hello world", "日本 12", " x\n"):
            bare, whole = self._hf([text], special=False)[0], self._hf([text], special=True)[0]
            spare = len(whole) - len(bare)
            fits = [k for k in range(spare + 1) if whole[k : k + len(bare)] == bare]
            if not fits:
                return None
            pair = (whole[: fits[-1]], whole[fits[-1] + len(bare) :])
            if found is not None and pair != found:
                return None
            found = pair
        return found

    def _hf(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        return self.hf(list(texts), add_special_tokens=special)["input_ids"] if texts else []  # type: ignore[no-any-return]

    @cached_property
    def fast(self) -> Any:
        """The splintr engine without start and end tokens, or None (not installed, not supported, not the same ids)."""
        added = self.config.get("added_tokens", [])
        # splintr reads the `single_word` rule differently next to an underscore
        if self.config.get("model", {}).get("type") != "BPE" or any(t.get("single_word") for t in added):
            return None
        try:
            import splintr

            bare = {**self.config, "post_processor": None, "truncation": None, "padding": None}
            engine = splintr.from_json_bytes(orjson.dumps(bare))
        except ImportError:
            return None
        except Exception:  # whatever a foreign parser cannot read is simply not fast
            return None
        marks = [t["content"] for t in added[:20]] + [t["content"] for t in added[-20:]]
        sample = [*_SAMPLE, *(f"a{m}b {m} \n{m}{self.eos or ''}" for m in marks)]
        return engine if self._agrees(engine, sample) else None

    def _agrees(self, engine: Any, texts: Sequence[str]) -> bool:
        mine = self._hf(texts, special=False)
        return all(engine.encode(t) == ids for t, ids in zip(texts, mine, strict=True))

    @property
    def fast_refused(self) -> bool:
        """True if splintr is installed but does not give this tokenizer's ids."""
        if self.fast is not None:
            return False
        from importlib.util import find_spec

        return find_spec("splintr") is not None

    def encode(self, texts: Sequence[str], special: bool = False) -> tuple[Ragged, bool]:
        """Ids of all texts, and whether splintr was found to differ on them (they are right either way).

        ``special``: with the start and end tokens that the tokenizer adds to a plain text.
        """
        before, behind = self.affixes if special and self.affixes else ([], [])
        engine = self.fast if not special or self.affixes is not None else None
        refused = engine is not None and not self._agrees(engine, [t[:2000] for t in texts[:8]])
        if engine is None or refused:
            return self._slow(texts, special), refused
        # one flat buffer a text: no Python integers, no thread pool that a forked worker could hang on
        buffers = [engine.encode_flat(t) for t in texts]
        if before or behind:
            head, tail = (np.asarray(x, np.uint32).tobytes() for x in (before, behind))
            buffers = [head + b + tail for b in buffers]
        at = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter((len(b) // 4 for b in buffers), np.int64, len(buffers)), out=at[1:])
        return Ragged(np.frombuffer(b"".join(buffers), np.uint32), at), False

    def _slow(self, texts: Sequence[str], special: bool) -> Ragged:
        parts, lengths = [], []
        for i in range(0, len(texts), 512):
            ids = self._hf(texts[i : i + 512], special)
            lengths += [len(x) for x in ids]
            parts.append(np.fromiter((t for x in ids for t in x), np.uint32, sum(map(len, ids))))
        at = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])
        return Ragged(np.concatenate(parts) if parts else np.empty(0, np.uint32), at)

    @cached_property
    def cuttable(self) -> bool:
        """True if a text may be cut between a Latin letter and a space, and its parts tokenised apart."""
        if self.config.get("model", {}).get("type") != "BPE" or self.affixes is None:
            return False
        if self.config["model"].get("dropout"):
            return False
        if any(t["single_word"] or t["lstrip"] or t["rstrip"] or _letter_space(t["content"]) for t in self.config["added_tokens"]):
            return False
        normal = _flat(self.config.get("normalizer"), "normalizers")
        if any(n["type"] not in ("NFC", "NFKC") for n in normal):
            return False
        steps = _flat(self.config.get("pre_tokenizer"), "pretokenizers")
        return bool(steps) and any(_splits(s) for s in steps) and all(_splits(s) or _harmless(s) for s in steps)

    def render(self, conversations: Sequence[Sequence[Mapping[str, Any]]], generation: bool, **kwargs: Any) -> list[str]:
        """Chat template applied to each conversation."""
        if not self.hf.chat_template:
            raise ConfigError(
                "the tokenizer has no chat template, but the data holds messages",
                where=self.name,
                hint="Give one: token_length: {chat_template: path/to/template.jinja}.",
            )
        return self.hf.apply_chat_template(  # type: ignore[no-any-return]
            [list(c) for c in conversations], tokenize=False, add_generation_prompt=generation, **kwargs
        )


def _letter_space(text: str) -> bool:
    return any(a.isalpha() and b == " " for a, b in zip(text, text[1:], strict=False))


def _flat(step: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    if step is None:
        return []
    return [inner for s in step[key] for inner in _flat(s, key)] if step["type"] == "Sequence" else [step]


def _splits(step: Mapping[str, Any]) -> bool:
    """A step that always parts a letter from the space behind it."""
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex", True)) and not step.get("add_prefix_space")
    # number rules alone do not part them, but they are never alone: one of the others stands beside them
    return step["type"] == "Split" and step["behavior"] == "Isolated" and step["pattern"].get("Regex") in _CUTTABLE and (
        r"\s+(?!\S)" in step["pattern"]["Regex"]
    )


def _harmless(step: Mapping[str, Any]) -> bool:
    """A step that adds cuts of its own and never looks across a letter and a space."""
    if step["type"] == "Split":
        return step["behavior"] == "Isolated" and step["pattern"].get("Regex") in _CUTTABLE
    return step["type"] == "Digits" or (step["type"] == "ByteLevel" and not step.get("add_prefix_space"))


def load(name: str, chat_template: str | None = None) -> Tokenizer:
    """The tokenizer of a folder, a GGUF or ``tokenizer.json`` file, or a hub name (local cache; online only if allowed)."""
    return _load(name, chat_template)


@lru_cache(maxsize=4)
def _load(name: str, chat_template: str | None) -> Tokenizer:
    online = os.environ.get("PREFDATA_ONLINE") == "1"
    path = Path(name).expanduser()
    local = path.exists()
    if not local and (name.startswith(("/", ".", "~")) or name.count("/") > 1 or path.suffix in (".json", ".gguf")):
        raise ConfigError("no such tokenizer folder", where=name, hint="Give the folder that holds tokenizer.json.")
    extra: dict[str, Any] = {"local_files_only": not online, "trust_remote_code": False}
    where = str(path) if local else name
    if local and path.is_file():
        where = str(path.parent)
        if path.suffix == ".gguf":
            extra["gguf_file"] = path.name
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(where, **extra)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and more for what is one mistake
        if local:
            raise ConfigError(f"holds no tokenizer that can be read: {_first_line(error)}", where=name) from error
        hint = "" if online else "It is no folder here and not in the local cache; --online may fetch it."
        raise ConfigError(f"tokenizer cannot be loaded: {_first_line(error)}", where=name, hint=hint) from error
    if chat_template is not None:
        template = Path(chat_template).expanduser()
        if not template.is_file():
            raise ConfigError("no such chat template file", where=chat_template)
        hf.chat_template = template.read_text(encoding="utf-8")
    return Tokenizer(hf, name)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
