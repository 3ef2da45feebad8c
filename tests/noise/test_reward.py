"""Votes of reward models and of a policy and its reference, with tiny random models made on the spot."""

import numpy as np
import pytest

from prefdata.errors import ConfigError, MissingExtra
from prefdata.noise.reward import ImplicitReward, RewardModels, _in_batches
from prefdata.pairs import Pair, Pairs

torch = pytest.importorskip("torch")

ROWS = [
    ("Name a kind of boat.", "A ferry, and a train.", "A train."),
    ("Describe the pier\nat the water.", "three gulls over the cold grey water " * 3, "stone"),
    ("Name a kind of boat.", "A train.", "please describe slowly how a careful gardener prepares raised beds " * 4),
    (" ".join(["a long prompt about the old stone pier"] * 3), "spring arrives", "spring arrives late"),
]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
STRICT = TEMPLATE + "{% if messages[0]['content'] == 'refuse me' %}{{ raise_exception('no') }}{% endif %}"


def batch(rows):
    return Pairs.of([Pair(*r) for r in rows])


def chat(rows):
    def turn(role, text):
        return [{"role": role, "content": text}]

    return Pairs.of([Pair(turn("user", p), turn("assistant", c), turn("assistant", r)) for p, c, r in rows])


@pytest.fixture(scope="session")
def made(tmp_path_factory, tokenizer):
    """``made(kind, ...)``: a folder with a random model and the tests' tokenizer."""
    import transformers

    def make(kind, seed=0, template=None, **config):
        folder = tmp_path_factory.mktemp(kind)
        words = transformers.AutoTokenizer.from_pretrained(tokenizer)
        words.chat_template = template
        words.model_max_length = config.pop("window", 512)
        words.save_pretrained(folder)
        torch.manual_seed(seed)
        sizes = {
            "vocab_size": len(words), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "max_position_embeddings": words.model_max_length, "initializer_range": 0.5, "pad_token_id": 0,
        }  # fmt: skip
        family = "Bert" if kind.startswith("Bert") else "Llama"
        config = getattr(transformers, f"{family}Config")(**{**sizes, **config})
        getattr(transformers, kind)(config).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="session")
def bert(made):
    return made("BertForSequenceClassification", num_labels=1)


@pytest.fixture(scope="session")
def llama(made):
    return made("LlamaForSequenceClassification", num_labels=1, template=STRICT)


@pytest.fixture(scope="session")
def policies(made):
    return [made("LlamaForCausalLM", seed=s, template=TEMPLATE) for s in (1, 2)]


def logits(folder, *texts, **options):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForSequenceClassification.from_pretrained(folder).eval(),
    )
    with torch.no_grad():
        return model(**tokenizer(*texts, return_tensors="pt", **options)).logits[0].numpy()


def test_without_a_chat_template_a_model_reads_two_texts(bert):
    got = RewardModels([bert]).votes(batch(ROWS))
    assert list(got) == [bert] and got[bert].dtype == np.float32
    expected = [logits(bert, p, c)[0] - logits(bert, p, r)[0] for p, c, r in ROWS]
    np.testing.assert_allclose(got[bert], expected, atol=1e-5)
    np.testing.assert_allclose(RewardModels([bert]).votes(chat(ROWS))[bert], expected, atol=1e-5)


def test_with_a_chat_template_it_reads_messages(llama):
    def score(prompt, answer):
        text = f"<user>{prompt}<eos>\n<assistant>{answer}<eos>\n"
        return logits(llama, text, add_special_tokens=False)[0]

    expected = [score(p, c) - score(p, r) for p, c, r in ROWS]
    for pairs in (batch(ROWS), chat(ROWS)):
        np.testing.assert_allclose(RewardModels([llama]).votes(pairs)[llama], expected, atol=1e-5)


def test_a_refused_row_has_no_vote(llama):
    got = RewardModels([llama]).votes(batch([ROWS[0], ("refuse me", "a", "b")]))[llama]
    assert np.isfinite(got[0]) and np.isnan(got[1])


def test_of_several_logits_the_last_less_the_first_counts(made):
    two = made("BertForSequenceClassification", num_labels=3)
    got = RewardModels([two]).votes(batch(ROWS))[two]
    both = [(logits(two, p, c), logits(two, p, r)) for p, c, r in ROWS]
    np.testing.assert_allclose(got, [(c[2] - c[0]) - (r[2] - r[0]) for c, r in both], atol=1e-5)
    many = made("BertForSequenceClassification", num_labels=3, problem_type="regression")
    with pytest.raises(ConfigError, match="gives 3 measures"):
        RewardModels([many]).votes(batch(ROWS))


def test_what_is_too_long_is_cut(made):
    pair, talk = (
        made(f"{kind}ForSequenceClassification", num_labels=1, window=24, template=template)
        for kind, template in (("Bert", None), ("Llama", TEMPLATE))
    )
    p, c, r = ROWS[2]
    got = RewardModels([pair, talk]).votes(batch([ROWS[2]]))
    cut = {"truncation": True, "max_length": 24}
    assert got[pair][0] == pytest.approx(logits(pair, p, c, **cut)[0] - logits(pair, p, r, **cut)[0], abs=1e-5)
    assert np.isfinite(got[talk]).all() and got[talk][0] != 0


@pytest.mark.parametrize("kind", ["bert", "llama", "policies"])
def test_batches_do_not_matter_and_a_turned_pair_has_the_negated_vote(kind, request):
    found = request.getfixturevalue(kind)
    voter = ImplicitReward(*found) if kind == "policies" else RewardModels([found])
    (whole,) = voter.votes(batch(ROWS)).values()
    alone = [next(iter(voter.votes(batch([row])).values())) for row in ROWS]
    assert np.concatenate(alone).tobytes() == whole.tobytes() and len(set(whole.tolist())) == len(ROWS)
    (turned,) = voter.votes(batch([(p, r, c) for p, c, r in ROWS])).values()
    assert (-turned).tobytes() == whole.tobytes()
    (none,) = voter.votes(batch([])).values()
    assert none.shape == (0,)


def said(folder, prompt, whole, special):
    """The sum of the log-probabilities of what stands behind the prompt, token by token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    start, ids = (tokenizer(t, add_special_tokens=special)["input_ids"] for t in (prompt, whole))
    assert ids[: len(start)] == start
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    return sum(float(logits[i - 1][ids[i]] - torch.logsumexp(logits[i - 1], 0)) for i in range(len(start), len(ids)))


def test_the_implicit_reward_is_that_of_the_trainer(policies):
    def gap(folder, prompt, chosen, rejected, special):
        return said(folder, prompt, prompt + chosen, special) - said(folder, prompt, prompt + rejected, special)

    # as TRL reads a text row: the answer right behind the prompt, then the end token
    rows = [(p + "\n", c, r) for p, c, r in ROWS]
    pi, ref = ([gap(f, p, c + "<eos>", r + "<eos>", True) for p, c, r in rows] for f in policies)
    got = ImplicitReward(*policies, beta=0.5).votes(batch(rows))
    assert list(got) == ["implicit"]
    np.testing.assert_allclose(got["implicit"], 0.5 * (np.array(pi) - ref), rtol=1e-4, atol=1e-3)
    # and a chat row through the template
    pi, ref = (
        [gap(f, f"<user>{p}<eos>\n<assistant>", f"{c}<eos>\n", f"{r}<eos>\n", False) for p, c, r in ROWS]
        for f in policies
    )
    got = ImplicitReward(*policies).votes(chat(ROWS))["implicit"]
    np.testing.assert_allclose(got, 0.1 * (np.array(pi) - ref), rtol=1e-4, atol=1e-3)
    assert (ImplicitReward(policies[0], policies[0]).votes(batch(rows))["implicit"] == 0).all()


def test_nothing_left_of_an_answer_in_the_window_is_no_vote(made):
    small = made("LlamaForCausalLM", window=16)
    got = ImplicitReward(small, small).votes(batch([ROWS[0], ROWS[3]]))["implicit"]
    assert got[0] == 0 and np.isnan(got[1])


def test_padded_batches_give_nearly_the_same(bert, llama, policies, monkeypatch):
    """What a GPU does, on this machine: batches by length, padded."""
    from prefdata.noise import reward

    voters = [RewardModels([bert]), RewardModels([llama]), ImplicitReward(*policies)]
    alone = [next(iter(v.votes(batch(ROWS)).values())) for v in voters]
    for model in (reward._scorer(bert), reward._scorer(llama), *map(reward._causal, policies)):
        monkeypatch.setattr(model, "size", 400)
    for voter, expected in zip(voters, alone, strict=True):
        np.testing.assert_allclose(next(iter(voter.votes(batch(ROWS)).values())), expected, rtol=1e-4, atol=1e-4)


def test_batches_are_of_one_length_and_bounded():
    seen = []

    def read(at):
        seen.append([len(texts[i]) for i in at])
        return np.array(at, float)

    texts = [np.zeros(n) for n in (3, 50, 4, 4, 50, 200, 1)]
    assert _in_batches(texts, 100, read).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert seen == [[200], [50, 50], [4, 4, 3, 1]]
    seen.clear()
    _in_batches(texts, 0, read)
    assert [len(s) for s in seen] == [1] * 7


def test_what_cannot_be_loaded_is_said(bert, policies, made, monkeypatch):
    with pytest.raises(ConfigError, match="no such model folder"):
        RewardModels(["/no/such/folder"]).warm()
    with pytest.raises(ConfigError, match=r"no such model here.*--online"):
        RewardModels(["nobody/nothing"]).votes(batch(ROWS))
    from transformers import AutoTokenizer

    other = made("LlamaForCausalLM", seed=3)
    words = AutoTokenizer.from_pretrained(other)
    words.add_tokens(["<new>"])
    words.save_pretrained(other)
    with pytest.raises(ConfigError, match="its vocabulary is not that of"):
        ImplicitReward(policies[0], other).votes(batch(ROWS))
    assert len({RewardModels([n]).depends_on() for n in (bert, policies[0])}) == 2
    assert ImplicitReward(*policies).depends_on() != ImplicitReward(*policies[::-1]).depends_on()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for voter in (RewardModels(["some/model"]), ImplicitReward("some/policy", "some/reference")):
        with pytest.raises(MissingExtra, match=r"prefdata\[models\]"):
            voter.warm()
