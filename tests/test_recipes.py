"""The recipes in ``out/recipes`` load in the trainers, and give them the pairs that were kept.

TRL's own script runs here. The loaders of the other three pin versions of their own: the slow tests fetch them (without
what trains, 2 to 200 MB) into a folder and run ``tests/loaders/*.py`` on it: axolotl 0.19.0, OpenRLHF 0.11.2 and
LLaMA-Factory 0.9.5. All of these passed in November 2026.
"""

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from written import loaded, write_lines

import prefdata

WORDS = ("harbour", "lantern", "river", "meadow", "copper", "engine", "garden", "winter", "letter", "market")
LOOK = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look it up", "parameters": LOOK}}]
TEMPLATE = (
    "{% if tools %}tools: {{ tools[0].function.name }}{{ eos_token }}{% endif %}"
    "{% for m in messages %}{{ m.role }}:\n{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call(word, as_text=False):
    arguments = {"q": word}
    function = {"name": "look", "arguments": json.dumps(arguments) if as_text else arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}


def row(kind, word):
    """A pair of each kind; ``word`` is a column of its own, by which it is found again."""
    asked, good, bad = f"Tell me of the {word}?", f"The {word} is old.", f"No {word} here."
    if kind in ("text", "extra"):
        extra = {"extra": [1, "a"] if word < "h" else {"x": 1}} if kind == "extra" else {}
        return {"prompt": asked, "chosen": good, "rejected": bad, "word": word} | extra
    before = {
        "turns": [user(f"Hello {word}."), assistant("Hi.")],
        "system": [{"role": "system", "content": "Be kind."}],
    }.get(kind, [])
    after = [call(word), {"role": "tool", "name": "look", "content": f"{word} 7"}] if kind == "tools" else []
    chosen = call(word, as_text=word < "h") if kind == "calls" else assistant(good)
    pair = {"prompt": [*before, user(asked), *after], "chosen": [chosen], "rejected": [assistant(bad)], "word": word}
    return pair | ({"tools": TOOLS} if kind in ("tools", "calls") else {})


PROMPTS = {  # with TEMPLATE, where E stands for the end token and W for the word
    "text": "Tell me of the W?",
    "chat": "user:\nTell me of the W?Eassistant:\n",
    "turns": "user:\nHello W.Eassistant:\nHi.Euser:\nTell me of the W?Eassistant:\n",
    "system": "system:\nBe kind.Euser:\nTell me of the W?Eassistant:\n",
    "tools": 'tools: lookEuser:\nTell me of the W?Eassistant:\nlook {"q": "W"}Etool:\nW 7Eassistant:\n',
}
PROMPTS |= {"extra": PROMPTS["text"], "implicit": PROMPTS["turns"]}
LLAMA = "Human: Tell me of the W?E\nAssistant:"
LLAMA_TOOLS = (
    "System: You have access to the following tools:\n> Tool Name: look\nTool Description: Look it up\nTool Args:\n  - q (string): \n\n"
    "Use the following format if using a tool:\n```\nAction: tool name (one of [look])\nAction Input: the input to the "
    'tool, in a JSON format representing the kwargs (e.g. ```{"input": "hello world", "num_beams": 5}```)\n```\nE\n'
)
ACTION = 'Action: look\nAction Input: {"q": "W"}E\n'


def expected(words, prompt, good="The W is old.E", bad="No W here.E"):
    """``[prompt, prompt and chosen, prompt and rejected]`` of each word."""
    triples = ([prompt, prompt + good, prompt + bad] for _ in words)
    return [[t.replace("E", "<eos>").replace("W", w) for t in three] for three, w in zip(triples, words, strict=True)]


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory):
    """``cleaned(kind)``: the set of this kind, cleaned once, in a folder whose name has a space."""
    home, made = tmp_path_factory.mktemp("sets") / "my sets", {}

    def of(kind):
        if kind not in made:
            home.mkdir(exist_ok=True)
            source = "turns" if kind == "implicit" else kind
            path = write_lines(home / f"{kind}.jsonl", [row(source, w) for w in WORDS])
            options = {"format": "implicit"} if kind == "implicit" else {}
            result = prefdata.clean(path, home / kind, split="test=0.4", seed=3, **options)
            assert result.counts["kept"] == len(WORDS) and min(result.splits.values()) > 0
            made[kind] = home / kind
        return made[kind]

    return of


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    """A folder with a tiny random model, the tokenizer, and TEMPLATE as its chat template."""
    torch = pytest.importorskip("torch", reason="torch is not installed: the trainers cannot be run")
    torch.set_num_threads(1)
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    ready = AutoTokenizer.from_pretrained(tokenizer)
    ready.chat_template = TEMPLATE
    ready.save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(ready), num_key_value_heads=1, eos_token_id=ready.eos_token_id, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def words_of(out, split="train"):
    return [r["word"] for r in loaded(out, split=split)]


# ------------------------------------------------------------------------------------------------ TRL


@pytest.mark.parametrize("kind", ["text", "extra", "chat", "turns", "system", "tools", "calls", "implicit"])
def test_trl_trains_on_the_kept_pairs(cleaned, model, tmp_path, monkeypatch, kind):
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from trl.scripts import dpo

    trainers = []

    class Seen(trl.DPOTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            trainers.append(self)

    monkeypatch.setattr(trl, "DPOTrainer", Seen)
    out = cleaned(kind)
    asked = {"model_name_or_path": model, "use_cpu": True, "max_steps": 2, "output_dir": tmp_path, "eval_steps": 2,
             "per_device_train_batch_size": 2, "gradient_checkpointing": False, "save_strategy": "no"}  # fmt: skip
    flags = [str(word) for name, value in asked.items() for word in (f"--{name}", value)]
    parser = dpo.make_parser()
    args = parser.parse_args_and_config(
        ["--config", str(out / "recipes/trl_dpo.yaml"), *flags], fail_with_unknown_args=False
    )
    dpo.main(*args)
    trainer = trainers[0]
    assert trainer.state.global_step == 2
    assert all(0 < e["eval_loss"] < 2 for e in trainer.state.log_history if "eval_loss" in e)
    decode = trainer.processing_class.decode
    for data, split in ((trainer.train_dataset, "train"), (trainer.eval_dataset, "test")):
        given = [[decode(r["prompt_ids"] + ids) for ids in ([], r["chosen_ids"], r["rejected_ids"])] for r in data]
        good = 'look {"q": "W"}E' if kind == "calls" else "The W is old.E"
        prompt = "tools: lookE" + PROMPTS["chat"] if kind == "calls" else PROMPTS[kind]
        wanted = expected(words_of(out, split), prompt, good)
        if kind == "calls":  # arguments that came as JSON text stay text
            wanted = [[t if w >= "h" else t.replace('{"q": "W"}'.replace("W", w), json.dumps(json.dumps({"q": w}))) for t in three]
                      for three, w in zip(wanted, words_of(out, split), strict=True)]  # fmt: skip
        assert given == wanted


def test_trl_smooths_labels_as_its_recipe_says(model, tmp_path):
    """A policy that differs from its reference: the loss of a pair of this margin is that of smoothed labels."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    import torch
    from datasets import load_dataset
    from transformers import AutoTokenizer, Qwen2ForCausalLM

    path = write_lines(tmp_path / "in.jsonl", [row("chat", w) for w in WORDS])
    (tmp_path / "smooth.yaml").write_text("stages: [malformed, reverse_pairs: {fraction: 0.2}]\n")
    prefdata.clean(path, tmp_path / "out", str(tmp_path / "smooth.yaml"))
    recipe = yaml.safe_load((tmp_path / "out/recipes/trl_dpo.yaml").read_text())
    batches = ("per_device_train_batch_size", "per_device_eval_batch_size")
    names = ("loss_type", "label_smoothing", "beta", "bf16", *batches)
    args = trl.DPOConfig(**{n: recipe[n] for n in names}, output_dir=str(tmp_path / "run"), use_cpu=True, report_to=[])
    policy, reference = (Qwen2ForCausalLM.from_pretrained(model) for _ in range(2))
    with torch.no_grad():
        policy.lm_head.weight.add_(torch.randn(policy.lm_head.weight.shape, generator=torch.Generator().manual_seed(1)))
    data, margins = load_dataset(str(tmp_path / "out"))["train"], set()
    trainer = trl.DPOTrainer(policy, reference, args, train_dataset=data, eval_dataset={str(i): data.select([i]) for i in range(3)},
                             processing_class=AutoTokenizer.from_pretrained(model))  # fmt: skip
    for one in trainer.eval_dataset.values():
        found = trainer.evaluate(one)
        margin = found["eval_rewards/margins"]
        smoothed = (math.log1p(math.exp(-margin)) + 0.2 * math.log1p(math.exp(margin))) / 1.2
        assert found["eval_loss"] == pytest.approx(smoothed, abs=2e-4)
        assert abs(math.log1p(math.exp(-margin)) - smoothed) > 0.01  # another loss than without
        margins.add(margin)
    assert len(margins) == 3


@pytest.mark.slow
def test_the_trl_command_runs_from_the_folder_where_prefdata_ran(cli, model, tmp_path, monkeypatch):
    pytest.importorskip("trl", reason="TRL is not installed")
    monkeypatch.chdir(tmp_path)
    write_lines("in.jsonl", [row("turns", w) for w in WORDS])
    assert cli("clean", "in.jsonl", "my out", "--split", "test=0.4").code == 0
    head = Path("my out/recipes/trl_dpo.yaml").read_text("utf-8").splitlines()[1]
    assert head == "# trl dpo --config 'my out/recipes/trl_dpo.yaml'"
    command = [Path(sys.executable).with_name("trl"), "dpo", "--config", "my out/recipes/trl_dpo.yaml", "--use_cpu", "true",
               "--max_steps", "2", "--model_name_or_path", model, "--output_dir", "run"]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert Path("run/model.safetensors").is_file()


# ------------------------------------------------------------------------------------------------ the other loaders

LOADERS = {
    "openrlhf": "openrlhf==0.11.2",
    "axolotl": "axolotl==0.19.0 transformers==5.16.1 tokenizers==0.23.1 huggingface-hub==1.17.0 httpx httpcore h11 "
    "datasets==4.8.4 trl==1.9.0 addict art colorama python-dotenv fire termcolor posthog==6.7.11 backoff distro six "
    "nvidia-ml-py==12.560.30 pillow einops",
    "llamafactory": "llamafactory==0.9.5 transformers==5.6.0 tokenizers==0.22.2 huggingface-hub==1.33.0 httpx httpcore "
    "h11 datasets==4.0.0 dill==0.3.8 multiprocess==0.70.16 fsspec==2025.3.0 trl==0.24.0 peft==0.18.1 "
    "accelerate==1.11.0 omegaconf antlr4-python3-runtime==4.9.3 fire termcolor einops",
}


@pytest.fixture(scope="module")
def loader(tmp_path_factory, model):
    """``loader(name, command, cwd)``: the JSON that a command prints which finds this trainer's packages."""
    folders = {}

    def run(name, command, cwd):
        if name not in folders:
            folder = tmp_path_factory.mktemp(name)
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
            ended = subprocess.run([*install, *LOADERS[name].split()], capture_output=True, text=True, timeout=600)
            if ended.returncode:
                pytest.skip(f"{name} cannot be installed: {(ended.stderr.splitlines() or ['?'])[-1]}")
            folders[name] = folder
        env = os.environ | {"PYTHONPATH": str(folders[name]), "OMP_NUM_THREADS": "1", "AXOLOTL_DO_NOT_TRACK": "1"}
        env["PATH"] = f"{cwd}{os.pathsep}{env['PATH']}"
        ended = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=cwd, env=env)
        assert ended.returncode == 0, ended.stderr[-3000:]
        return json.loads(ended.stdout.splitlines()[-1])

    return run


def script(name):
    return Path(__file__).parent / "loaders" / f"{name}_dpo.py"


def both(out, *form, order=list):
    return {
        name: order(expected(words_of(out, split), *form)) for name, split in (("train", "train"), ("held", "test"))
    }


@pytest.mark.slow
def test_axolotl_reads_the_kept_pairs(cleaned, loader, model, tmp_path):
    kinds = ["text", "extra", "chat", "turns", "system", "implicit"]
    recipes = [cleaned(kind) / "recipes/axolotl_dpo.yaml" for kind in kinds]
    found = loader("axolotl", [sys.executable, script("axolotl"), model, *recipes], tmp_path)
    prompts = PROMPTS | dict.fromkeys(("text", "extra"), PROMPTS["chat"])
    for kind, made in zip(kinds, found, strict=True):
        wanted = both(cleaned(kind), prompts[kind], order=sorted)  # it shuffles
        assert {name: sorted(rows) for name, rows in made.items()} == wanted, kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "extra", "turns", "tools", "implicit"])
def test_openrlhf_reads_the_kept_pairs_also_from_a_moved_folder(cleaned, loader, model, tmp_path, kind):
    out = shutil.copytree(cleaned(kind), tmp_path / "moved to" / kind)
    shim(tmp_path, f'exec "{sys.executable}" "{script("openrlhf")}" "{model}" "$@"')
    found = loader("openrlhf", ["sh", out / "recipes/openrlhf_dpo.sh"], tmp_path)
    plain = kind in ("text", "extra")  # it puts a space before the end token of plain text
    prompt = PROMPTS[kind].removeprefix("tools: lookE")  # as its recipe says, it does not read the column
    assert found == both(out, prompt, *(("The W is old. E", "No W here. E") if plain else ()))


@pytest.mark.slow
def test_llamafactory_reads_the_kept_pairs(cleaned, loader, model, tmp_path):
    prompts = dict.fromkeys(("text", "extra", "chat"), LLAMA) | {
        "turns": "Human: Hello W.E\nAssistant:Hi.E\n" + LLAMA,
        "system": "System: Be kind.E\n" + LLAMA,
        "tools": LLAMA_TOOLS + LLAMA + ACTION + "Human: W 7E\nAssistant:",
        "calls": LLAMA_TOOLS + LLAMA,
    }
    prompts["implicit"] = prompts["turns"]
    recipes = [cleaned(kind) / "recipes/llamafactory/dpo.yaml" for kind in prompts]
    found = loader("llamafactory", [sys.executable, script("llamafactory"), model, *recipes], tmp_path)
    for (kind, prompt), made in zip(prompts.items(), found, strict=True):
        good = ACTION if kind == "calls" else "The W is old.E\n"
        assert made == both(cleaned(kind), prompt, good, "No W here.E\n"), kind


# ------------------------------------------------------------------------------------------------ what they say


def shim(folder, line):
    """A ``python`` in this folder that stands for ``python -m MODULE``."""
    (folder / "python").write_text(f"#!/bin/sh\nshift 2\n{line}\n")
    (folder / "python").chmod(0o755)


def sh(recipe, folder):
    env = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(["sh", recipe], capture_output=True, text=True, env=env, timeout=60)


def test_the_openrlhf_script_finds_its_folder_and_refuses_a_name_that_openrlhf_would_take_apart(cleaned, tmp_path):
    shim(tmp_path, 'for a in "$@"; do printf \'%s\\n\' "$a"; done')
    moved = shutil.copytree(cleaned("chat"), tmp_path / "moved 'to'")
    words = sh(moved / "recipes/openrlhf_dpo.sh", tmp_path).stdout.splitlines()
    flags = dict(itertools.pairwise(words))
    assert flags["--data.dataset"] == flags["--eval.dataset"] == str(moved)
    assert flags["--eval.split"] == "test" and "--data.apply_chat_template" in words
    split = shutil.copytree(moved, tmp_path / "a,b")
    ended = sh(split / "recipes/openrlhf_dpo.sh", tmp_path)
    assert ended.returncode == 2 and "rename it" in ended.stderr and not ended.stdout


def test_pairs_that_llamafactory_has_no_place_for_are_counted_in_its_recipe(tmp_path):
    chat = [row("chat", w) for w in WORDS]
    chat[0]["prompt"] = [user("Once."), user("And twice?")]
    chat[1]["chosen"] = [call("lantern"), {"role": "tool", "content": "7"}, assistant("Seven.")]
    chat[2]["chosen"] = [{**call("river"), "content": "I look it up."}]
    prefdata.clean(write_lines(tmp_path / "in.jsonl", chat), tmp_path / "out")
    folder = tmp_path / "out/recipes"
    text = (folder / "llamafactory/dpo.yaml").read_text("utf-8")
    assert "# 3 of 10 pairs of train are left out" in text and yaml.safe_load(text)["dataset"] == "prefs"
    copied = [json.loads(line) for line in (folder / "llamafactory/train.jsonl").read_text("utf-8").splitlines()]
    assert len(copied) == 7 and {tuple(c) for c in copied} == {("conversations", "chosen", "rejected", "system")}
    assert "# - text beside a tool call (1)" in text and "# - turns that do not alternate (1)" in text
    axolotl = (folder / "axolotl_dpo.yaml").read_text("utf-8")
    assert "tool calls" in axolotl and "# 1 of the pairs to train on have an answer of several messages" in axolotl
    assert "several messages" not in (folder / "openrlhf_dpo.sh").read_text("utf-8")


def test_whole_conversations_whose_answers_are_several_messages_are_told(tmp_path):
    rows = [row("chat", w) for w in WORDS]
    rows[0]["chosen"] = [call("harbour"), {"role": "tool", "content": "7"}, assistant("Seven.")]
    path = write_lines(tmp_path / "in.jsonl", rows)
    assert prefdata.clean(path, tmp_path / "out", format="implicit").counts["kept"] == len(WORDS)
    for name in ("axolotl_dpo.yaml", "openrlhf_dpo.sh"):
        assert "# 1 of the pairs to train on" in (tmp_path / "out/recipes" / name).read_text("utf-8"), name
    assert "# 1 of 10 pairs" in (tmp_path / "out/recipes/llamafactory/dpo.yaml").read_text("utf-8")


def test_a_sound_chat_set_has_no_warnings(cleaned):
    for name in ("axolotl_dpo.yaml", "openrlhf_dpo.sh", "llamafactory/dpo.yaml"):
        text = (cleaned("turns") / "recipes" / name).read_text("utf-8")
        assert "left out" not in text and "several" not in text and "does not read" not in text


def test_without_a_test_split_nothing_is_evaluated(tmp_path):
    prefdata.clean(write_lines(tmp_path / "in.jsonl", [row("chat", w) for w in WORDS]), tmp_path / "out")
    for path in (tmp_path / "out/recipes").rglob("*"):
        if path.is_file():
            assert "eval" not in path.read_text("utf-8").replace("model-eval", ""), path


# ------------------------------------------------------------------------------------------------ nothing left


def test_a_run_that_keeps_nothing_shows_what_it_dropped_and_never_as_the_set(cli, tmp_path):
    from datasets import load_dataset

    rows = [{**row("text", w), "chosen": ""} for w in WORDS]
    out = tmp_path / "out"
    assert cli("clean", write_lines(tmp_path / "in.jsonl", rows), out).code == 1
    gone = loaded(out, "dropped")
    assert [(r["word"], r["pd_code"]) for r in gone] == [(w, "empty_completion") for w in WORDS]
    assert not any((out / name).exists() for name in ("data", "recipes", "spotcheck.csv"))
    with pytest.raises(ValueError, match="dropped"):  # which configuration?
        load_dataset(str(out))
    assert "0 preference pairs" in (out / "README.md").read_text("utf-8")
    shown = cli("explain-row", out, "0")
    assert shown.code == 0 and WORDS[0] in shown.out and "empty_completion" in shown.out
