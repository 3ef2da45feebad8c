"""A fine-tuned encoder as a scorer, with a tiny random BERT made on the spot."""

import random

import numpy as np
import pytest

from prefdata.errors import ConfigError, MissingExtra
from prefdata.noise.encoder import Encoder, _Network, _Text
from prefdata.pairs import Pair, Pairs

torch = pytest.importorskip("torch")

WORDS = [
    *("boat", "pier", "gull", "water", "grey", "stone", "garden", "bed", "spring", "soil"),
    *("seed", "rain", "bread", "oven", "salt", "flour", "road", "hill", "train", "bell"),
]
TINY = {"lr": 3e-3, "epochs": 3, "batch": 8, "max_length": 48}


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A folder with a random BERT of two layers and a word-piece tokenizer for the words of these tests."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    text = [" ".join(WORDS), "indeed please tell of the a ."]
    made.train_from_iterator(
        text, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder = tmp_path_factory.mktemp("bert")
    PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(made.get_vocab()), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return str(folder)


def rows(n, seed=0):
    """Pairs whose chosen answer holds the word ``indeed``; 3 pairs a prompt."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        prompt = f"please tell of the {WORDS[i // 3 % len(WORDS)]} {WORDS[i // 3 // len(WORDS) % len(WORDS)]}"
        answers = [rng.choices(WORDS, k=rng.randint(4, 12)) for _ in range(2)]
        answers[0].insert(rng.randint(0, 4), "indeed")
        out.append((prompt, *(" ".join(a) for a in answers)))
    return out


def fitted(encoder, some, **options):
    ids = encoder.ids(Pairs.of([Pair(*r) for r in some]))
    known = {p: i for i, p in enumerate(sorted({r[0] for r in some}))}
    groups = np.array([known[r[0]] for r in some], np.uint64)
    return encoder.cross_fitted({k: [v.values.to_numpy() for v in c] for k, c in ids.items()}, groups, **options)


@pytest.fixture(scope="session")
def margins(bert):
    return fitted(Encoder(bert, **TINY), rows(240))


def test_a_rule_that_can_be_learnt_is_found_in_rows_that_were_never_seen(margins):
    assert margins.shape == (240,) and margins.dtype == np.float64
    assert (margins > 0).mean() > 0.9


def test_random_labels_teach_nothing(bert):
    agrees = []
    for seed in range(3):  # one draw of 240 labels may well lie at the edge
        rng = random.Random(seed)
        some = [(p, *rng.sample([c, r], 2)) for p, c, r in rows(240)]
        agrees.append((fitted(Encoder(bert, **TINY), some) > 0).mean())
    assert 0.4 < np.mean(agrees) < 0.6


def test_two_runs_are_the_same_bytes_in_any_order_of_rows(bert, margins):
    encoder, some = Encoder(bert, **TINY), rows(240)
    order = np.random.default_rng(0).permutation(len(some))
    again = fitted(encoder, [some[i] for i in order])
    assert again.tobytes() == margins[order].tobytes()


def test_another_seed_is_another_fit(bert, margins):
    assert not np.array_equal(fitted(Encoder(bert, **TINY), rows(240), seed=1), margins)


def test_a_pair_that_is_turned_round_has_the_negated_margin(bert, margins):
    """One prompt's pairs are turned round: the models that score them have not seen them, so nothing else changes."""
    some = rows(240)
    turned = [(p, r, c) if p == some[30][0] else (p, c, r) for p, c, r in some]
    there = np.array([p == some[30][0] for p, _, _ in some])
    got = fitted(Encoder(bert, **TINY), turned)
    assert there.sum() == 3
    np.testing.assert_allclose(got[there], -margins[there], atol=1e-6, rtol=0)


def test_no_pair_is_scored_by_a_model_that_saw_its_prompt(bert):
    """Each prompt has a rule of its own, which its other pairs would give away: across prompts there is none."""
    rng = random.Random(2)
    some = []
    for i in range(40):
        answers = ["indeed " + WORDS[i % 20], WORDS[i % 20] + " seed"]
        rng.shuffle(answers)
        some += [(f"tell of {WORDS[i % 20]} {WORDS[i // 20]} please", *answers)] * 6
    options = {**TINY, "epochs": 6}
    assert 0.25 < (fitted(Encoder(bert, **options), some) > 0).mean() < 0.75


def test_nothing_to_learn_from_gives_zeros(bert):
    encoder = Encoder(bert, **TINY)
    assert fitted(encoder, rows(3)).tolist() == [0, 0, 0]  # one prompt: no fold has another one to learn from
    assert fitted(encoder, []).shape == (0,)


def test_ids_hold_the_end_of_the_prompt_and_the_beginning_of_the_answers(bert):
    long = " ".join(WORDS * 4)
    encoder = Encoder(bert, max_length=32)
    whole, cut = (encoder.ids(Pairs.of([Pair(t, t, t)])) for t in (" ".join(WORDS), long))
    assert {str(c.type) for c in whole.values()} == {"list<item: int32>"}
    assert [len(c[0].as_py()) for c in cut.values()] == [32, 32, 32]
    assert cut["prompt"][0].as_py()[-20:] == whole["prompt"][0].as_py()
    assert cut["chosen"][0].as_py()[:20] == whole["chosen"][0].as_py()


def test_the_two_texts_are_put_together_as_the_tokenizer_does(bert):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bert)
    text = _Text.of(tokenizer)
    a, b = "please tell of the boat", "grey stone"
    p, r = (np.array(tokenizer(t, add_special_tokens=False)["input_ids"], np.int32) for t in (a, b))
    both = tokenizer(a, b)
    assert text.join(p, r, 32).tolist() == [both["input_ids"], both["token_type_ids"]]
    long = np.arange(100, 160, dtype=np.int32)
    ids = text.join(long, long, 23)[0].tolist()
    assert ids == [2, *range(150, 160), 3, *range(100, 110), 3]  # each gets half
    assert text.join(long, r, 23)[0].tolist() == [2, *range(160 - 18, 160), 3, *r, 3]  # a short answer leaves its room
    assert text.join(p[:0], long, 23)[0].tolist() == [2, 3, *range(100, 120), 3]


def test_a_text_has_one_score_whatever_stands_beside_it(bert):
    """No dropout when scoring, and padding is not read."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bert)
    network = _Network(bert, tokenizer)
    network.model.train()  # as training leaves it
    texts = [np.array([t["input_ids"], t["token_type_ids"]]) for t in map(tokenizer, ["boat", " ".join(WORDS)], WORDS)]
    alone = np.concatenate([network.scores([t], 8) for t in texts])
    np.testing.assert_allclose(network.scores(texts, 8), alone, atol=1e-6)
    assert alone[0] != alone[1]


def test_what_cannot_be_loaded_is_said(bert, monkeypatch):
    pairs = Pairs.of([Pair("a", "b", "c")])
    with pytest.raises(ConfigError, match="no such model folder"):
        Encoder("/no/such/folder").warm()
    with pytest.raises(ConfigError, match=r"no such model here.*--online"):
        Encoder("nobody/nothing").ids(pairs)
    with pytest.raises(ConfigError, match="reads at most 64 tokens, not 256"):
        Encoder(bert).ids(pairs)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"prefdata\[models\]"):
        Encoder(bert).warm()


def test_a_training_that_diverges_is_said(bert):
    with pytest.raises(ConfigError, match="training diverged"):
        fitted(Encoder(bert, **{**TINY, "lr": 1e30}), rows(30))


def test_the_files_of_the_encoder_are_what_it_depends_on(bert):
    assert Encoder(bert).depends_on() and Encoder(bert).depends_on() != Encoder("/no/such").depends_on()
