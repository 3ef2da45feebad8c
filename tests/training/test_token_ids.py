"""What ``token_length`` foretells of real pairs is what the trainer makes of them: drops, cuts, borders and every id."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from planted import KNOWN, QUICK, save_tiny, tokenizer_of

import prefdata
from prefdata import tokenizer_files
from prefdata.pairs import Pair, Pairs
from prefdata.trainer_ids import NOT_PREFIX, REFUSED, render
from prefdata.training.data import load
from prefdata.training.prepare import prepare
from prefdata.training.settings import Settings

WINDOW = 160
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}"
    "{% endif %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
ZEPHYR = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
# as a thinking model has it: an empty thought behind the prompt alone, and for answers that are long only
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last and m.role == 'assistant' and m.content | length > 200 %}"
    "<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)
TEMPLATES = {
    "chatml": (CHATML, {"eos": "<|im_end|>", "a": "<|im_start|>"}),
    "llama3": (LLAMA3, {"eos": "<|eot_id|>", "bos_token": "<|begin_of_text|>", "a": "<|start_header_id|>", "b": "<|end_header_id|>"}),
    "gemma": (GEMMA, {"eos": "<end_of_turn>", "bos_token": "<bos>", "a": "<start_of_turn>"}),
    "zephyr": (ZEPHYR, {"eos": "</s>", "bos_token": "<s>"}),
    "thinking": (THINKING, {"eos": "<|im_end|>", "a": "<|im_start|>", "b": "<think>"}),
}  # fmt: skip
ROWS = [200, pytest.param(2000, marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def published(shared, tmp_path_factory):
    """``published(n)``: the first n published pairs as messages, not judged by their length."""
    made = {}

    def get(n):
        source = shared / "data/hh-rlhf/harmless-base.test.jsonl.gz"
        if not source.is_file():
            pytest.skip(f"{source} is not there")
        if n not in made:
            out = tmp_path_factory.mktemp("published") / "out"
            prefdata.clean(str(source), out, "certain", only="malformed", format="chat", limit=n)
            made[n] = load(out, Settings(model="none", eval_share=0)).train.columns
        return made[n]

    return get


@pytest.fixture(scope="session", params=TEMPLATES)
def tiny(request, published, tmp_path_factory):
    """A tiny model with this template and a tokenizer trained on some of the texts."""
    template, marks = TEMPLATES[request.param]
    texts = [m["content"] for prompt in published(200)["prompt"] for m in prompt]
    made = tokenizer_of(texts, vocab=2000, template=template, **marks, **KNOWN)
    return save_tiny(tmp_path_factory.mktemp(request.param), tokenizer=made)


@pytest.mark.parametrize("n", ROWS)
def test_the_stage_foretells_what_the_trainer_makes(tiny, published, tmp_path, n):
    columns = published(n)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    sets = [f"token_length.tokenizer={tiny}", f"token_length.max_length={WINDOW}"]
    told = prefdata.clean(rows, tmp_path / "out", "certain", only=["malformed", "token_length"], set=sets)
    reason = {e["row"]: e["reason"] for e in told.decisions.to_pylist() if e["action"] == "drop"}
    signals = pq.read_table(tmp_path / "out/audit/signals.parquet")
    counts = {side: np.array(signals[f"token_length.{side}_tokens"].to_pylist(), float) for side in columns}
    flags = np.array(signals["token_length.flags"].to_pylist())

    # rows that the template refuses are flagged by the stage: the trainer cannot even begin with them
    good = np.flatnonzero((flags & REFUSED) == 0)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    for i in set(range(len(rows))) - set(good.tolist()):
        with pytest.raises(Exception, match="roles must alternate"):
            tokenizer.apply_chat_template(rows[i]["prompt"] + rows[i]["chosen"], tokenize=False)
    given = {**QUICK, "max_length": WINDOW, "eval_share": 0}
    if len(good) < len(rows):
        done = prefdata.train(tmp_path / "out", tmp_path / "refused", tiny, check=True, **given)
        found = {c.word: c for c in done.checks}["template_refused"]
        kept = {str(i) for i in range(len(rows)) if i not in reason and flags[i] & REFUSED}
        assert found.status == "fail" and set(found.rows) <= kept and f" {len(kept)} of " in found.evidence
    source = tmp_path / "all"
    prefdata.clean([rows[i] for i in good], source, "certain", only="malformed")
    pairs = load(source, Settings(model=tiny, eval_share=0)).train
    assert len(pairs) == len(good) > 0.9 * n
    made = prepare(pairs, tokenizer, WINDOW, "train")
    trained = good[made.rows]

    assert set(good[made.left]) == {i for i, why in reason.items() if why == "too_long"}, "what TRL drops"
    assert len(made.left), "nothing was dropped: the window is too wide to say anything"
    sizes = made.lengths()
    for side in columns:
        assert (sizes[side] == counts[side][trained]).all(), f"tokens of {side}"
    parted = {i for i in trained.tolist() if flags[i] & NOT_PREFIX}
    assert set(good[made.cut_prompts]) == parted, "prompts that do not begin their whole"
    ours = tokenizer_files.load(tiny)
    whole = render(
        ours, [Pair(r["prompt"], r["chosen"], r["rejected"]) for r in (rows[i] for i in trained)], [None] * len(trained)
    )
    for k, side in ((1, "chosen"), (2, "rejected")):
        ids, _ = ours.encode([three[k] for three in whole])
        for j in range(len(trained)):
            assert [*made.ids["prompt"][j], *made.ids[side][j]] == [*ids[j]], f"ids of row {trained[j]}"

    # after cleaning the trainer drops nothing, and warns of the rows that the stage flagged
    prefdata.clean([rows[i] for i in good], tmp_path / "good", "certain", only=["malformed", "token_length"], set=sets)
    done = prefdata.train(tmp_path / "good", tmp_path / "run", tiny, check=True, **given)
    found = {c.word: c for c in done.checks}
    assert found["rows_lost"].status == found["template_refused"].status == "ok"
    place = {i: str(k) for k, i in enumerate(good.tolist())}
    kept = {place[i] for i in trained.tolist() if i not in reason}
    flagged = {place[i] for i in parted} & kept
    assert f"{len(kept):,} pairs, {len(kept):,} left" in found["rows_lost"].evidence
    said = found["prompt_not_prefix"]
    assert (said.status == "ok") == (not flagged) and set(said.rows) <= flagged
    assert said.evidence.startswith(f"{len(flagged):,} of {len(kept):,} pairs") or not flagged


def test_pairs_of_text_are_foretold_too(published, tmp_path):
    columns = published(200)
    rows = [{s: columns[s][i][-1]["content"] for s in columns} for i in range(len(columns["prompt"]))]
    model = save_tiny(tmp_path / "m", tokenizer=tokenizer_of([r["prompt"] for r in rows], vocab=1000, **KNOWN))
    from transformers import AutoTokenizer

    from prefdata.stages.token_length import TokenLength

    table = TokenLength(tokenizer=model, max_length=40).measure(Pairs.of([Pair(**r) for r in rows]))
    prefdata.clean(rows, tmp_path / "out", "certain", only="malformed")
    made = prepare(
        load(tmp_path / "out", Settings(model=model, eval_share=0)).train,
        AutoTokenizer.from_pretrained(model),
        40,
        "train",
    )
    prompts = np.array(table["prompt_tokens"].to_pylist())
    assert len(made.left) and made.left.tolist() == np.flatnonzero(prompts >= 40).tolist()
    assert (made.lengths()["chosen"] == np.array(table["chosen_tokens"].to_pylist())[made.rows]).all()
