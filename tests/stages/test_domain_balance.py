"""``domain_balance``: where domains come from, what is dropped, weighed or asked for, and what is said."""

import itertools
import json
import random

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from written import cleaning_again_changes_nothing, loaded, report_of, write_lines

import prefdata
from prefdata import languages
from prefdata.errors import ConfigError, MissingExtra
from prefdata.mixes import Mix, shares_below, shares_wanted
from prefdata.stage import shipped

STAGE = shipped()["domain_balance"]
GARDEN = "roses tulips mulch compost hedge prune bulbs seedlings soil lawn"
MUSIC = "cello piano chord melody rhythm tenor score sonata violin tempo"
CODE = "python function compiler variable loop integer array pointer debug syntax"


def rows_of(counts, seed=0, **more):
    """``rows_of({"law": 3})``: so many rows of each domain, shuffled; ``more`` are functions of the row's number."""
    rnd, out = random.Random(seed), []
    for domain, n in counts.items():
        for i in range(n):
            said = " ".join(rnd.choice(GARDEN.split()) for _ in range(5))
            row = {
                "id": f"{domain}{i}",
                "prompt": f"{said} {domain} {i}?",
                "chosen": f"Yes {i}.",
                "rejected": f"No {i}.",
            }
            out.append(row | {"domain": domain} | {k: f(i) for k, f in more.items()})
    rnd.shuffle(out)
    return out


@pytest.fixture
def run(tmp_path):
    """``run(rows, method="cap")``: the audit (or, with ``out``, the cleaning) by this stage with these parameters."""

    def call(rows, out=None, options=None, **parameters):
        path = tmp_path / "pipeline.yaml"
        path.write_text(json.dumps({"version": 1, "stages": ["malformed", {"domain_balance": parameters}]}))
        source = rows if isinstance(rows, list) else str(rows)
        if out is None:
            return prefdata.audit(source, pipeline=str(path), **(options or {}))
        return prefdata.clean(source, tmp_path / out, str(path), **(options or {}))

    return call


def found(result, name, when="all"):
    """The finding of that name."""
    (one,) = [f for f in result.findings if f.name == name and f.when == when]
    return one


def shares(result):
    return {f.name.removeprefix("share."): f.value for f in result.findings if f.name.startswith("share.")}


def stay(rows, result):
    """How many rows of each domain are kept."""
    out = {}
    for row, alive in zip(rows, result.outcome.kept.tolist(), strict=True):
        out[row["domain"]] = out.get(row["domain"], 0) + alive
    return out


def ids(rows, result):
    return {r["id"] for r, alive in zip(rows, result.outcome.kept.tolist(), strict=True) if alive}


# ------------------------------------------------------------------------------------------------ findings


def test_by_default_it_only_tells_the_shares(run):
    rows = rows_of({"garden": 60, "music": 30, "law": 10})
    result = run(rows)
    assert result.counts["dropped"] == result.counts["flagged"] == 0
    assert shares(result) == {"garden": 0.6, "music": 0.3, "law": 0.1}
    garden = found(result, "share.garden")
    assert garden.n == 100 and (garden.low, garden.high) == pytest.approx((0.5020, 0.6906), abs=1e-3)
    assert {rows[r]["domain"] for r in garden.rows} == {"garden"}
    assert found(result, "largest_deviation").value == pytest.approx(0.8, abs=1e-6)  # (0.6 - 1/3) / (1/3)
    assert "'domain'" in found(result, "domains").text


def test_of_many_domains_the_largest_and_the_rest(run):
    result = run(rows_of({f"d{i}": 30 - i for i in range(25)}))
    told = shares(result)
    assert len(told) == 19 and "d0" in told and "d24" not in told
    rest = found(result, "share_of_the_rest")
    assert rest.value + sum(told.values()) == pytest.approx(1, abs=1e-4) and "6 smaller" in rest.text


def test_names_of_findings_are_words_and_each_is_there_once(run):
    result = run(rows_of({"Law & Order": 4, "law order": 3, "法律": 2, "Übung": 1}))
    names = [f.name for f in result.made[-1].findings]
    assert len(names) == len(set(names)) and all(n.isascii() and " " not in n for n in names)
    assert any("法律: 2 of 10" in f.text for f in result.findings)


def test_a_row_without_a_domain_is_counted_and_stays(run):
    rows = rows_of({"garden": 8, "law": 2})
    for blank in (None, "", "  "):
        rows += [
            {"id": f"none{blank!r}", "prompt": f"Name {blank!r}.", "chosen": "Yes.", "rejected": "No.", "domain": blank}
        ]
    result = run(rows, method="cap", max_share=0.5)
    assert "3 of 13 pairs have none" in found(result, "domains").text
    assert stay(rows, result) == {"garden": 2, "law": 2, None: 1, "": 1, "  ": 1}


# ------------------------------------------------------------------------------------------------ where domains come from


def test_the_first_known_column_that_repeats_is_taken(run):
    rows = rows_of({"a": 3, "b": 2}, topic=lambda i: f"one {i % 2}")
    assert "'domain'" in found(run(rows), "domains").text
    for i, row in enumerate(rows):
        row["domain"] = "all the same"
        row["category"] = f"https://a.site/{i}"
    assert "'topic'" in found(run(rows), "domains").text


@pytest.mark.parametrize(
    ("value", "column", "label"),
    [
        (lambda d: {"meta": {"area": d}}, "meta.area", "law"),
        (lambda d: {"grade": {"law": 7, "garden": 8}[d]}, "grade", "7"),
        (lambda d: {"flag": d == "law"}, "flag", "true"),
        (lambda d: {"tags": [d, "x"]}, "tags", '["law","x"]'),
        (lambda d: {"half": 0.5 if d == "law" else 1.5}, "half", "0.5"),
        (lambda d: {"mixed": d if d == "law" else 3}, "mixed", "law"),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_column_of_any_type(run, tmp_path, value, column, label, kind):
    rows = [r | value(r["domain"]) for r in rows_of({"law": 3, "garden": 5})]
    path = write_lines(tmp_path / "rows.jsonl", rows)
    if kind == "parquet":
        if column == "mixed":
            pytest.skip("a column of Parquet has one type")
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path := tmp_path / "rows.parquet")
    result = run(path, column=column)
    assert any(f.text.startswith(f"{label}: 3 of 8") for f in result.findings)


def test_a_categorical_column(run, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(rows_of({"law": 3, "garden": 5}))
    frame["domain"] = frame["domain"].astype("category")
    frame.to_parquet(path := tmp_path / "rows.parquet")
    assert shares(run(path)) == {"garden": 0.625, "law": 0.375}


def test_a_column_that_is_not_there_is_an_error_with_the_nearest_name(cli, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", rows_of({"law": 3, "garden": 5}))
    for parameter in ("column", "keep_by"):
        ended = cli("audit", path, "--only", "domain_balance", "--set", f"domain_balance.{parameter}=domian")
        assert ended.code == 2 and "Traceback" not in ended.err
        assert f"domain_balance.{parameter}: no row has a column 'domian'" in ended.err and "domain?" in ended.err


def test_a_column_of_some_files_only_is_no_error(run, tmp_path):
    write_lines(tmp_path / "a.jsonl", [{k: v for k, v in r.items() if k != "domain"} for r in rows_of({"law": 3})])
    write_lines(tmp_path / "b.jsonl", rows_of({"garden": 5}))
    result = run(str(tmp_path / "*.jsonl"), column="domain")
    assert shares(result) == {"garden": 1.0} and "3 of 8 pairs have none" in found(result, "domains").text


SAID = {
    "en": ["How do I bake bread without an oven at home?", "Please write a letter to my landlord about the heating."],
    "de": ["Wie backe ich zu Hause ein Brot ohne einen Ofen?", "Bitte schreibe einen Brief an meinen Vermieter wegen der Heizung."],
    "zh": ["请告诉我怎样在家里不用烤箱做面包？", "请帮我给房东写一封关于暖气的信，语气要客气。"],
    "ru": ["Как испечь хлеб дома без духовки и без дрожжей?", "Напиши письмо хозяину квартиры об отоплении."],
}  # fmt: skip


@pytest.mark.skipif(not languages.installed(), reason="the extra [lang] is not installed")
def test_languages(run):
    unclear = [
        "Yes.",
        "ok",
        "Sort: pelican, tuna, tango, salsa, gnu",
        "x = [i ** 2 for i in (1, 2, 3)]; y = {k: v}",
        "1 + 1 = ?",
        "```\nthe code of all of this\n```",
    ]
    said = [(t, code) for code, texts in SAID.items() for t in texts] + [(t, languages.UNKNOWN) for t in unclear]
    assert [languages.language(t) for t, _ in said] == [code for _, code in said]
    rows = [{"prompt": t, "chosen": "Yes.", "rejected": "No."} for t, _ in said]
    for parameters in ({"by": "language"}, {}):  # no column: the language
        result = run(rows, **parameters)
        assert shares(result) == dict.fromkeys(SAID, 0.25)
        assert f"by language; {len(unclear)} of {len(rows)}" in found(result, "domains").text


def test_without_a_column_and_without_the_extra_no_domain_is_known(run, monkeypatch):
    monkeypatch.setattr(languages, "installed", lambda: False)
    languages._detector.cache_clear()
    rows = [{"prompt": t, "chosen": "Yes.", "rejected": "No."} for t in SAID["en"]]
    result = run(rows, options={"workers": 1}, method="cap", max_share=0.5)
    assert "name a column" in found(result, "no_domains").text and result.counts["dropped"] == 0
    with pytest.raises(MissingExtra, match=r"prefdata\[lang\]"):
        run(rows, options={"workers": 1}, by="language")


def topical(n=60):
    rnd = random.Random(3)
    return [
        {
            "prompt": " ".join(["tell", "me", "about", *rnd.sample(words.split(), 6), "!" * (words is MUSIC)]),
            "chosen": f"Yes {i}.",
            "rejected": "No.",
        }
        for i in range(n)
        for words in (GARDEN, MUSIC, CODE)
    ]


def test_clusters_have_readable_names(run, tmp_path):
    pytest.importorskip("wordllama")
    rows = topical()
    result = run(rows, "out", by="cluster", clusters=3)
    topics = [set(words.split()) for words in (GARDEN, MUSIC, CODE)]
    named = [f for f in result.findings if f.name.startswith("share.")]
    assert [f.value for f in named] == pytest.approx([1 / 3] * 3, abs=0.02)
    told = [set(f.text[f.text.index("(") + 1 : f.text.index(")")].split(", ")) for f in named]
    assert all(len(words) == 3 for words in told)
    assert sorted(next(i for i, t in enumerate(topics) if words <= t) for words in told) == [0, 1, 2]
    page = report_of(tmp_path / "out")
    (stage,) = [s for s in page["stages"] if s["name"] == "domain_balance"]
    assert {f["text"] for f in stage["findings"]} >= {f.text for f in named}
    assert named[0].text.split(":")[0] in (tmp_path / "out/report.html").read_text()


def test_clusters_do_not_depend_on_order_or_cut(run):
    pytest.importorskip("wordllama")
    rows = topical()

    def told(some, **options):
        result = run(some, options=options, by="cluster", method="cap", target={"cluster 1": 0.2})
        return sorted(f.text for f in result.findings if f.name.startswith(("share", "domains"))), {
            r["prompt"] + r["chosen"] for r, k in zip(some, result.outcome.kept.tolist(), strict=True) if k
        }

    first = told(rows)
    assert told(rows[::-1]) == first and told(rows, chunk_bytes=2_000) == first
    assert len(first[1]) < len(rows)


def test_too_few_prompts_for_clusters(run):
    pytest.importorskip("wordllama")
    assert found(run(topical(2), by="cluster"), "no_domains")


# ------------------------------------------------------------------------------------------------ capping


@pytest.mark.parametrize(
    ("parameters", "counts", "left"),
    [
        ({"max_share": 0.5}, {"a": 60, "b": 20, "c": 10}, {"a": 30, "b": 20, "c": 10}),
        ({"max_share": 0.4}, {"a": 60, "b": 50, "c": 10}, {"a": 20, "b": 20, "c": 10}),
        ({"target": "uniform", "max_deviation": 0}, {"a": 60, "b": 20, "c": 10}, {"a": 10, "b": 10, "c": 10}),
        ({"target": {"a": 0.5, "b": 0.3, "c": 0.2}, "max_deviation": 0}, {"a": 60, "b": 60, "c": 20}, {"a": 50, "b": 30, "c": 20}),
        ({"target": {"a": 0.25}, "max_deviation": 0}, {"a": 60, "b": 20, "c": 10}, {"a": 10, "b": 20, "c": 10}),
        ({"target": {"a": 0.5, "b": 0.5}, "max_deviation": 0}, {"a": 60, "b": 20, "c": 70}, {"a": 20, "b": 20, "c": 70}),
    ],
)  # fmt: skip
def test_a_cap_reaches_its_target_and_drops_no_more(run, parameters, counts, left):
    rows = rows_of(counts)
    result = run(rows, method="cap", **parameters)
    assert stay(rows, result) == left
    assert result.counts["reasons"] == {"balanced_out": sum(counts.values()) - sum(left.values())}


def test_the_deviation_before_and_after(run):
    rows = rows_of({"a": 60, "b": 20, "c": 10})
    result = run(rows, method="cap")
    left = stay(rows, result)
    off = max(abs(n / sum(left.values()) - 1 / 3) * 3 for n in left.values())
    assert found(result, "largest_deviation", "kept").value == pytest.approx(off, abs=1e-6) and off <= 0.2
    assert found(result, "largest_deviation").value == pytest.approx(1.0)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"max_share": 0.25},
        {"target": {"a": 0.15, "b": 0.7 / 3}},
        {"target": {"a": 0.137, "c": 0.61}, "max_deviation": 0.07},
    ],
)
def test_a_second_run_drops_nothing(run, tmp_path, parameters):
    for seed in range(3):
        rnd = random.Random(seed)
        rows = rows_of({d: rnd.randint(30, 60) * (4 if d == "b" else 1) for d in "abcde"}, seed)
        first = run(rows, f"out{seed}", {"export": "none", "seed": seed}, method="cap", **parameters)
        pipeline = str(tmp_path / "pipeline.yaml")
        assert first.counts["dropped"] > 0
        cleaning_again_changes_nothing(tmp_path / f"out{seed}", pipeline=pipeline, seed=seed)


def test_which_rows_go(run):
    """The lowest values first, those without one before all; without values by hash: of the seed, not of the order."""
    rows = rows_of({"a": 40, "b": 10}, value=lambda i: None if i == 7 else str(i) if i % 2 else i)
    best = ids(rows, run(rows, method="cap", max_share=0.5, keep_by="value"))
    assert {i for i in best if i[0] == "a"} == {f"a{i}" for i in range(30, 40)}
    by_hash = ids(rows, run(rows, method="cap", max_share=0.5))
    turned = rows[::-1]
    assert by_hash == ids(turned, run(turned, method="cap", max_share=0.5)) != best
    assert by_hash == ids(rows, run(rows, method="cap", max_share=0.5, options={"chunk_bytes": 700}))
    assert by_hash != ids(rows, run(rows, method="cap", max_share=0.5, options={"seed": 1}))


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"max_share": 0.3}, "leaving rows out does not do it"),  # three domains
        ({"target": {"a": 0.98, "b": 0.01, "c": 0.01}}, "leaving rows out does not do it"),
        ({"target": {"a": 0.5, "space": 0.5}}, "no row has the domain space"),
        ({"target": {"space": 1.0}}, "no row has a domain that it names"),
        ({"max_share": 0.5, "max_dropped": 0.1}, "30 of 90 pairs would have to go"),
    ],
)
def test_a_target_that_cannot_be_reached_is_told_and_nothing_is_done(run, parameters, why):
    result = run(rows_of({"a": 60, "b": 20, "c": 10}), method="cap", **parameters)
    assert why in found(result, "target_not_reached").text and result.counts["dropped"] == 0


def test_a_test_split_is_left_alone(run):
    rows = rows_of({"a": 60, "b": 10})
    result = run(rows, "out", {"split": "test=0.3"}, method="cap", max_share=0.5)
    assert result.counts["dropped"] > 0
    train = [r["domain"] for r in result.dataset["train"]]
    test = [r["domain"] for r in result.dataset["test"]]
    assert train.count("a") == train.count("b") and len(train) + len(test) + result.counts["dropped"] == len(rows)
    assert test.count("a") > test.count("b") and found(result, "domains").n == len(rows) - len(test)


@pytest.mark.parametrize(
    "parameters",
    [
        {"target": "uniform", "max_share": 0.5},
        {"target": {"a": 0.8, "b": 0.4}},
        {"target": {"a": 0}},
        {"target": {"a": -0.1}},
        {"method": "cap", "target": "sqrt"},
        {"by": "cluster", "column": "domain"},
    ],
)
def test_parameters_that_do_not_go_together(run, parameters):
    with pytest.raises(ValidationError):
        STAGE(**parameters)
    with pytest.raises(ConfigError, match=r"pipeline.yaml:\d+: domain_balance"):
        run(rows_of({"a": 2}), **parameters)


# ------------------------------------------------------------------------------------------------ weights and requests


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({}, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
        ({"target": "sqrt"}, {"a": 6 / 11, "b": 3 / 11, "c": 2 / 11}),
        ({"target": {"a": 0.2}}, {"a": 0.2, "b": 0.8 * 9 / 13, "c": 0.8 * 4 / 13}),
        ({"max_share": 0.4}, {"a": 0.4, "b": 0.4, "c": 0.2}),
    ],
)
def test_weights_make_the_mix_exact(run, parameters, wanted):
    rows = [*rows_of({"a": 36, "b": 9, "c": 4}), *({**r, "domain": None} for r in rows_of({"none": 5}))]
    result = run(rows, method="weight", **parameters)
    weight = result.made[-1].weight
    assert weight.mean() == pytest.approx(1) and result.counts["dropped"] == 0
    of = {d: sum(w for w, r in zip(weight, rows, strict=True) if r["domain"] == d) for d in ("a", "b", "c", None)}
    assert {d: of[d] / 49 for d in wanted} == pytest.approx(wanted, abs=1e-6) and of[None] == 5
    assert found(result, "effective_pairs").value == round(weight.sum() ** 2 / (weight**2).sum())


def test_no_weights_where_no_mix_keeps_to_the_share(run):
    result = run(rows_of({"a": 9, "b": 3}), method="weight", max_share=0.3)
    assert result.made[-1].weight is None and found(result, "target_not_reached")


def test_a_request_says_what_to_collect(run):
    result = run(rows_of({"garden": 200, "law": 10, "music": 100}), method="request", max_deviation=0)
    assert found(result, "collect.law").text == "collect 190 more of law"
    assert found(result, "collect.music").value == 100 and found(result, "to_collect").value == 290
    assert not [f for f in result.findings if f.name == "collect.garden"]
    below = run(rows_of({"garden": 60, "law": 10}), method="request", max_share=0.6)
    assert found(below, "collect.law").value == 30 and below.counts["dropped"] == 0


# ------------------------------------------------------------------------------------------------ counts, by trying all


def test_no_other_cap_keeps_more():
    """Against every count there could be, for small sets."""
    rnd = np.random.default_rng(0)
    reached = 0
    for _ in range(60):
        counts = rnd.integers(1, 12, 3)
        wanted = rnd.dirichlet([2, 2, 2])
        for mix in (Mix(wanted, 0.2), Mix(np.ones(3) / 3, 0.2), Mix(wanted, 0.2, most=0.5)):
            all_of_them = itertools.product(*(range(1, n + 1) for n in counts))
            best = max((sum(k) for k in all_of_them if mix.fits(np.array(k))), default=None)
            got = mix.capped(counts)
            if got is not None:
                reached += 1
                assert mix.fits(got) and (got >= 1).all() and (got <= counts).all() and best - got.sum() <= 1
            elif mix.most is not None:
                assert best is None
    assert reached > 60


def test_shares():
    counts = np.array([60, 30, 10])
    assert shares_wanted(["a", "b", "c"], counts, {"b": 0.65}) == pytest.approx([0.3, 0.65, 0.05])
    assert shares_wanted(["a", "b", "c"], counts, {"a": 0.2, "b": 0.6}) == pytest.approx([0.2, 0.6, 0.2])
    assert shares_wanted(["a", "b"], counts[:2], {"a": 0.2, "b": 0.3}) == pytest.approx([0.4, 0.6])
    assert shares_below(counts, 0.45) == pytest.approx([0.45, 0.4125, 0.1375])
    assert shares_below(counts, 0.3) is None


def test_the_full_pipeline_takes_nothing_from_a_set_without_domains(tmp_path):
    rows = [{k: v for k, v in r.items() if k != "domain"} for r in topical(4)]
    result = prefdata.clean(rows, tmp_path / "out", "full", only=["malformed", "domain_balance"])
    assert result.counts["kept"] == len(rows) == len(loaded(tmp_path / "out"))
