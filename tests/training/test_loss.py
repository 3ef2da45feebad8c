"""The loss of pairs that count differently: TRL's own where all count alike, and what the formula says where they do not."""

import copy

import pytest
import torch

LOSSES = ("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm")  # fmt: skip
N = 5


@pytest.fixture(scope="module")
def world(tiny, tmp_path_factory):
    """A plain TRL trainer and ours, with the same weights, and a batch; the policy has moved away from its reference."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    from prefdata.training.trainer import Collator, PreferenceTrainer

    rows = [
        {"prompt": f"Tell me about the pier in {i} words.\n", "chosen": f"It is well known: the pier is near the water, {i}." + i * " And cold.",
         "rejected": f"I would not know what to say of {i}."}
        for i in range(N)
    ]  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    policy = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.05 * torch.randn_like(p))

    def made(kind, **more):
        args = DPOConfig(str(tmp_path_factory.mktemp("trl")), bf16=False, use_cpu=True, report_to="none", activation_checkpointing=False,
                         label_smoothing=0.1)  # fmt: skip
        reference = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
        return kind(copy.deepcopy(policy), reference, args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, **more)  # fmt: skip

    collator = Collator(pad_token_id=tokenizer.pad_token_id, max_length=512)
    plain, ours = made(DPOTrainer), made(PreferenceTrainer, data_collator=collator)
    batch = [plain.train_dataset[i] for i in range(N)]
    return plain, ours, batch


def asked(trainer, batch, loss, weight=None, flip=None, weights=(1.0,)):
    """Loss and gradients of a batch."""
    names = [loss] if isinstance(loss, str) else list(loss)
    trainer.loss_types, trainer.loss_weights = (
        names,
        list(weights) if len(names) == len(weights) else [1.0] * len(names),
    )
    rows = [dict(r) for r in batch]
    if weight is not None:
        for i, r in enumerate(rows):
            r |= {"pd_row": i, "pd_weight": float(weight[i]), "pd_flip": float((flip or [0.0] * len(rows))[i])}
    inputs = trainer._prepare_inputs(trainer.data_collator(rows))
    trainer.model.train()
    trainer.model.zero_grad()
    got = trainer.compute_loss(trainer.model, inputs)
    got.backward()
    grads = torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in trainer.model.parameters()])  # fmt: skip
    return float(got.detach()), grads.clone()


def same(a, b, within=1e-6):
    assert a[0] == pytest.approx(b[0], rel=within, abs=within)
    assert float((a[1] - b[1]).abs().max()) <= within * max(1.0, float(b[1].abs().max()))


def turned(batch):
    return [{**r, "chosen_ids": r["rejected_ids"], "rejected_ids": r["chosen_ids"]} for r in batch]


@pytest.mark.parametrize("loss", LOSSES)
def test_pairs_that_count_alike_have_the_loss_of_trl(world, loss):
    plain, ours, batch = world
    wanted = asked(plain, batch, loss)
    same(asked(ours, batch, loss, [1.0] * N), wanted)
    half = asked(ours, batch, loss, [0.5] * N)  # through the weighted way
    same((2 * half[0], 2 * half[1]), wanted, 3e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_label_that_is_surely_wrong_is_a_pair_turned_round(world, loss):
    plain, ours, batch = world
    same(asked(ours, batch, loss, [1.0] * N, [1.0] * N), asked(plain, turned(batch), loss), 3e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_is_the_mean_of_what_each_pair_comes_to(world, loss):
    plain, ours, batch = world
    weight, flip = [1.0, 0.0, 2.0, 0.3, 1.0], [0.0, 0.2, 0.4, 0.1, 1.0]
    got = asked(ours, batch, loss, weight, flip)
    value, grads = 0.0, 0.0
    if loss == "sft":  # a mean over tokens, of the answers that are likelier the better ones
        sides = [r["rejected_ids"] if p > 0.5 else r["chosen_ids"] for r, p in zip(batch, flip, strict=True)]
        tokens = sum(map(len, sides))
        flip = [float(p > 0.5) for p in flip]
        weight = [w * N * len(s) / tokens for w, s in zip(weight, sides, strict=True)]
    for r, w, p in zip(batch, weight, flip, strict=True):
        there, back = asked(plain, [r], loss), asked(plain, turned([r]), loss)
        value += w * ((1 - p) * there[0] + p * back[0]) / N
        grads = grads + w * ((1 - p) * there[1] + p * back[1]) / N
    same(got, (value, grads), 1e-5)


def test_a_constant_doubt_is_the_loss_of_cdpo(world):
    _, ours, batch = world
    p = 0.2
    got = asked(ours, batch, "sigmoid", [1.0] * N, [p] * N)
    heard = []
    ours.watch = lambda rows, numbers, training: heard.append(numbers)
    asked(ours, batch, "sigmoid", [1.0] * N, [p] * N)
    ours.watch = None
    n = heard[0]
    d = ours.beta * ((n["chosen"] - n["ref_chosen"]) - (n["rejected"] - n["ref_rejected"]))
    closed = (1 - p) * -torch.nn.functional.logsigmoid(d) + p * -torch.nn.functional.logsigmoid(-d)
    assert got[0] == pytest.approx(float(closed.mean()), abs=1e-6)
    ignored = asked(ours, batch, "sigmoid", [1.0] * N)
    assert abs(ignored[0] - got[0]) > 1e-3


@pytest.mark.parametrize("loss", [*LOSSES, ("sigmoid", "sft")])
def test_a_pair_of_weight_nothing_has_no_gradient(world, loss):
    _, ours, batch = world
    weights = (1.0, 0.3)
    assert not asked(ours, batch, loss, [0.0] * N, [0.3] * N, weights)[1].any()
    other = [dict(r) for r in batch]
    if loss != "sft" and loss != ("sigmoid", "sft"):  # whose mean is over tokens
        other[1] = {**batch[1], "rejected_ids": batch[1]["rejected_ids"][:3]}
        weight = [1.0, 0.0, 1.0, 0.5, 1.0]
        same(asked(ours, batch, loss, weight, None), asked(ours, other, loss, weight, None), 1e-7)


def test_losses_that_are_added_up_each_have_their_weight(world):
    plain, ours, batch = world
    wanted = asked(plain, batch, ("sigmoid", "sft"), weights=(1.0, 0.25))
    got = asked(ours, batch, ("sigmoid", "sft"), [0.5] * N, weights=(1.0, 0.25))
    same((2 * got[0], 2 * got[1]), wanted, 3e-6)


def test_held_out_pairs_count_alike(world):
    plain, ours, batch = world
    wanted = asked(plain, batch, "sigmoid")[0]
    rows = [{**r, "pd_row": i, "pd_weight": 3.0, "pd_flip": 1.0} for i, r in enumerate(batch)]
    ours.loss_types, ours.loss_weights = ["sigmoid"], [1.0]
    ours.model.eval()
    with torch.no_grad():
        got = float(ours.compute_loss(ours.model, ours._prepare_inputs(ours.data_collator(rows))))
    assert got == pytest.approx(wanted, abs=1e-6)


def test_micro_batches_of_unequal_size_are_one_batch(world):
    """Five pairs in micro-batches of three and two, through Trainer's own loop."""
    from prefdata.training.trainer import PreferenceTrainer

    _, ours, batch = world
    ours.loss_types, ours.loss_weights = ["sigmoid"], [1.0]
    weight, flip = [1.0, 0.5, 2.0, 0.3, 1.0], [0.0, 0.2, 0.4, 0.1, 1.0]
    rows = [{**r, "pd_row": i, "pd_weight": weight[i], "pd_flip": flip[i]} for i, r in enumerate(batch)]
    found = []
    for parts in ([rows], [rows[:3], rows[3:]], [rows[:1], rows[1:]]):
        ours.model.zero_grad()
        samples, items = PreferenceTrainer.get_batch_samples(ours, iter([ours.data_collator(p) for p in parts]), len(parts), "cpu")  # fmt: skip
        ours.current_gradient_accumulation_steps = len(parts)
        losses = [float(ours.training_step(ours.model, s, items)) for s in samples]
        found.append((sum(losses), torch.cat([p.grad.flatten() for p in ours.model.parameters()]).clone()))
    ours._pairs = None
    same(found[1], found[0], 1e-5)
    same(found[2], found[0], 1e-5)
