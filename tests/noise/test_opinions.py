"""What people say of labels beside the labels: scores, and rows that somebody verified."""

import numpy as np
import pyarrow as pa
import pytest

from prefdata.decisions import Decisions, Part, Signals
from prefdata.errors import ConfigError
from prefdata.noise.opinions import gathered, rate_of, verified
from prefdata.pairs import Pair, Pairs


@pytest.fixture
def seen(tmp_path):
    """``seen(columns, swapped)``: signals with these columns."""

    def make(columns, swapped=None):
        path = tmp_path / "signals.arrow"
        table = pa.table(columns)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return Signals([Part(str(path), 0, len(table))], None, 0, swapped)

    return make


def votes(signals):
    out = Decisions(signals.index)
    return gathered(signals, "label_noise", out), out.findings


def scores(chosen, rejected):
    return {
        "pair.score_chosen": pa.array(chosen, pa.float64()),
        "pair.score_rejected": pa.array(rejected, pa.float64()),
    }


def test_scores_are_a_vote_where_they_contradict_some_labels(seen):
    got, told = votes(seen(scores([5.0, 1, None, 2], [1.0, 4, 3, 2])))
    np.testing.assert_array_equal(got, np.array([[4], [-3], [np.nan], [0]], np.float32))
    assert [(f.name, f.value, f.n) for f in told] == [("vote_agreement", 0.5, 2)]
    assert "score agrees with 50.0%" in told[0].text


def test_a_vote_that_the_labels_were_made_of_is_left_out_and_told(seen):
    n = 1000
    got, told = votes(seen(scores([2.0] * n, [1.0] * n)))
    assert got.shape == (n, 0) and [(f.name, f.value, f.n) for f in told] == [("vote_left_out", 1.0, n)]
    got, told = votes(seen(scores([2.0] * 996 + [0.0] * 4, [1.0] * n)))  # a few slips do not make it another opinion
    assert got.shape == (n, 0) and told[0].name == "vote_left_out"
    got, told = votes(seen(scores([2.0] * 990 + [0.0] * 10, [1.0] * n)))
    assert got.shape == (n, 1) and told[0].name == "vote_agreement"


def test_votes_of_models_stand_beside_scores(seen):
    columns = {"label_noise.vote_rm": pa.array([1.5, -0.5, None], pa.float32()), **scores([1.0, 2, 3], [3.0, 1, 1])}
    got, told = votes(seen(columns))
    np.testing.assert_array_equal(got, np.array([[1.5, -2], [-0.5, 1], [np.nan, 2]], np.float32))
    assert [f.text.split()[0] for f in told] == ["rm", "score"]
    columns["other_stage.vote_x"] = pa.array([1.0, 1, -1])
    assert votes(seen(columns))[0].shape == (3, 2)


def test_votes_on_pairs_that_an_earlier_stage_turned_round_are_turned_round(seen):
    signals = seen(scores([5.0, 1, 4], [1.0, 4, 2]), np.array([True, False, True]))
    np.testing.assert_array_equal(votes(signals)[0].ravel(), [-4, -3, -2])


def test_infinite_numbers_are_no_opinion_and_a_vote_of_nobody_is_none(seen):
    got, _ = votes(seen(scores([np.inf, 1.0, 2], [1.0, 2, 1])))
    np.testing.assert_array_equal(got.ravel(), np.array([np.nan, -1, 1], np.float32))
    got, told = votes(seen({"label_noise.vote_rm": pa.nulls(3, pa.float32())}))
    assert got.shape == (3, 0) and [f.name for f in told] == ["vote_says_nothing"]


def said(values):
    pairs = Pairs.of([Pair("a", "b", "c")] * len(values), {"checked": pa.array(values)})
    return verified(pairs, "checked")


def test_words_of_verified_rows():
    assert said([True, False, None]) == [1, 0, None]
    assert said([1, 0, None]) == [1, 0, None] and said([1.0, 0.0]) == [1, 0]
    assert said(["right", " Wrong ", "", "TRUE", "flipped", "no"]) == [1, 0, None, 1, 0, 0]


@pytest.mark.parametrize("word", ["maybe", "2", "chosen"])
def test_other_words_are_refused(word):
    with pytest.raises(ConfigError, match=rf"the column 'checked' holds '{word}'\. True or false"):
        said(["true", word])


def test_the_rate_of_verified_rows_has_an_interval():
    values = np.array([1.0] * 80 + [0.0] * 20 + [np.nan] * 900)
    found = rate_of(values, "checked")
    assert (found.name, found.value, found.n) == ("noise_rate_verified", 0.2, 100)
    assert found.low == pytest.approx(0.1424, abs=1e-3) and found.high == pytest.approx(0.2734, abs=1e-3)
    assert "20.0% of the 100 verified labels are wrong" in found.text
    with pytest.raises(ConfigError, match="no row of the column 'checked' says"):
        rate_of(np.full(3, np.nan), "checked")
