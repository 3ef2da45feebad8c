"""Token ids exactly as a trainer makes them: Hugging Face tokenizers without torch, and a checked faster
engine.

``splintr`` gives the same ids about 40 times as fast. It is believed only where it agrees with the
tokenizer on a fixed sample of many scripts and on the first texts of every batch; otherwise the tokenizer
does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from prefdata.errors import ConfigError
from prefdata.ragged import Ragged

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|%s|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PLAIN = _SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Published split rules in which no match holds a letter followed by a space, and none looks behind: text
# may be cut between the two, and the parts tokenised apart, without a change of ids. (GPT-2, Llama 3, Qwen
# 2 and 3.5, o200k, Tekken, DeepSeek 3.) A rule that is not listed only costs time.
_CUTTABLE = frozenset({
    _GPT2,
    _PLAIN % r"\p{N}{1,3}",
    _PLAIN % r"\p{N}",
    _CASED % (_SHORT + "?", _SHORT + "?", r"\p{N}{1,3}"),
    _CASED % ("", "", r"\p{N}"),
    r"\p{N}{1,3}",
    (_PLAIN % r"\p{N}").replace(r"\p{L}+|", r"[\p{L}\p{M}]+|").replace(r"^\s\p{L}", r"^\s\p{L}\p{M}"),
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
})  # fmt: skip

# Where engines have been seen to differ: scripts, marks, joiners, digits, white space, code, control
# characters.
_SAMPLE = (
    *(
        "",
        " ",
        "\n\n",
        "a",
        "  two  spaces \t tab\r\nnext\n\n\nend  ",
        "x" * 300,
        "1" * 40,
        "--- *** ___ ...!!!",
    ),
    *(
        "The cat's out; they'll say it's 12,345.67 (or 50%)!",
        "Zürich, cafe\u0301, naïve, ﬁne, Ⅷ ½ ٣",
        "Привет, мир!",
    ),
    *(
        "日本語の文章。カタカナ、漢字。",
        "中文句子，包括标点。",
        "한국어 문장입니다.",
        "नमस्ते दुनिया",
        "ภาษาไทยไม่มีช่องว่าง",
    ),
    *(
        "مرحبا بالعالم",
        "שלום עולם",
        "👍🏽 👨\u200d👩\u200d👧 \u200b\u00a0\u3000\ufeff|\u2028",
        "\x00\x1f\x7f\ufffd",
    ),
    "def f(x):\n\treturn {'a': [x**2, x_1]}  # ok\n```\n<b>&amp;</b> https://x.org/?q=1",
    "<|im_start|>user\nhi<|im_end|>\n</s><s> [INST] x [/INST]",
)


@dataclass(frozen=True)
class Plain:
    """What texts need of a tokenizer: its ``tokenizers`` backend (None for a slow one), and its start and end token."""

    backend: Any
    config: dict[str, Any]
    bos: str | None
    eos: str | None


class Tokenizer:
    """A tokenizer with its chat template; ``load`` makes it, once a process."""

    def __init__(self, name: str, hf: Callable[[], Any], plain: Plain | None) -> None:
        self.name, self._load = name, hf
        if plain is None:
            backend = getattr(self.hf, "backend_tokenizer", None)
            config = orjson.loads(backend.to_str()) if backend is not None else {}
            plain = Plain(backend, config, self.hf.bos_token, self.hf.eos_token)
        self.backend, self.config, self.eos = plain.backend, plain.config, plain.eos
        ids = plain.backend.token_to_id if plain.backend is not None else self.hf.convert_tokens_to_ids
        self.bos_id, self.eos_id = (None if t is None else ids(t) for t in (plain.bos, plain.eos))
        self.affixes = self._affixes()

    @cached_property
    def hf(self) -> Any:
        """The Hugging Face tokenizer; plain texts seldom need it."""
        hf = self._load()
        hf.model_max_length = int(1e30)  # nothing is cut here, so no warning that something would be
        return hf

    def _affixes(self) -> tuple[list[int], list[int]] | None:
        """Ids that the tokenizer puts before and behind every plain text; None if that is not so simple."""
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
        ids: list[list[int]]
        if self.backend is not None:  # what the tokenizer itself does with a list of texts
            return [e.ids for e in self.backend.encode_batch(list(texts), add_special_tokens=special)]
        ids = self.hf(list(texts), add_special_tokens=special)["input_ids"] if texts else []
        return ids

    @cached_property
    def fast(self) -> Any:
        """The splintr engine without start and end tokens; None if not there or not sure to be right."""
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
        """True if splintr is installed but not sure to give this tokenizer's ids."""
        return self.fast is None and find_spec("splintr") is not None

    def encode(self, texts: Sequence[str], special: bool = False) -> tuple[Ragged, bool]:
        """Ids of all texts, and whether splintr is there but was not to be trusted (the ids are right
        either way).

        ``special``: with the start and end tokens that the tokenizer adds to a plain text.
        """
        before, behind = self.affixes if special and self.affixes else ([], [])
        engine = self.fast if not special or self.affixes is not None else None
        refused = self.fast_refused or (engine is not None and not self._agrees(engine, [t[:2000] for t in texts[:8]]))
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
        if any(
            t["single_word"] or t["lstrip"] or t["rstrip"] or _letter_space(t["content"])
            for t in self.config["added_tokens"]
        ):
            return False
        normal = _flat(self.config.get("normalizer"), "normalizers")
        if any(n["type"] not in ("NFC", "NFKC") for n in normal):
            return False
        steps = _flat(self.config.get("pre_tokenizer"), "pretokenizers")
        return bool(steps) and any(_splits(s) for s in steps) and all(_splits(s) or _harmless(s) for s in steps)

    def render(
        self, conversations: Sequence[Sequence[Mapping[str, Any]]], generation: bool, **kwargs: Any
    ) -> list[str]:
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
    return any(a.isalpha() and b == " " for a, b in pairwise(text))


def _flat(step: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    if step is None:
        return []
    return [inner for s in step[key] for inner in _flat(s, key)] if step["type"] == "Sequence" else [step]


def _splits(step: Mapping[str, Any]) -> bool:
    """A step that always parts a letter from the space behind it."""
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex", True)) and not step.get("add_prefix_space")
    # number rules alone do not part them, but they are never alone: one of the others stands beside them
    return _harmless(step) and step["type"] == "Split" and r"\s+(?!\S)" in step["pattern"]["Regex"]


def _harmless(step: Mapping[str, Any]) -> bool:
    """A step that adds cuts of its own and never looks across a letter and a space."""
    if step["type"] == "Split":
        return step["behavior"] == "Isolated" and step["pattern"].get("Regex") in _CUTTABLE
    return step["type"] == "Digits" or (step["type"] == "ByteLevel" and not step.get("add_prefix_space"))
