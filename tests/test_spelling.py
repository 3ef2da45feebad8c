"""Hashes of findings become words again, in whatever script."""

import pyarrow as pa

from prefdata.decisions import Decisions, Finding
from prefdata.pairs import Row
from prefdata.spelling import spell, spelled, spellings
from prefdata.words import words

TEXT = "Don't PRUNE roses; über GPT模型 한국어 क्षमा 👍🏽 می‌خواهم 3.14"


def hashes(text):
    return tuple(words(pa.array([text])).hashes.tolist())


def row(number, text):
    return Row(number, str(number), "f", None, text, "Yes.", "No.", {}, None, None)


def test_every_word_is_found_again():
    known = spellings([TEXT])
    told = [known[h] for h in hashes(TEXT)]
    assert {"prune", "roses", "über", "gpt", "模", "型", "한국어", "क्षमा", "👍", "می‌خواهم"} <= set(told)
    assert hashes(" ".join(told)) == hashes(TEXT)


def test_words_and_phrases_stand_in_the_text():
    found = Finding("x", 1, 1, "said {words}: {phrase}", words=hashes("as an AI"))
    assert spelled(found, ["I am, as an AI, sure"]).text == "said as, an, ai: as an ai"
    assert spelled(found, ["nothing of it"]).text == "said ?, ?, ?: ? ? ?"


def test_rows_are_read_once_and_other_findings_are_left_alone():
    asked = []

    def read(rows):
        asked.append(list(rows))
        return [row(r, f"word{r} tulip") for r in rows]

    made = Decisions(pa.array([0, 1, 2, 3]).to_numpy())
    plain = Finding("y", 1, 1, "a {words} of the user's", rows=(0,))
    made.findings = [Finding("x", 1, 1, "{words}", rows=(3, 1), words=hashes("tulip word3")), plain]
    spell([made, Decisions(made.rows)], read)
    assert made.findings[0].text == "tulip, word3" and made.findings[0].words == () and made.findings[1] is plain
    assert asked == [[1, 3]]
