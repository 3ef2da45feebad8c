"""What all tests share: caches in a folder of their own, no network, the shared data, and the command line in-process."""

import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

# Before anything imports datasets or transformers: they read these once.
_CACHE = tempfile.TemporaryDirectory(prefix="prefdata-tests-", ignore_cleanup_errors=True)
os.environ["HF_HOME"] = _CACHE.name
os.environ["HF_DATASETS_CACHE"] = f"{_CACHE.name}/datasets"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
for _name in ("PREFDATA_WORKERS", "PREFDATA_ONLINE", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(_name, None)

SHARED = Path(os.environ.get("PREFDATA_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared():
    """The folder with the cases and the published data; the test is skipped where it is not there."""
    if not (SHARED / "cases").is_dir():
        pytest.skip(f"{SHARED} is not there (set PREFDATA_SHARED to the folder with cases/ and data/)")
    return SHARED


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def all(self):
        return self.out + self.err


@pytest.fixture
def cli(capsys, monkeypatch):
    """``cli("audit", path)``: the command line in this process; its exit code and what it printed."""
    from prefdata import cli as module

    term = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("PREFDATA_ONLINE", "0")

    def call(*argv):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["prefdata", *map(str, argv)])
        try:
            module.main()
        except SystemExit as ended:
            got = capsys.readouterr()
            return Ended(ended.code or 0, got.out, got.err)
        raise AssertionError("main() returned without an exit code")

    yield call
    signal.signal(signal.SIGTERM, term)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A folder with a small byte-level BPE tokenizer, trained on the spot."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    text = [
        "the small boat moved past the old stone pier while three gulls followed it over the cold grey water",
        "please describe slowly how a careful gardener prepares raised beds before spring arrives",
        "Name a kind of boat. A ferry. A train. Write a long scene about a boat.",
    ]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        text * 20,
        trainers.BpeTrainer(vocab_size=800, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False),
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>", pad_token="<eos>").save_pretrained(folder)
    return folder
