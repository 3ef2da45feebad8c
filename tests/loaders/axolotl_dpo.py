"""``axolotl_dpo.py MODEL RECIPE...``: what axolotl's own loading of preference data makes of recipes, as JSON.

Run by ``test_recipes.py``, outside its process, with axolotl 0.19.0 on the path.
"""

import json
import sys
from pathlib import Path


def main(model, *recipes):
    import yaml
    from axolotl.utils.config import validate_config
    from axolotl.utils.data.rl import prepare_preference_datasets
    from axolotl.utils.dict import DictDefault
    from transformers import AutoTokenizer

    tokenizer, out = AutoTokenizer.from_pretrained(model), []
    for i, recipe in enumerate(recipes):
        asked = yaml.safe_load(Path(recipe).read_text("utf-8"))
        asked |= {"base_model": model, "dataset_prepared_path": f"prepared-{i}", "dataset_num_proc": 1}
        cfg = validate_config(DictDefault(asked))
        cfg.tokenizer_config = cfg.base_model
        train, held = prepare_preference_datasets(cfg, tokenizer)
        out.append({name: found(data) for name, data in (("train", train), ("held", held)) if data is not None})
    print(json.dumps(out))


def found(data):
    return [[r["prompt"], r["prompt"] + r["chosen"], r["prompt"] + r["rejected"]] for r in data]


if __name__ == "__main__":  # its pool starts new interpreters, which import this file
    main(*sys.argv[1:])
