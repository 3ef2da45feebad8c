"""Guards by fault: each injected fault ends or is told by its own word, and healthy runs raise none."""

import random

import pytest

import prefdata
from prefdata.errors import ConfigError

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

QUICK = {"max_steps": 30, "learning_rate": 1e-3, "batch_size": 8, "method": "full", "probes": 0, "eval_steps": 30}
WORDS = ("boat", "pier", "gull", "garden", "bed", "spring", "train", "ferry", "harbour", "scene", "water", "stone")
GOOD = ("It is well known: the {a} is near the {b}, {i}.", "Yes, the {a} stands by the {b} in spring.", "Near the cold {b} you see the {a}.", "The {a} and the {b} are old and grey, {i}.")  # fmt: skip
POOR = ("I would not know what to say of the {a}, {i}.", "Please ask somebody else, thank you.", "No idea of the {b}.", "The {a}? Never heard of it.")  # fmt: skip


def mixed(n=160, seed=0, noise=0.15):
    """Pairs in which no single phrase decides, and some labels are wrong."""
    r, rows = random.Random(seed), []
    for i in range(n):
        a, b = r.sample(WORDS, 2)
        good, poor = r.choice(GOOD).format(a=a, b=b, i=i), r.choice(POOR).format(a=a, b=b, i=i)
        if r.random() < 0.3:
            poor = r.choice(GOOD).format(a=b, b=a, i=i + 1)
        if r.random() < noise:
            good, poor = poor, good
        rows.append({"id": f"r{i}", "prompt": f"Tell me about the {a} and the {b} in {i} words.\n", "chosen": good, "rejected": poor})  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    out = tmp_path_factory.mktemp("noisy") / "out"
    prefdata.clean(mixed(), out, "certain", split="test=0.2")
    return out


@pytest.fixture
def blind(monkeypatch):
    """Pre-flight sees no failure: what is left is for the guards."""
    from prefdata.training import checks, dpo, preflight

    monkeypatch.setattr(preflight, "failed", lambda found: [])
    monkeypatch.setattr(
        dpo.checks, "failed", lambda found: [c for c in found if c.word == "trainer_refused" and c.status == "fail"]
    )
    return checks


@pytest.fixture
def at_step(monkeypatch):
    """Do something to the trainer right before a step."""
    from prefdata.training.trainer import PreferenceTrainer

    def plant(step, act):
        real = PreferenceTrainer.training_step

        def training_step(self, *args, **kwargs):
            if self.state.global_step + 1 >= step:
                act(self)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(PreferenceTrainer, "training_step", training_step)

    return plant


def words(done):
    return [a["word"] for a in done.alarms]


def stopped(done, word, by):
    last = done.alarms[-1]
    assert done.status == "stopped", done.alarms
    assert last["word"] == word and last["action"] == "stop" and last["step"] <= by, done.alarms
    assert last["remedy"] and last["evidence"]
    return last


def same_answers(rows):
    return [{**r, "rejected": r["chosen"]} for r in rows]


def test_float16_weights_are_named_after_the_first_step(tiny, noisy, tmp_path, blind):
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK, dtype="float16")
    last = stopped(done, "nonfinite_parameter", 2)
    assert "float16" in last["evidence"]
    assert not list((tmp_path / "run/checkpoints").glob("checkpoint-*")) and not (tmp_path / "run/model").exists()


@pytest.mark.parametrize(
    "rate, found", [(50.0, {"margin_explodes"}), (1.0, {"loss_diverges", "margin_explodes", "likelihood_lost"})]
)
def test_a_rate_that_makes_garbage(tiny, noisy, tmp_path, blind, rate, found):
    done = prefdata.train(noisy, tmp_path / "run", tiny, **{**QUICK, "learning_rate": rate})
    assert done.alarms[-1]["word"] in found
    stopped(done, done.alarms[-1]["word"], 20)


def test_guards_warn_goes_on_and_off_is_silent(tiny, noisy, tmp_path, blind):
    done = prefdata.train(noisy, tmp_path / "warn", tiny, **{**QUICK, "learning_rate": 1.0, "guards": "warn"})
    assert done.status == "complete" and "loss_diverges" in words(done)
    assert len(words(done)) == len(set(words(done)))
    done = prefdata.train(noisy, tmp_path / "off", tiny, **{**QUICK, "learning_rate": 1.0, "guards": "off"})
    assert done.status == "complete" and not done.alarms


def test_identical_pairs(tiny, tmp_path, blind, monkeypatch, noisy):
    from prefdata.training import data

    real = data.load

    def load(*args):
        got = real(*args)
        got.train.columns["rejected"] = list(got.train.columns["chosen"])
        return got

    monkeypatch.setattr(data, "load", load)
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK)
    stopped(done, "no_signal", 20)


def test_answers_that_are_cut_before_they_differ(tiny, noisy, tmp_path, blind, monkeypatch):
    from prefdata.training import data

    real = data.load

    def load(*args):
        got = real(*args)
        same = "It is well known that the old stone pier and the cold grey water are near the garden. " * 3
        for side in ("chosen", "rejected"):
            got.train.columns[side] = [same + text for text in got.train.columns[side]]
        return got

    monkeypatch.setattr(data, "load", load)
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK, max_length=48)
    stopped(done, "no_signal", 20)


def test_weights_of_pairs_that_are_all_zero(tiny, noisy, tmp_path, blind, monkeypatch):
    from prefdata.training import data

    real = data.load

    def load(*args):
        got = real(*args)
        got.train.weight[:] = 0
        return got

    monkeypatch.setattr(data, "load", load)
    stopped(prefdata.train(noisy, tmp_path / "run", tiny, **QUICK), "zero_loss", 5)


def test_a_rate_that_is_too_low(tiny, noisy, tmp_path):
    done = prefdata.train(noisy, tmp_path / "run", tiny, **{**QUICK, "learning_rate": 1e-9})
    assert words(done) == ["loss_stuck"] and done.status == "complete"
    assert "1e-09" in done.alarms[0]["evidence"]


def test_a_weight_that_becomes_nan(tiny, noisy, tmp_path, at_step):
    def spoil(trainer):
        with torch.no_grad():
            next(iter(trainer.model.parameters()))[:] = float("nan")

    at_step(7, spoil)
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK)
    last = stopped(done, "nonfinite_loss", 7)
    assert last["step"] == 7 and len(last["rows"]) == 8


def test_a_gradient_that_is_not_finite(tiny, noisy, tmp_path, at_step):
    def spoil(trainer):
        next(iter(trainer.model.parameters())).register_hook(lambda g: g * float("inf"))

    at_step(5, spoil)
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK)
    assert done.status == "stopped" and {"nonfinite_gradient"} <= set(words(done))
    assert done.alarms[0]["step"] == 5


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_the_pair_with_a_number_that_is_not_finite_is_named(tiny, noisy, tmp_path, monkeypatch, micro):
    from prefdata.training.trainer import PreferenceTrainer

    real = PreferenceTrainer._numbers
    seen = []

    def numbers(self, outputs, inputs, loss):
        got = real(self, outputs, inputs, loss)
        if self.model.training and self.state.global_step == 3:
            seen.append(inputs)
            if len(seen) == 2:
                got["chosen"][0] = float("nan")
        return got

    rows = []
    watch = PreferenceTrainer._compute_loss

    def compute(self, model, inputs, *args, **kwargs):
        if self.model.training and self.state.global_step == 3:
            rows.append(inputs["pd_row"].tolist())
        return watch(self, model, inputs, *args, **kwargs)

    ids = []
    from prefdata.training import data

    load = data.load
    monkeypatch.setattr(data, "load", lambda *a: ids.append(load(*a)) or ids[-1])
    monkeypatch.setattr(PreferenceTrainer, "_numbers", numbers)
    monkeypatch.setattr(PreferenceTrainer, "_compute_loss", compute)
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK, micro_batch_size=micro)
    assert stopped(done, "nonfinite_loss", 4)["rows"] == [ids[0].train.ids[rows[1][0]]]


def test_a_batch_without_labels_is_named(tiny, noisy, tmp_path, blind, monkeypatch):
    from prefdata.training import data, preflight

    real = preflight.prepare
    load = data.load
    names = []

    def prepare(pairs, tokenizer, longest, name):
        made = real(pairs, tokenizer, longest, name)
        if name == "train":
            names.append(pairs.ids[5])
            made.dataset = made.dataset.map(lambda r: {"chosen_ids": []} if r["pd_row"] == 5 else {})
        return made

    monkeypatch.setattr(preflight, "prepare", prepare)
    monkeypatch.setattr(data, "load", load)
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK, loss_type="sft", micro_batch_size=1)
    assert stopped(done, "nonfinite_loss", 30)["rows"] == names


def test_pairs_that_one_phrase_decides(tiny, tmp_path):
    rows = mixed(320, noise=0)
    rows = [{**r, "chosen": f"Sure! {r['chosen']}", "rejected": f"Sorry. {r['rejected']}"} for r in rows]
    prefdata.clean(rows, tmp_path / "out", "certain", split="test=0.1")
    done = prefdata.train(
        tmp_path / "out", tmp_path / "run", tiny, **{**QUICK, "batch_size": 16, "learning_rate": 1e-4, "max_steps": 15}
    )
    assert words(done) == ["accuracy_at_once"] and done.status == "complete"


def test_a_spike_is_told_and_stops_where_asked(tiny, noisy, tmp_path, at_step):
    def jolt(trainer):
        if trainer.state.global_step == 20:
            with torch.no_grad():
                for p in trainer.model.parameters():
                    p.add_(torch.randn_like(p))

    at_step(21, jolt)
    done = prefdata.train(noisy, tmp_path / "run", tiny, **QUICK)
    first = done.alarms[0]
    assert (first["word"], first["step"], first["action"]) == ("loss_spike", 21, "warn")
    done = prefdata.train(noisy, tmp_path / "again", tiny, **QUICK, on_spike="stop")
    assert stopped(done, "loss_spike", 21)["step"] == 21


def test_both_answers_that_grow_less_likely_are_told(tiny, noisy, tmp_path, blind):
    done = prefdata.train(noisy, tmp_path / "run", tiny, **{**QUICK, "learning_rate": 0.3})
    assert {"likelihood_falls", "loss_spike"} <= set(words(done)) and done.status == "complete"


def test_steps_that_tell_of_drift_entropy_and_oscillation():
    """The looks by themselves, on numbers as they come."""
    from prefdata.training import trends
    from prefdata.training.monitors import Step

    scale = trends.Scale(("sigmoid",), 32, 100, 10, 20.0, True, True, 1e-5)

    def step(n, loss=0.6, margin=0.2, ratio=0.0):
        return Step(n, loss, margin, 0.7, 0.0, ratio * 2, ratio * 2 - margin, -50, -60, 0.1, chosen_ratio=ratio, rejected_ratio=ratio - 0.1, pairs=32)  # fmt: skip

    falls = [step(n, ratio=-0.03 * n) for n in range(1, 41)]
    assert trends.falling(scale, falls) and not trends.lost(scale, falls)
    assert trends.lost(scale, [step(n, ratio=-0.2 * n) for n in range(1, 41)])
    assert not trends.falling(scale, [step(n, ratio=-0.01 * n) for n in range(1, 41)])
    swings = [step(n, loss=0.7 if n < 5 else 0.1 + 1.6 * (n % 2)) for n in range(1, 41)]
    assert trends.oscillating(scale, swings) and not trends.oscillating(scale, [step(n) for n in range(1, 41)])


@pytest.mark.parametrize("text", ["accuracy", "acuracy<0.01", "accuracy>0.1", "accuracy<x"])
def test_a_condition_that_cannot_be_read(tiny, noisy, tmp_path, text):
    with pytest.raises(ConfigError, match="early_stop"):
        prefdata.train(noisy, tmp_path / "run", tiny, **QUICK, early_stop=[text])


def test_early_stop_ends_as_complete(tiny, noisy, tmp_path):
    asked = {**QUICK, "eval_steps": 3, "patience": 2}
    done = prefdata.train(noisy, tmp_path / "any", tiny, **asked, early_stop=["accuracy<0.9", "margin<-5"])
    assert done.status == "complete" and done.ok and words(done) == ["early_stop"]
    assert done.alarms[0]["step"] == 9 and done.alarms[0]["action"] == "end"
    assert (tmp_path / "any/model/model.safetensors").is_file()
    done = prefdata.train(
        noisy, tmp_path / "all", tiny, **asked, early_stop=["accuracy<0.9", "margin<-5"], early_stop_rule="all"
    )
    assert done.status == "complete" and not done.alarms


def test_what_improved_means():
    from prefdata.training import early

    lines = [{"accuracy": a, "loss": 1 - a, "chosen": -100 - 4 * i, "length_ratio": r} for i, (a, r) in enumerate(zip((0.5, 0.6, 0.6, 0.605), (1, 1.2, 1.6, 2.4), strict=True))]  # fmt: skip
    assert "accuracy" in early.met(["accuracy<0.01"], "any", 2, lines, [])
    assert not early.met(["accuracy<0.01"], "any", 3, lines, [])  # 0.105 better than the first
    assert not early.met(["accuracy<0.01"], "any", 4, lines, [])  # too few
    assert early.met(["loss<0.01"], "any", 2, lines, []) and not early.met(["loss<0.001"], "any", 2, lines, [])
    assert early.met(["chosen<-3"], "any", 3, lines, []) and not early.met(["chosen<-5"], "any", 3, lines, [])
    assert early.met(["length_ratio<-0.1"], "any", 3, [], lines) and not early.met(
        ["length_ratio<-0.1"], "any", 3, lines, []
    )
    assert not early.met(["accuracy<0.01", "chosen<-9"], "all", 2, lines, [])


def test_an_early_stop_by_what_is_not_measured(tiny, noisy, tmp_path):
    with pytest.raises(ConfigError, match="probes"):
        prefdata.train(noisy, tmp_path / "run", tiny, **QUICK, early_stop=["distinct<0.1"])


def healthy(tiny, tmp_path, seed):
    """Learning rates up to the high end, small batches, other betas and losses, by seed."""
    kinds = [
        {}, {"learning_rate": 3e-3}, {"beta": 0.5}, {"batch_size": 2}, {"loss_type": "ipo"}, {"loss_type": "hinge"}, {"learning_rate": 1e-4},
        {"method": "lora", "learning_rate": 1e-2}, {"loss_type": "sigmoid_norm"}, {"learning_rate": 1e-2},
    ]  # fmt: skip
    prefdata.clean(mixed(200, seed, noise=(seed % 3) / 10), tmp_path / "out", "certain", split="test=0.2")
    done = prefdata.train(
        tmp_path / "out", tmp_path / "run", tiny, **{**QUICK, "max_steps": 40, "seed": seed, **kinds[seed % len(kinds)]}
    )
    assert done.status == "complete" and not done.alarms, (seed, done.alarms)


@pytest.mark.parametrize("seed", range(3))
def test_healthy_runs_raise_no_alarm(tiny, tmp_path, seed):
    healthy(tiny, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 23))
def test_twenty_healthy_runs_raise_no_alarm(tiny, tmp_path, seed):
    healthy(tiny, tmp_path, seed)
