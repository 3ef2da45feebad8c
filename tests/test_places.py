"""Where data lives: folders with splits and configurations, their oddities, and names of the Hub."""

import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
from written import bytes_of, dropped, loaded, report_of, write_lines

import prefdata
from prefdata.errors import ConfigError, InputError


def rows(name, n=4):
    """Sound rows that are unlike each other, and unlike those of another name."""
    digest = [hashlib.sha256(f"{name} {i}".encode()).hexdigest() for i in range(n)]
    return [
        {"id": f"{name}-{i}", "prompt": f"Explain {d[:20]}", "chosen": f"It is {d[20:40]}", "rejected": f"Maybe {d[40:]}"}
        for i, d in enumerate(digest)
    ]  # fmt: skip


def folder(home, files):
    """A folder of JSON lines (lists), Parquet files (by name) and texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, held in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(held, str):
            path.write_text(held)
        elif path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(held), path)
        else:
            write_lines(path, held)
    return home


def card(*configs):
    """A dataset card with these configurations: ``(name, {split: path}, more)``."""
    lines = ["---", "configs:"]
    for name, files, more in configs:
        lines += [f"- config_name: {name}", *(f"  {m}" for m in more)]
        lines += ["  data_files:"] if files else []
        lines += [f"  - split: {s}\n    path: {p}" for s, p in files.items()]
    return "\n".join([*lines, "---", "# A set"])


def splits_of(out):
    """``{split: ids}`` as ``load_dataset`` gives them."""
    from datasets import load_dataset

    return {str(name): [r["id"] for r in part] for name, part in load_dataset(str(out)).items()}


def by_datasets(place, *config):
    """The same of the input, as ``datasets`` itself reads it."""
    from datasets import load_dataset

    return {str(name): [r["id"] for r in part] for name, part in load_dataset(str(place), *config).items()}


def ids(*names, n=4):
    return [r["id"] for name in names for r in rows(name, n)]


def refused(place, **options):
    """The one sentence that says why."""
    with pytest.raises((InputError, ConfigError)) as error:
        prefdata.audit(place if isinstance(place, list) else str(place), workers=1, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


# ------------------------------------------------------------------------------------------------ splits


SHARDS = {
    "data/test-00000-of-00001.parquet": rows("c"),
    "data/train-00000-of-00002.parquet": rows("a"),
    "data/train-00001-of-00002.parquet": rows("b"),
}
CUSTOM = {"data/train_prefs-00000-of-00001.parquet": rows("a"), "data/test_prefs-00000-of-00001.parquet": rows("b")}


@pytest.mark.parametrize("files", [
    SHARDS, CUSTOM,
    {"train.jsonl": rows("a"), "test.jsonl": rows("b"), "dev.jsonl": rows("c")},
    {"mine-valid.jsonl": rows("a"), "mine-training_2.jsonl": rows("b"), "mine-train-1.jsonl": rows("c")},
    {"train/part-0.parquet": rows("a"), "train/part-1.parquet": rows("b"), "eval/part-0.parquet": rows("c")},
    {"x/my_test/1.jsonl": rows("a"), "x/train/1.jsonl": rows("b")},
    {"README.md": card(("default", {"test": "b/*.jsonl", "train": "'**/a.jsonl'"}, ())), "a.jsonl": rows("a"),
     "deep/er/a.jsonl": rows("b"), "b/1.jsonl": rows("c"), "b/2.jsonl": rows("d"), "other.jsonl": rows("e")},
    {"README.md": card(("one", {"'2024'": "a.jsonl", "test.clean": "b.jsonl", "später": "c.jsonl"}, ())),
     "a.jsonl": rows("a"), "b.jsonl": rows("b"), "c.jsonl": rows("c")},
    {"README.md": card(("default", {}, ["data_dir: here"])), "here/train.jsonl": rows("a"), "here/test.jsonl": rows("b"),
     "there/train.jsonl": rows("c")},
])  # fmt: skip
def test_splits_stay_apart_as_datasets_reads_them(tmp_path, files):
    """One split to one split, the same rows in the same order; a set that is written again loads with the same splits."""
    place = folder(tmp_path / "set", files)
    result = prefdata.clean(str(place), tmp_path / "out", workers=1)
    expected = by_datasets(place)
    assert len(expected) > 1 and splits_of(tmp_path / "out") == expected
    assert result.splits == {name: len(found) for name, found in expected.items()}
    assert next(iter(result.splits)) == ("train" if "train" in expected else next(iter(expected)))
    manifest = json.loads((tmp_path / "out/manifest.json").read_bytes())
    assert manifest["splits"] == result.splits == report_of(tmp_path / "out")["splits"]
    told = {f["name"]: (f["split"], f["rows"]) for f in manifest["input"]["files"]}
    assert {split for split, _ in told.values()} == expected.keys()
    assert all(n == len(files[name]) for name, (_, n) in told.items())
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert all(re.search(rf"\b{re.escape(name)} {len(found)}\b", page) for name, found in expected.items())


def saved(home, **splits):
    from datasets import Dataset, DatasetDict

    DatasetDict({name: Dataset.from_list(held) for name, held in splits.items()}).save_to_disk(home)
    return home


def test_saved_splits(cli, tmp_path):
    place = saved(tmp_path / "saved", test=rows("t"), train=rows("a"), extra=rows("e"))
    ended = cli("clean", place, tmp_path / "out")
    assert ended.code == 0 and "splits train 4, test 4, extra 4" in ended.out
    assert splits_of(tmp_path / "out") == {"train": ids("a"), "test": ids("t"), "extra": ids("e")}
    assert [f["name"].split("/")[0] for f in report_of(tmp_path / "out")["source"]["files"]] == [
        "train",
        "test",
        "extra",
    ]


def test_one_split_by_name_is_called_train(cli, tmp_path):
    place = saved(tmp_path / "saved", test=rows("t"), train=rows("a"))
    assert cli("clean", place, tmp_path / "out", "--input-split", "test").code == 0
    assert splits_of(tmp_path / "out") == {"train": ids("t")}
    assert "split" not in report_of(tmp_path / "out")["source"]["files"][0]
    assert (
        refused(place, input_split="tets") == f"{place}: has no split 'tets'. Did you mean test? There are: test, train"
    )
    alone = folder(tmp_path / "alone", {"validation.jsonl": rows("v")})
    prefdata.clean(str(alone), tmp_path / "two", workers=1)
    assert splits_of(tmp_path / "two") == {"train": ids("v")}


def test_what_has_no_splits_offers_no_choice(tmp_path):
    file = write_lines(tmp_path / "in.jsonl", rows("a"))
    assert "has no splits to choose from" in refused(file, input_split="train")
    assert "has no splits to choose from" in refused(f"{tmp_path}/*.jsonl", input_split="train")
    assert "has no splits to choose from" in refused(
        folder(tmp_path / "set", {"a.jsonl": rows("a")}), input_split="train"
    )
    with pytest.raises(InputError, match="no configurations to choose from"):
        prefdata.audit(rows("a"), input_config="x")


def test_a_split_that_was_not_asked_for_may_be_missing(tmp_path):
    files = {"README.md": card(("default", {"train": "a.jsonl", "test": "b-*.jsonl"}, ())), "a.jsonl": rows("a")}
    place = folder(tmp_path / "set", files)
    assert "lacks b-*.jsonl, which its card names for the split test" in refused(place)
    prefdata.clean(str(place), tmp_path / "out", input_split="train", workers=1)
    assert splits_of(tmp_path / "out") == {"train": ids("a")}
    import shutil

    place = saved(tmp_path / "saved", train=rows("a"), test=rows("b"))
    shutil.rmtree(place / "test")
    assert f"{place}/test/state.json: is not there" in refused(place)
    prefdata.clean(str(place), tmp_path / "two", input_split="train", workers=1)
    assert splits_of(tmp_path / "two") == {"train": ids("a")}


@pytest.mark.parametrize("name", ["../up", "a/b", "/etc", "..", ".", "", "a b", "a-b", "x\n", 7, None])
def test_a_split_name_is_never_a_path(cli, tmp_path, name):
    place = saved(tmp_path / "saved", train=rows("a"), test=rows("b"))
    (place / "dataset_dict.json").write_text(json.dumps({"splits": ["train", name]}))
    ended = cli("clean", place, tmp_path / "deep/out")
    assert ended.code == 2 and "has a split named" in ended.err and "Traceback" not in ended.all
    files = {"README.md": card(("default", {"train": "a.jsonl", json.dumps(name): "b.jsonl"}, ()))}
    place = folder(tmp_path / "carded", {**files, "a.jsonl": rows("a"), "b.jsonl": rows("b")})
    ended = cli("clean", place, tmp_path / "deep/out")
    assert ended.code == 2 and "has a split named" in ended.err and "Traceback" not in ended.all
    assert sorted(p.name for p in tmp_path.iterdir()) == ["carded", "saved"] or not any((tmp_path / "deep").iterdir())


def test_a_dataset_dict(tmp_path):
    from datasets import Dataset, DatasetDict

    given = DatasetDict({"test": Dataset.from_list(rows("t")), "train": Dataset.from_list(rows("a"))})
    result = prefdata.clean(given, tmp_path / "out", workers=1)
    assert splits_of(tmp_path / "out") == {"train": ids("a"), "test": ids("t")} and list(result.splits) == [
        "train",
        "test",
    ]
    prefdata.clean(given, tmp_path / "one", input_split="test", workers=1)
    assert splits_of(tmp_path / "one") == {"train": ids("t")}
    with pytest.raises(InputError, match=r"DatasetDict: has no split 'tset'. Did you mean test"):
        prefdata.audit(given, input_split="tset")


def test_files_and_folders_together(tmp_path):
    """What has no splits counts as train; splits of one name are joined."""
    place = saved(tmp_path / "saved", test=rows("t"), train=rows("a"))
    more = folder(tmp_path / "more", {"test.jsonl": rows("u")})
    file = write_lines(tmp_path / "in.jsonl", rows("f"))
    prefdata.clean([str(place), str(more), str(file)], tmp_path / "out", workers=1)
    assert splits_of(tmp_path / "out") == {"train": ids("a", "f"), "test": ids("t", "u")}


def test_splits_are_not_cut_again(cli, tmp_path):
    place = saved(tmp_path / "saved", test=rows("t"), train=rows("a", 30))
    ended = cli("clean", place, tmp_path / "out", "--split", "test=0.2")
    assert ended.code == 2 and "has the splits train, test already" in ended.err and "--input-split" in ended.err
    assert not (tmp_path / "out").exists()
    assert cli("clean", place, tmp_path / "out", "--split", "test=0.3", "--input-split", "train").code == 0
    found = splits_of(tmp_path / "out")
    assert sorted(found["train"] + found["test"]) == sorted(ids("a", n=30))


def test_splits_are_the_same_however_the_input_is_cut(cli, tmp_path):
    place = folder(tmp_path / "set", {"train.jsonl": [*rows("a", 40), {"id": "x"}], "test.jsonl": rows("t", 40)})
    for name, options in {"whole": {}, "cut": {"chunk_bytes": 1500}}.items():
        prefdata.clean(str(place), tmp_path / name, workers=1, **options)
    assert (
        splits_of(tmp_path / "whole")
        == splits_of(tmp_path / "cut")
        == {"train": ids("a", n=40), "test": ids("t", n=40)}
    )
    assert [(r["pd_file"], r["pd_line"]) for r in dropped(tmp_path / "cut")] == [("train.jsonl", 41)]
    last = next(r for r in loaded(tmp_path / "cut", split="test") if r["id"] == "t-39")
    told = cli("--json", "explain-row", tmp_path / "cut", last["pd_id"])
    assert told.code == 0 and "t-39" in told.out and last["prompt"] in told.out
    prefdata.clean(str(tmp_path / "whole"), tmp_path / "again", workers=1)
    assert bytes_of(tmp_path / "again") == bytes_of(tmp_path / "whole")  # our own output is an input, splits and all


# ------------------------------------------------------------------------------------------------ shared prompts


def shared(result):
    return next((f for f in result.findings if f.name == "shared_prompts"), None)


def test_prompts_shared_between_splits_are_told(cli, tmp_path):
    train, test = rows("a", 8), rows("t", 8)
    for i in (1, 2, 5):
        test[i]["prompt"] = f"  {train[i]['prompt']}\u200b "  # the same in normal form
    broken = {"id": "x", "prompt": train[0]["prompt"], "chosen": "", "rejected": "b"}
    val = [{**rows("v", 1)[0], "prompt": train[7]["prompt"]}, *rows("w")]
    files = {"train.jsonl": train, "test.jsonl": [broken, *test], "val.jsonl": val}
    place = folder(tmp_path / "set", files)
    ended = cli("clean", place, tmp_path / "out")
    text = "4 of 13 rows outside train have a prompt that stands in train too (test 3, validation 1)"
    assert f" note: {text}" in ended.out
    assert text in (tmp_path / "out/report.html").read_text("utf-8")
    found = shared(prefdata.audit(str(place), workers=1))
    assert (found.value, found.n, found.when) == (4, 13, "all")
    assert found.rows == (10, 11, 14, 17)  # 8 rows of train, then the broken one
    document = json.loads(cli("--json", "audit", place).out)
    assert next(f["value"] for f in document["findings"] if f["name"] == "shared_prompts") == 4


def test_nothing_shared_and_nothing_to_share(cli, tmp_path):
    place = folder(tmp_path / "set", {"train.jsonl": rows("a"), "test.jsonl": rows("t")})
    assert shared(prefdata.audit(str(place), workers=1)).value == 0
    assert "note: no prompt" not in cli("audit", place).out
    assert shared(prefdata.audit(rows("a"))) is None


def test_what_was_cut_here_shares_nothing(tmp_path):
    """By construction, near copies and rows that are dropped before the cut included."""
    given = [
        r for i in range(60) for r in ({**rows("a", 60)[i]}, {**rows("b", 60)[i], "prompt": rows("a", 60)[i]["prompt"]})
    ]
    given += given[:20]  # exact copies
    result = prefdata.clean(given, tmp_path / "out", split="test=0.3,validation=0.2", workers=1)
    found = shared(result)
    assert found.value == 0 and found.n == result.splits["test"] + result.splits["validation"] > 10
    parts = [{r["prompt"] for r in loaded(tmp_path / "out", split=s)} for s in ("train", "test", "validation")]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


# ------------------------------------------------------------------------------------------------ configurations


TWO = {"README.md": card(("easy", {"train": "e/train.jsonl", "test": "e/test.jsonl"}, ()), ("hard", {"train": "h/*"}, ())),
       "e/train.jsonl": rows("a"), "e/test.jsonl": rows("b"), "h/1.jsonl": rows("c"), "h/notes.md": "Hello"}  # fmt: skip


def test_configurations_of_a_card(cli, tmp_path):
    place = folder(tmp_path / "set", TWO)
    ended = cli("clean", place, tmp_path / "out")
    assert ended.code == 2
    assert f"{place}: holds the configurations easy, hard. Choose one: --input-config easy" in ended.err
    for config in ("easy", "hard"):
        assert cli("clean", place, tmp_path / config, "--input-config", config).code == 0
    assert splits_of(tmp_path / "easy") == by_datasets(place, "easy") == {"train": ids("a"), "test": ids("b")}
    assert splits_of(tmp_path / "hard") == {"train": ids("c")}
    assert "has no split 'x'. There are: train, test" in refused(place, input_config="easy", input_split="x")
    assert "has no configuration 'hrad'. Did you mean hard? There are: easy, hard" in refused(
        place, input_config="hrad"
    )
    manifest = json.loads((tmp_path / "easy/manifest.json").read_bytes())
    assert manifest["options"]["input_config"] == "easy"


@pytest.mark.parametrize(("first", "second"), [(("a", []), ("default", [])), (("default", []), ("b", [])), (("a", []), ("b", ["default: true"]))])  # fmt: skip
def test_the_default_configuration(tmp_path, first, second):
    made = [(name, {"train": f"{i}.jsonl"}, more) for i, (name, more) in enumerate((first, second))]
    place = folder(tmp_path / "set", {"README.md": card(*made), "0.jsonl": rows("a"), "1.jsonl": rows("b")})
    prefdata.clean(str(place), tmp_path / "out", workers=1)
    assert splits_of(tmp_path / "out") == by_datasets(place)


def test_two_defaults_are_none(tmp_path):
    made = [("default", {"train": "0.jsonl"}, []), ("b", {"train": "1.jsonl"}, ["default: true"])]
    place = folder(tmp_path / "set", {"README.md": card(*made), "0.jsonl": rows("a"), "1.jsonl": rows("b")})
    assert "Choose one: --input-config default" in refused(place)


def test_configurations_of_a_folder_are_its_subfolders(tmp_path):
    files = {f"{c}/{s}.jsonl": rows(f"{c}{s}") for c in ("harmless", "helpful") for s in ("train", "test")}
    place = folder(tmp_path / "set", files)
    prefdata.clean(str(place), tmp_path / "out", input_config="helpful", workers=1)
    assert splits_of(tmp_path / "out") == {"train": ids("helpfultrain"), "test": ids("helpfultest")}
    assert {f["name"] for f in report_of(tmp_path / "out")["source"]["files"]} == {
        "helpful/train.jsonl",
        "helpful/test.jsonl",
    }
    assert "There are: harmless, helpful" in refused(place, input_config="../set")
    prefdata.clean(str(place), tmp_path / "all", workers=1)
    assert splits_of(tmp_path / "all") == by_datasets(place)
    assert "has no configuration" in refused(saved(tmp_path / "saved", train=rows("a")), input_config="train")


def test_saved_sets_in_a_folder(tmp_path):
    saved(tmp_path / "sets/a", train=rows("a"))
    saved(tmp_path / "sets/b", train=rows("b"), test=rows("t"))
    assert "holds saved sets in a, b. Choose one: --input-config a" in refused(tmp_path / "sets")
    prefdata.clean(str(tmp_path / "sets"), tmp_path / "out", input_config="b", workers=1)
    assert splits_of(tmp_path / "out") == {"train": ids("b"), "test": ids("t")}


@pytest.mark.parametrize(("text", "words"), [
    ("---\nconfigs: [\n---\n", "front matter cannot be read"), ("---\nconfigs:\n- 5\n---\n", "front matter cannot be read"),
    ("---\nconfigs:\n- data_files: a.jsonl\n---\n", "front matter cannot be read"),
    ("---\nconfigs:\n- config_name: a\n  data_files:\n  - split: train\n---\n", "names no path for the split 'train'"),
    ("---\nconfigs:\n- config_name: a\n  data_files:\n  - 5\n---\n", "names no path"),
    (card(("a", {"train": "../b.jsonl"}, ())), "lacks ../b.jsonl"), (card(("a", {"train": "/etc/passwd"}, ())), "lacks /etc/passwd"),
    (card(("a", {"train": "https://example.org/x.jsonl"}, ())), "lacks https://example.org/x.jsonl"),
    (card(("a", {"train": "'**.jsonl'"}, ())), "**.jsonl"), (card(("a", {}, ["data_dir: ../.."])), "lacks the folder ../.."),
])  # fmt: skip
def test_cards_that_lead_nowhere(tmp_path, text, words):
    write_lines(tmp_path / "b.jsonl", rows("b"))
    assert words in refused(folder(tmp_path / "set", {"README.md": text, "a.jsonl": rows("a")}))


def test_a_card_without_configurations_and_a_list_of_files(tmp_path):
    place = folder(tmp_path / "set", {"README.md": "---\nlicense: mit\n---\n# Hello", "a.jsonl": rows("a")})
    prefdata.clean(str(place), tmp_path / "out", workers=1)
    assert splits_of(tmp_path / "out") == {"train": ids("a")}
    (place / "README.md").write_text("---\nconfigs:\n- config_name: x\n  data_files: ['a.jsonl', 'b*']\n---\n")
    write_lines(place / "b.jsonl", rows("b"))
    prefdata.clean(str(place), tmp_path / "two", workers=1)
    assert splits_of(tmp_path / "two") == by_datasets(place) == {"train": ids("a", "b")}
    assert "has no splits to choose from" in refused(place, input_split="test")


# ------------------------------------------------------------------------------------------------ oddities of folders


def test_what_is_no_data_is_left_out_and_said(cli, tmp_path):
    infos = json.dumps({"default": {"features": {}, "splits": {"train": {"name": "train"}}}})
    place = folder(tmp_path / "set", {
        "a.jsonl": rows("a"), "dataset_infos.json": infos, "dataset_info.json": infos, "config.json": "{}", ".b.jsonl": rows("b"),
        "notes.txt": "Hello", "README.md": "# Hello", "LICENSE": "MIT", ".git/c.jsonl": rows("c"), "deep/config.json": "{}",
    })  # fmt: skip
    ended = cli("clean", place, tmp_path / "out")
    assert ended.code == 0
    text = (
        "files of the folder that were not read: .b.jsonl (hidden), config.json (metadata), dataset_info.json (metadata), "
        "dataset_infos.json (metadata), deep/config.json (metadata) and 1 more"
    )
    assert f" note: {text}" in ended.out and text in (tmp_path / "out/report.html").read_text("utf-8")
    assert splits_of(tmp_path / "out") == {"train": ids("a")}


def test_files_that_say_no_split_beside_files_that_do(tmp_path):
    """``datasets`` leaves them out as well; here it is said."""
    place = folder(tmp_path / "set", {"train.jsonl": rows("a"), "test.jsonl": rows("b"), "extra.jsonl": rows("c")})
    result = prefdata.clean(str(place), tmp_path / "out", workers=1)
    assert splits_of(tmp_path / "out") == by_datasets(place)
    assert [f.text for f in result.findings if f.name == "files_not_read"] == [
        "files of the folder that were not read: extra.jsonl (its name says no split)"
    ]


@pytest.mark.parametrize(("files", "words"), [
    ({"a.txt": "{}", "b.txt": "{}"}, ["holds no data files, only a.txt (not a data file), b.txt", "if you name it"]),
    ({"a.zip": "PK"}, ["only a.zip (not a data file)", ".jsonl"]), ({".a.jsonl": "{}"}, ["only .a.jsonl (hidden)"]),
    ({"dataset_infos.json": "{}"}, ["only dataset_infos.json (metadata)"]), ({"README.md": "# Hello"}, ["holds no data files. Known"]),
    ({"set.py": "import datasets", "README.md": "# Hello"}, ["holds a loading script and no data files", "hf:NAME@refs/convert/parquet"]),
    ({"test-train.jsonl": "{}"}, ["test-train.jsonl: has a name that says test and train", "Rename it"]),
    ({"test/train.jsonl": "{}"}, ["test/train.jsonl: has a name that says test and train"]),
    ({"data/a-b-00000-of-00001.jsonl": "{}"}, ["has a split named 'a-b'"]),
    ({"state.json": "{"}, ["state.json: is not what save_to_disk writes"]), ({"dataset_dict.json": "[]"}, ["names no splits"]),
    ({"state.json": '{"_data_files": [{"filename": "x.arrow"}]}'}, ["x.arrow: is not there"]), ({}, ["holds no data files"]),
])  # fmt: skip
def test_folders_without_rows_say_so(cli, tmp_path, files, words):
    (tmp_path / "set").mkdir()
    ended = cli("audit", folder(tmp_path / "set", files))
    assert ended.code == 2 and ended.err.startswith("error: ") and ended.err.count("\n") == 1
    for word in words:
        assert word in ended.err, ended.err


def test_links_in_a_folder(tmp_path):
    write_lines(tmp_path / "blobs-1234", rows("a"))
    folder(tmp_path / "far", {"b.jsonl": rows("b")})
    place = tmp_path / "set"
    place.mkdir()
    (place / "a.jsonl").symlink_to(tmp_path / "blobs-1234")
    (place / "in").symlink_to(tmp_path / "far")
    (place / "round").symlink_to(place)
    prefdata.clean(str(place), tmp_path / "out", workers=1)
    assert splits_of(tmp_path / "out") == {"train": ids("a", "b")}
    (place / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert f"{place}/gone.jsonl: is a link that leads to no file" in refused(place)


def test_names_with_spaces_marks_and_letters_of_any_script(tmp_path):
    names = ["a b.jsonl", "[x] *.jsonl", "数据/été.jsonl"]
    place = folder(tmp_path / "a [set] ü", {n: rows(str(i)) for i, n in enumerate(names)})
    prefdata.clean(str(place), tmp_path / "out", workers=1)
    assert sorted(f["name"] for f in report_of(tmp_path / "out")["source"]["files"]) == sorted(names)
    assert sorted(splits_of(tmp_path / "out")["train"]) == ids("0", "1", "2")
    (place / "README.md").write_text(card(("default", {"train": "'数据/*.jsonl'", "test": "'a b.jsonl'"}, ())))
    prefdata.clean(str(place), tmp_path / "two", workers=1)
    assert splits_of(tmp_path / "two") == {"train": ids("2"), "test": ids("0")}


@pytest.mark.parametrize("name", [b"caf\xe9.jsonl", b"a\nb.jsonl"])
def test_a_name_that_cannot_be_written(tmp_path, name):
    place = tmp_path / "set"
    place.mkdir()
    try:
        Path(os.fsdecode(os.fsencode(place) + b"/" + name)).write_text(json.dumps(rows("a")[0]))
    except OSError:
        pytest.skip("this file system takes no such name")
    assert "has a name that cannot be written" in refused(place)


# ------------------------------------------------------------------------------------------------ names of the Hub


SHA = "0123456789abcdef0123456789abcdef01234567"
OTHER = "89abcdef0123456789abcdef0123456789abcdef"


class Hub(http.server.BaseHTTPRequestHandler):
    """The endpoints of the Hub that a snapshot needs: what a revision is, what it holds, and the files."""

    sets: dict = {}  # noqa: RUF012
    log: list = []  # noqa: RUF012

    def log_message(self, *args):
        pass

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = unquote(self.path.split("?")[0])
        self.log.append(path)
        if found := re.fullmatch(r"/api/datasets/(\w+/\w+)(?:/(revision|tree)/(.+))?", path):
            name, what, revision = found[1], found[2], found[3] or "main"
            if name not in self.sets:
                return self.answer(401, X_Error_Code="RepoNotFound")
            held = self.sets[name]
            if held == "down":
                return self.answer(500, b"busy")
            commit = {"main": SHA, SHA: SHA, "v1": OTHER, OTHER: OTHER, "refs/convert/parquet": SHA}.get(revision)
            if commit is None:
                return self.answer(404, X_Error_Code="RevisionNotFound")
            files = held[commit]
            if what == "tree":
                entries = [
                    {"type": "file", "path": p, "size": len(b), "oid": hashlib.sha1(b).hexdigest()}
                    for p, b in files.items()
                ]
                return self.answer(200, json.dumps(entries).encode(), Content_Type="application/json")
            about = {"id": name, "sha": commit, "siblings": [{"rfilename": p} for p in files], "private": False}
            return self.answer(200, json.dumps(about).encode(), Content_Type="application/json")
        if "/resolve/" not in path:  # the library asks what its server can do
            return self.answer(404)
        found = re.fullmatch(rf"/datasets/(\w+/\w+)/resolve/({SHA}|{OTHER})/(.+)", path)
        body = self.sets[found[1]][found[2]][found[3]]
        if found[1].endswith("gated"):
            return self.answer(403, X_Error_Code="GatedRepo")
        tag = f'"{hashlib.sha1(body).hexdigest()}"'
        return self.answer(200, body, ETag=tag, X_Repo_Commit=found[2], Content_Type="application/octet-stream")

    do_HEAD = do_GET  # noqa: N815


def lines(held):
    return "".join(json.dumps(r) + "\n" for r in held).encode()


@pytest.fixture(scope="module")
def hub():
    """A server on this machine that speaks as the Hub does."""
    split = {
        "data/train.jsonl": lines(rows("a")),
        "data/test.jsonl": lines(rows("t")),
        "picture.png": b"\x89PNG",
        "run.sh": b"rm",
    }
    Hub.sets = {
        "org/prefs": {SHA: {**split, "README.md": b"# Prefs"}, OTHER: {"data/train.jsonl": lines(rows("old"))}},
        "org/configs": {SHA: {k: v.encode() if isinstance(v, str) else lines(v) for k, v in TWO.items()}},
        "org/script": {SHA: {"script.py": b"import datasets", "README.md": b"# Prefs"}},
        "org/pictures": {SHA: {"a.png": b"\x89PNG"}}, "org/gated": {SHA: split}, "org/down": "down",
    }  # fmt: skip
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def closed_port():
    """An address where nobody answers."""
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, but not listening
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def call(home, endpoint, *argv, **env):
    """The command line in a process of its own, which reads the surroundings afresh."""
    surroundings = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "PREFDATA_ONLINE"}
    surroundings |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home / "hf"), "HF_HUB_OFFLINE": "0", "HF_TOKEN": ""} | env
    return subprocess.run(
        [sys.executable, "-m", "prefdata", *map(str, argv)], cwd=home, env=surroundings, capture_output=True, text=True, timeout=120
    )  # fmt: skip


def test_a_set_of_the_hub(hub, tmp_path):
    ended = call(tmp_path, hub, "clean", "hf:org/prefs", "out", "--online", "--workers", "1")
    assert ended.returncode == 0, ended.stderr
    assert (
        "input: data/train.jsonl, data/test.jsonl, 8 rows" in ended.stdout and "splits train 4, test 4" in ended.stdout
    )
    assert splits_of(tmp_path / "out") == {"train": ids("a"), "test": ids("t")}
    source = json.loads((tmp_path / "out/manifest.json").read_bytes())["input"]
    assert source["revisions"] == {"hf:org/prefs": SHA}
    assert not [p for p in Hub.log if p.endswith((".png", ".sh"))]  # what is no data is not fetched
    assert (tmp_path / "hf/hub/datasets--org--prefs").is_dir()
    ended = call(tmp_path, hub, "audit", "hf:org/prefs", "--input-split", "test", PREFDATA_ONLINE="1")
    assert ended.returncode == 0 and "4 rows" in ended.stdout


def test_a_revision_and_a_configuration(hub, tmp_path):
    ended = call(tmp_path, hub, "--online", "clean", "hf:org/prefs@v1", "out", "--workers", "1")
    assert ended.returncode == 0 and splits_of(tmp_path / "out") == {"train": ids("old")}
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["input"]["revisions"] == {"hf:org/prefs@v1": OTHER}
    ended = call(tmp_path, hub, "--online", "audit", "hf:org/configs")
    assert ended.returncode == 2
    assert (
        ended.stderr == "error: hf:org/configs: holds the configurations easy, hard. Choose one: --input-config easy\n"
    )
    assert "4 rows" in call(tmp_path, hub, "--online", "audit", "hf:org/configs", "--input-config", "hard").stdout


def test_without_online_nothing_is_asked(cli, hub, tmp_path):
    before = len(Hub.log)
    ended = call(tmp_path, hub, "audit", "hf:org/prefs")
    assert (ended.returncode, len(Hub.log)) == (2, before)
    assert ended.stderr == "error: hf:org/prefs: a name of the Hub is fetched only if you allow it. Add --online.\n"
    file = write_lines(tmp_path / "in.jsonl", rows("a"))
    ended = cli("audit", file, "hf:org/prefs")  # an input, no folder for the report
    assert ended.code == 2 and "Add --online" in ended.err and not (tmp_path / "hf:org").exists()


@pytest.mark.parametrize(("name", "words"), [
    ("org/none", "the Hub has no such dataset. Look at the spelling"), ("org/prefs@v9", "has no revision v9"),
    ("org/gated", "is open only to those who were given access. Ask for access"), ("org/down", "cannot be fetched: "),
    ("a b", "is no name of the Hub"), ("", "is no name of the Hub"), ("org/pictures", "holds no data files. Known"),
    ("org/script", "holds a loading script and no data files. Scripts are not run. The Hub may hold its rows"),
])  # fmt: skip
def test_what_the_hub_does_not_give(hub, tmp_path, name, words):
    ended = call(tmp_path, hub, "--online", "audit", f"hf:{name}")
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].startswith(f"error: hf:{name}: {words}"), (
        ended.stderr
    )
    assert "Traceback" not in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr


def test_no_answer_and_no_network(tmp_path):
    with closed_port() as nobody:
        ended = call(tmp_path, nobody, "--online", "audit", "hf:org/prefs")
    assert ended.returncode == 2 and ended.stderr.startswith("error: hf:org/prefs: cannot be fetched: "), ended.stderr
    assert "folder of a copy" in ended.stderr and len(ended.stderr.splitlines()) == 1
    ended = call(tmp_path, "http://127.0.0.1:9", "--online", "audit", "hf:org/prefs", HF_HUB_OFFLINE="1")
    assert ended.returncode == 2 and "HF_HUB_OFFLINE is set" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_an_input_that_a_glob_names_is_never_overwritten(cli, tmp_path, monkeypatch):
    """Also where the pattern does not spell the output folder."""
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "out/data/train"
    inside.mkdir(parents=True)
    write_lines(inside / "in.jsonl", [{"prompt": "What is dew?", "chosen": "Drops.", "rejected": "A fish."}])
    ended = cli("clean", "o?t/data/*/in.jsonl", "out", "--overwrite")
    assert ended.code == 2 and "holds the input in.jsonl" in ended.err and (inside / "in.jsonl").exists()
