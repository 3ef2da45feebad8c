"""The evaluation: intervals, what it counts, what it says where there is no number; and the forgetting probe."""

import math

import numpy as np
import pytest

from prefdata.errors import ConfigError
from prefdata.training import evaluate, neutral, settings


def trained(cleaned, tiny, tmp_path, **more):
    from prefdata.training import dpo

    asked = {
        "model": tiny,
        "method": "full",
        "learning_rate": 1e-3,
        "max_steps": 8,
        "batch_size": 8,
        "micro_batch_size": 8,
    }
    return dpo.train(cleaned, tmp_path / "run", settings.make({**asked, "probes": 0, "eval_steps": 8, **more}))


def numbers(margins):
    """Log-probabilities of pairs whose reward margins, with beta 0.1, are these."""
    n = len(margins)
    chosen = np.asarray(margins, float) / 0.1 - 50
    return {
        "chosen": chosen,
        "rejected": np.full(n, -52.0),
        "ref_chosen": np.full(n, -50.0),
        "ref_rejected": np.full(n, -52.0),
    }


def test_a_tie_is_no_hit_and_bounds_hold_the_share():
    got = evaluate.figures(numbers([1.0, 1.0, 0.0, -1.0]), 0.1)
    assert (got["accuracy"], got["ties"], got["margin"]) == (0.5, 0.25, 0.25)
    assert got["accuracy_low"] == pytest.approx(0.15004, abs=1e-4)  # Wilson's interval of 2 in 4
    assert got["accuracy_high"] == pytest.approx(0.84996, abs=1e-4)


def test_the_interval_of_the_margin_covers_the_mean_in_95_of_100_draws():
    draw = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        got = evaluate.figures(numbers(draw.normal(0.3, 1.0, 15)), 0.1)
        inside += got["margin_low"] <= 0.3 <= got["margin_high"]
    assert 930 <= inside <= 970


def test_one_pair_has_a_margin_without_bounds():
    assert evaluate.mean_and_half(np.array([2.0])) == (2.0, math.inf)


def test_before_training_all_is_a_tie_and_after_it_the_held_out_pairs_are_told_apart(cleaned, tiny, tmp_path):
    done = trained(cleaned, tiny, tmp_path)
    before, after = done.before, done.after
    assert (before["pairs"], before["margin"], before["ties"], before["accuracy"]) == (24, 0.0, 1.0, 0.0)
    assert before["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert after["margin_low"] > 0 and after["accuracy"] > 0.9 and after["ties"] == 0
    assert after["reference_accuracy"] > before["reference_accuracy"]  # the model itself has turned to the chosen ones
    assert before["length_accuracy"] == after["length_accuracy"]
    assert after["forgetting"]["tokens"] == before["forgetting"]["tokens"] > 500
    assert before["forgetting"]["perplexity"] > 1


def case_of(tiny):
    """Just enough of a run for the probe."""
    from types import SimpleNamespace

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from prefdata.training import models

    trainer = SimpleNamespace(
        model=AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32),
        accelerator=SimpleNamespace(device="cpu"), compute_loss_context_manager=torch.no_grad,
    )  # fmt: skip
    return SimpleNamespace(
        trainer=trainer, facts=models.facts(tiny), tokenizer=AutoTokenizer.from_pretrained(tiny), settings=settings.make({"model": tiny})
    )  # fmt: skip


def test_the_perplexity_of_neutral_text_rises_when_a_model_is_broken_and_is_none_when_it_is_no_number(tiny):
    import torch

    case = case_of(tiny)
    fine = neutral.forgetting(case)
    with torch.no_grad():
        case.trainer.model.lm_head.weight.mul_(50)
    broken = neutral.forgetting(case)
    assert broken["perplexity"] > 2 * fine["perplexity"]
    with torch.no_grad():
        case.trainer.model.lm_head.weight.fill_(math.nan)
    assert neutral.forgetting(case) == {"perplexity": None, "tokens": fine["tokens"]}


def test_texts_come_from_a_file_of_paragraphs_or_of_json_lines(tmp_path):
    (tmp_path / "a.txt").write_text("One\nparagraph.\n\nAnother.\n")
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n{"text": "Two."}\n')
    assert neutral.texts(str(tmp_path / "a.txt")) == ["One paragraph.", "Another."]
    assert neutral.texts(str(tmp_path / "a.jsonl")) == ["One.", "Two."]
    assert len(neutral.texts(None)) > 5


@pytest.mark.parametrize(("name", "held"), [("b.jsonl", '{"txt": 1}\n'), ("b.txt", "\n \n"), ("gone.txt", None)])
def test_a_file_without_texts_is_named(tmp_path, name, held):
    if held is not None:
        (tmp_path / name).write_text(held)
    with pytest.raises(ConfigError, match="forgetting"):
        neutral.texts(str(tmp_path / name))


def test_without_held_out_pairs_only_the_probe_is_made(cleaned, tiny, tmp_path):
    import shutil

    shutil.copytree(cleaned, tmp_path / "all")
    shutil.rmtree(tmp_path / "all/data/test")
    done = trained(tmp_path / "all", tiny, tmp_path, eval_share=0.0, max_steps=1)
    assert set(done.after) == {"forgetting"}
