"""Dataset names of the Hugging Face Hub, ``hf:NAME`` and ``hf:NAME@REVISION``: fetched into its cache, then read as a folder."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from prefdata.cutting import SUFFIXES
from prefdata.errors import InputError, first_line

PREFIX = "hf:"
_PACKED = ("", ".gz", ".zst")


def fetched(name: str) -> Path:
    """The folder of a snapshot, named by its commit; downloads what the cache lacks, if ``PREFDATA_ONLINE`` allows it.

    Raises InputError where there is no such set, no access, no network, or nothing that can be read.
    """
    if os.environ.get("PREFDATA_ONLINE") != "1":
        raise InputError("a name of the Hub is fetched only if you allow it", where=name, hint="Add --online.")
    repo, _, revision = name.removeprefix(PREFIX).partition("@")
    from huggingface_hub import errors, snapshot_download
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    if not sys.stderr.isatty():
        disable_progress_bars()
    loud = logging.getLogger("huggingface_hub")
    level = loud.level
    loud.setLevel(logging.ERROR)  # what it warns of is told below
    try:
        found = snapshot_download(repo, repo_type="dataset", revision=revision or None, allow_patterns=_wanted(repo))
    except errors.HFValidationError as error:
        raise InputError("is no name of the Hub", where=name, hint="For example: hf:Anthropic/hh-rlhf") from error
    except errors.GatedRepoError as error:
        hint = f"Ask for access at https://huggingface.co/datasets/{repo}, then: hf auth login"
        raise InputError("is open only to those who were given access", where=name, hint=hint) from error
    except errors.RepositoryNotFoundError as error:
        hint = "Look at the spelling; a private set needs: hf auth login"
        raise InputError("the Hub has no such dataset", where=name, hint=hint) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"has no revision {revision}", where=name, hint="Give a branch, a tag or a commit.") from error
    except Exception as error:  # of the HTTP library, which differs between versions; no room on disk; no answer
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else None
        hint = "Try again: what was fetched is kept. Or give the folder of a copy."
        if isinstance(cause, errors.OfflineModeIsEnabled):
            hint = "HF_HUB_OFFLINE is set: unset it."
        raise InputError(f"cannot be fetched: {first_line(cause or error)}", where=name, hint=hint) from error
    finally:
        loud.setLevel(level)
    if not Path(found).is_dir():
        raise InputError("holds no data files", where=name, hint=f"Known: {', '.join(SUFFIXES)}, .arrow")
    return Path(found)


def _wanted(repo: str) -> list[str]:
    """Data files, the card, and the loading script that tells why there are none."""
    return [f"*{s}{p}" for s in SUFFIXES for p in _PACKED] + ["*.arrow", "README.md", f"{repo.split('/')[-1]}.py"]
