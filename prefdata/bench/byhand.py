"""What people write by hand today to clean preference pairs: the bench's baseline. Needs no prefdata.

pandas, datasketch, rapidfuzz and transformers, each used the way its documentation shows:
``python byhand.py IN.jsonl OUT.parquet TOKENIZER_FOLDER [MAX_LENGTH]``.
"""

import json
import sys
import time

import pandas as pd
from datasketch import MinHash, MinHashLSH
from rapidfuzz import fuzz
from transformers import AutoTokenizer

SIDES = ["prompt", "chosen", "rejected"]


def shingles(text: str, n: int = 5) -> list[bytes]:
    """The distinct word n-grams of a text."""
    words = text.lower().split()
    return [s.encode() for s in {" ".join(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}]


def without_near_duplicates(pairs: pd.DataFrame, threshold: float = 0.8, permutations: int = 128) -> pd.DataFrame:
    """Keep each row that resembles no row kept before it."""
    index = MinHashLSH(threshold=threshold, num_perm=permutations)
    texts = (shingles(f"{p}\n{c}\n{r}") for p, c, r in pairs[SIDES].itertuples(index=False))
    keep = []
    for row, minhash in enumerate(MinHash.generator(texts, num_perm=permutations)):
        fresh = not index.query(minhash)
        if fresh:
            index.insert(row, minhash)
        keep.append(fresh)
    return pairs[keep]


def without_similar_answers(pairs: pd.DataFrame, limit: float = 95.0) -> pd.DataFrame:
    """Drop pairs whose two answers are almost the same text."""
    ratio = [fuzz.ratio(c, r, score_cutoff=limit) for c, r in zip(pairs["chosen"], pairs["rejected"], strict=True)]
    return pairs[[r < limit for r in ratio]]


def without_long_pairs(pairs: pd.DataFrame, folder: str, max_length: int, batch: int = 1000) -> pd.DataFrame:
    """Drop pairs whose prompt and longer answer do not fit."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lengths = {}
    for side in SIDES:
        texts = pairs[side].tolist()
        found: list[int] = []
        for i in range(0, len(texts), batch):
            ids = tokenizer(texts[i : i + batch], add_special_tokens=False, return_attention_mask=False)["input_ids"]
            found.extend(len(x) for x in ids)
        lengths[side] = pd.Series(found, index=pairs.index)
    total = lengths["prompt"] + lengths["chosen"].combine(lengths["rejected"], max)
    return pairs[total <= max_length]


def main(source: str, target: str, folder: str, max_length: int = 1024) -> None:
    """Clean one file; prints the rows and wall seconds after each step as JSON."""
    log, last = {}, time.perf_counter()

    def note(step: str, rows: int) -> None:
        nonlocal last
        now = time.perf_counter()
        log[step] = [rows, round(now - last, 2)]
        last = now

    pairs = pd.read_json(source, lines=True)
    note("read", len(pairs))
    pairs = pairs.dropna(subset=SIDES)
    pairs = pairs[(pairs[SIDES].apply(lambda side: side.str.strip()) != "").all(axis=1)]
    pairs = pairs.drop_duplicates(subset=SIDES)
    note("exact", len(pairs))
    pairs = without_near_duplicates(pairs)
    note("near", len(pairs))
    pairs = without_similar_answers(pairs)
    note("similar", len(pairs))
    pairs = without_long_pairs(pairs, folder, max_length)
    note("tokens", len(pairs))
    pairs.to_parquet(target, index=False)
    note("save", len(pairs))
    print(json.dumps(log))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 1024)
