"""Rows that are no pair."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from prefdata.decisions import Decisions, Finding, Signals
from prefdata.pairs import Pairs
from prefdata.stage import Stage

MARKS = ("</s>", "<s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>",
         "<pad>", "<unk>")  # fmt: skip
_BARS = re.compile(r"<[|\uff5c][^\s<>|\uff5c]{1,40}[|\uff5c]>")  # <|im_end|>, and DeepSeek's with wide bars


class Malformed(Stage):
    """Is the row a pair at all: readable, complete, of the right types, with something in every answer?

    Why it matters: trainers crash on such rows without naming them, or learn from them in silence: an empty chosen answer
    teaches the model to stop at once, a control token typed into an answer becomes a real turn.

    How it decides: reading and shaping a row leaves a fault where a line is no JSON, a field is missing or not text, a
    message has no known role, an answer holds nothing visible, or the two sides were given to different prompts. Such rows
    are dropped, always. Texts that spell a control token of a common chat format are flagged.

    What it misses: faults inside readable text, such as answers cut off in the middle or in the wrong language.

    References: huggingface/trl#2435, hiyouga/LlamaFactory#3364, LAION-AI/Open-Assistant#2184
    """

    reasons: ClassVar[Mapping[str, str]] = {
        "parse_error": "The line is not a JSON object (or the CSV row has too few or too many cells). Mend the line at the file and line given.",
        "encoding_error": "The line is not valid UTF-8, or holds half of a surrogate pair. Convert the file to UTF-8 and read it again.",
        "missing_field": "Prompt, chosen or rejected is absent or null. Complete the row, or map the right columns with --columns.",
        "bad_type": "A field is a number, a boolean, an object or a list of plain strings where text or messages belong. Nothing is turned into text in silence.",
        "empty_prompt": "The prompt holds nothing visible, or has no message.",
        "empty_completion": "An answer holds nothing visible (white space, zero-width characters) or has no message: training on it teaches the model to say nothing.",
        "special_token": "A text spells a control token such as <|im_end|>. A tokenizer turns it into the real token and so makes fake turns. Remove it, or train with split_special_tokens.",
        "bad_messages": "A message has no role or an unknown one, or an answer does not end with the assistant's turn.",
        "prompt_mismatch": "The two answers were given to different prompts (their earlier turns or system texts differ), so comparing them means nothing.",
        "image_mismatch": "The number of <image> placeholders and of images differ.",
        "tie": "The label says that neither answer is better, or both have the same score. There is no pair in that; --ties keep leaves such rows in, flagged; pd_strength is 0 for a tie that a label names.",
        "missing_label": "Both answers are there, but the label is null, empty or names neither. Which one is better is never guessed: label the row, or say with --labels what the value means.",
        "unpaired": "The row has one answer with a label or a rating of its own (KTO form), and no other row of its prompt has the opposite label, or any rated answer. It cannot be a pair; train on such rows with KTO.",
        "label_conflict": "The row has one answer with a label of its own (KTO form), and another row has the same prompt, the same answer and the opposite label. Neither is put into a pair: say which label is right.",
    }
    measured: ClassVar[frozenset[str]] = frozenset()

    special_tokens: Literal["flag", "drop", "keep"] = "flag"

    def measure(self, pairs: Pairs) -> pa.Table:
        """``special_token`` (bool): a side spells a control token."""
        found = np.zeros(len(pairs), bool)
        for side in ("prompt", "chosen", "rejected"):
            for i, text in enumerate(pairs.texts(side)):
                if ("<" in text or "[" in text) and _special(text):
                    found[i] = True
        return pa.table({"special_token": found})

    def decide(self, signals: Signals) -> Decisions:
        """Drop every row with a fault."""
        out = Decisions(signals.index)
        special = np.zeros(len(signals), bool)
        for where, batch in signals.batches(["pair.fault", "malformed.special_token"]):
            faults = batch["pair.fault"].dictionary_encode()
            codes = faults.indices.to_numpy(zero_copy_only=False) if faults.null_count < len(faults) else None
            if codes is not None:
                for code, reason in enumerate(faults.dictionary.to_pylist()):
                    out.mark(np.flatnonzero(codes == code) + where.start, "drop", reason)
            tokens = batch["malformed.special_token"]
            special[where] = tokens == True  # noqa: E712 - an object array with None for broken rows
        special &= out.action == 0
        if "pair.tie" in signals.names:  # there only if ties were asked to be kept
            ties = signals.column("pair.tie") == True  # noqa: E712 - null for broken rows
            out.mark(ties & (out.action == 0), "flag", "tie")
            special &= ~ties
        if self.special_tokens != "keep" and special.any():
            out.mark(special, self.special_tokens, "special_token")
        dropped = out.count("drop")
        out.findings.append(
            Finding("sound_pairs", len(signals) - dropped, len(signals), "rows that are complete pairs")
        )
        return out


def _special(text: str) -> bool:
    return any(mark in text for mark in MARKS) or (
        ("<|" in text or "<\uff5c" in text) and _BARS.search(text) is not None
    )
