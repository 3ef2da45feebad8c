"""Features of a sentence encoder and a causal language model, with tiny random models made on the spot."""

import shutil

import numpy as np
import pytest

from prefdata.errors import ConfigError, MissingExtra
from prefdata.noise.strong import BEGIN, STATISTICS, Strong
from prefdata.pairs import Pair, Pairs

torch = pytest.importorskip("torch")

ROWS = [
    ("Name a kind of boat.", "A ferry, and a train.", "A train."),
    ("Describe the pier\nat the water.", "three gulls over the cold grey water " * 3, "stone"),
    ("Name a kind of boat.", "A boat.", "please describe slowly how a careful gardener prepares raised beds " * 4),
    (" ".join(["a long prompt about the old stone pier"] * 9), "spring arrives", "spring arrives late"),
]


@pytest.fixture(scope="session")
def lm(tmp_path_factory, tokenizer):
    """A folder with a random Llama of three layers and the tests' tokenizer."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("lm")
    words = AutoTokenizer.from_pretrained(tokenizer)
    words.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
        max_position_embeddings=512, initializer_range=0.5,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def batch(rows):
    return Pairs.of([Pair(*r) for r in rows])


def plain(folder, prompt, answer, layer, prompt_tokens=96, answer_tokens=112, before="<eos>", after="\n\n"):
    """The statistics and the pooled layer, token by token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    before, x, after, y = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (before, prompt, after, answer))
    x, y = x[-prompt_tokens:], y[:answer_tokens]

    def said(head):
        out = []
        for i, token in enumerate(y):
            with torch.no_grad():
                logits = model(torch.tensor([head + y[:i]])).logits[0, -1]
            out.append(float(logits[token] - torch.logsumexp(logits, 0)))
        return np.array(out)

    given, alone = said(before + x + after), said(before + after)
    pmi = given - alone
    with torch.no_grad():
        states = model(torch.tensor([before + x + after + y]), output_hidden_states=True).hidden_states[layer]
    pooled = states[0, -len(y) :].numpy().mean(0)
    values = [given.sum(), given.mean(), given.min(), given.std(), alone.sum(), alone.mean()]
    values += [pmi.sum(), pmi.mean(), pmi[:BEGIN].mean(), (pmi > 0).mean()]
    return np.array(values), pooled / np.sqrt((pooled**2).sum())


def test_statistics_and_the_hidden_layer_are_those_of_a_plain_computation(lm):
    got = Strong(None, lm).features(batch(ROWS))
    assert set(got) == {"statistics", "hidden"} and {v.dtype for v in got.values()} == {np.dtype(np.float32)}
    assert got["statistics"].shape == (4, len(STATISTICS)) and got["hidden"].shape == (4, 16)
    for i, (p, c, r) in enumerate(ROWS):
        (a, u), (b, v) = plain(lm, p, c, 2), plain(lm, p, r, 2)
        np.testing.assert_allclose(got["statistics"][i], a - b, atol=2e-4, rtol=1e-4)
        np.testing.assert_allclose(got["hidden"][i], u - v, atol=1e-5)


def test_long_texts_are_read_by_their_end_and_their_beginning(lm):
    p, c, r = ROWS[3][0], ROWS[1][1], ROWS[2][2]
    got = Strong(None, lm, prompt_tokens=7, answer_tokens=5).features(batch([(p, c, r)]))["statistics"][0]
    expected = plain(lm, p, c, 2, 7, 5)[0] - plain(lm, p, r, 2, 7, 5)[0]
    np.testing.assert_allclose(got, expected, atol=2e-4, rtol=1e-4)


def test_a_model_of_chats_reads_the_prompt_in_its_template(lm, tmp_path):
    from transformers import AutoTokenizer

    shutil.copytree(lm, tmp_path / "chat")
    tokenizer = AutoTokenizer.from_pretrained(lm)
    tokenizer.chat_template = "<eos>you: {{ messages[0]['content'] }}\nme: "
    tokenizer.save_pretrained(tmp_path / "chat")
    p, c, r = ROWS[0]
    got = Strong(None, str(tmp_path / "chat")).features(batch([ROWS[0]]))["statistics"][0]
    of_template = {"before": "<eos>you: ", "after": "\nme: "}
    expected = plain(lm, p, c, 2, **of_template)[0] - plain(lm, p, r, 2, **of_template)[0]
    np.testing.assert_allclose(got, expected, atol=2e-4, rtol=1e-4)
    tokenizer.chat_template = "{{ raise_exception('two messages, please') }}"
    tokenizer.save_pretrained(tmp_path / "chat")
    with pytest.raises(ConfigError, match="chat template fails: two messages, please"):
        Strong(None, str(tmp_path / "chat"), layer=1).features(batch([ROWS[0]]))


def test_a_pair_that_is_turned_round_has_the_negated_features_and_batches_do_not_matter(lm, sentences):
    strong = Strong(sentences, lm)
    whole = strong.features(batch(ROWS))
    turned = strong.features(batch([(p, r, c) for p, c, r in ROWS]))
    assert set(whole) == {"sentence", "product", "statistics", "hidden"}
    for name, values in whole.items():
        assert np.array_equal(turned[name], -values), name
        single = [strong.features(batch([r]))[name] for r in ROWS]
        assert np.concatenate(single).tobytes() == values.tobytes(), name


def test_a_hidden_layer_alone_is_the_same_without_the_layers_above_it(lm):
    both = Strong(None, lm, layer=1).features(batch(ROWS))
    alone = Strong(None, lm, layer=1, statistics=False).features(batch(ROWS))
    assert list(alone) == ["hidden"]
    np.testing.assert_allclose(alone["hidden"], both["hidden"], atol=1e-6)
    assert list(Strong(None, lm, layer=0).features(batch(ROWS))) == ["statistics"]


def test_layers_above_the_pooled_one_are_not_loaded(lm):
    from prefdata.noise.strong import _CausalLM

    assert len(_CausalLM(lm, False, 1, 96, 112).model.layers) == 2
    assert len(_CausalLM(lm, True, 1, 96, 112).model.model.layers) == 3


@pytest.fixture(scope="session")
def sentences(tmp_path_factory, tokenizer):
    """A folder with a random BERT, which SentenceTransformer pools by the mean."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    folder = tmp_path_factory.mktemp("sentences")
    words = AutoTokenizer.from_pretrained(tokenizer)
    words.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


def test_sentence_vectors_are_differences_and_products_with_the_prompt(sentences):
    from prefdata.encoders import load

    got = Strong(sentences, None).features(batch(ROWS))
    p, c, r = (load(sentences).embed([row[i] for row in ROWS]) for i in range(3))
    assert set(got) == {"sentence", "product"}
    np.testing.assert_allclose(got["sentence"], c - r, atol=1e-6)
    np.testing.assert_allclose(got["product"], p * (c - r), atol=1e-6)


def test_an_answer_without_a_token_and_an_empty_batch(lm, tokenizer):
    features = Strong(None, lm).features(batch([("a boat", "", "A boat.")]))
    expected = plain(lm, "a boat", "A boat.", 2)
    np.testing.assert_allclose(features["statistics"][0], -expected[0], atol=2e-4, rtol=1e-4)
    assert {k: v.shape for k, v in Strong(None, lm).features(batch([])).items()} == {
        "statistics": (0, 10),
        "hidden": (0, 16),
    }


def test_what_cannot_be_loaded_is_said(lm, monkeypatch):
    with pytest.raises(ConfigError, match="no such model folder"):
        Strong(None, "/no/such/folder").warm()
    with pytest.raises(ConfigError, match=r"no such model here.*--online"):
        Strong(None, "nobody/nothing").features(batch(ROWS))
    with pytest.raises(ConfigError, match="has 3 layers, not 4"):
        Strong(None, lm, layer=4).features(batch(ROWS))
    with pytest.raises(ConfigError, match="reads at most 512 tokens"):
        Strong(None, lm, answer_tokens=500).features(batch(ROWS))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"prefdata\[models\]"):
        Strong(None, lm).warm()
    with pytest.raises(MissingExtra, match=r"prefdata\[models\]"):
        Strong("some/sentences", None).warm()


def test_the_files_of_both_models_are_what_it_depends_on(lm, sentences):
    known = {Strong(e, m).depends_on() for e in (None, sentences) for m in (None, lm)}
    assert len(known) == 4
