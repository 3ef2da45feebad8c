"""``llamafactory_dpo.py MODEL RECIPE...``: what LLaMA-Factory's own loading of pairs makes of recipes, as JSON.

Run by ``test_recipes.py``, outside its process, with LLaMA-Factory 0.9.5 and the ``datasets`` it allows on the path.
"""

import json
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

for sound in ("torchaudio", "av"):  # imported by its readers of sound and films, which no pair here has
    sys.modules[sound] = types.ModuleType(sound)
    sys.modules[sound].__spec__ = ModuleSpec(sound, None)
sys.modules["kernels"] = (
    None  # that of the newest transformers is beside it, and the one that LLaMA-Factory allows cannot read it
)


def main(model, *recipes):
    import yaml
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from transformers import AutoTokenizer

    names, out = {"train": "train_dataset", "held": "eval_dataset"}, []
    for recipe in recipes:
        asked = yaml.safe_load(Path(recipe).read_text("utf-8"))
        asked |= {"model_name_or_path": model, "use_cpu": True, "report_to": "none", "overwrite_cache": True}
        model_args, data_args, training_args, _, _ = get_train_args(asked)
        tokenizer = AutoTokenizer.from_pretrained(model)
        template = get_template_and_fix_tokenizer(tokenizer, data_args)
        made = get_dataset(template, model_args, data_args, training_args, stage="rm", tokenizer=tokenizer)
        out.append({n: [found(tokenizer, r) for r in made[k]] for n, k in names.items() if made.get(k)})
    print(json.dumps(out))


def found(tokenizer, row):
    at = sum(label == -100 for label in row["chosen_labels"])
    ids = row["chosen_input_ids"][:at], row["chosen_input_ids"], row["rejected_input_ids"]
    return [tokenizer.decode(i) for i in ids]


if __name__ == "__main__":
    main(*sys.argv[1:])
