"""``openrlhf_dpo.py MODEL FLAG...``: what OpenRLHF's own loading of preference data makes of a recipe's flags, as JSON.

Run by ``test_recipes.py``, outside its process, with OpenRLHF 0.11.2 on the path. ``train_dpo`` itself imports
DeepSpeed and flash-attention: its argument parser is taken out of it, and packages are entered past their ``__init__``.
"""

import argparse
import ast
import datetime
import importlib.util
import json
import sys
import types
from pathlib import Path


def parsed(home, argv):
    """The arguments as ``python -m openrlhf.cli.train_dpo`` parses them."""
    from openrlhf.utils.config import hierarchize

    tree = ast.parse((home / "cli/train_dpo.py").read_text("utf-8"))
    lines = next(n for n in tree.body if isinstance(n, ast.If)).body
    end = next(i for i, n in enumerate(lines) if isinstance(n, ast.Assign) and "parse_args" in ast.unparse(n))
    known = {"argparse": argparse, "datetime": datetime.datetime}
    exec(compile(ast.Module(lines[:end], []), "train_dpo", "exec"), known)
    return hierarchize(known["parser"].parse_args(argv))


def main(model, *argv):
    home = Path(importlib.util.find_spec("openrlhf").submodule_search_locations[0])
    for name in ("openrlhf", "openrlhf.utils", "openrlhf.datasets"):
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
    from openrlhf.datasets.reward_dataset import RewardDataset
    from openrlhf.datasets.utils import blending_datasets
    from transformers import AutoTokenizer

    args = parsed(home, argv)
    strategy = types.SimpleNamespace(args=args, print=lambda *_: None, is_rank_0=lambda: False)
    tokenizer = AutoTokenizer.from_pretrained(model)
    asked = {"train": (args.data.dataset, args.data.dataset_split)}
    if args.eval.dataset:
        asked["held"] = (args.eval.dataset, args.eval.split)
    out = {}
    for name, (path, split) in asked.items():
        data = blending_datasets(path, None, strategy, dataset_split=split)
        made = RewardDataset(data, tokenizer, args.data.max_len, strategy, args.data.input_template, True, 1)
        out[name] = [
            [tokenizer.decode(c[0][:at]), tokenizer.decode(c[0]), tokenizer.decode(r[0])] for c, _, r, _, at in made
        ]
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
