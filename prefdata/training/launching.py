"""One run of several processes: the same command again, under ``accelerate launch``."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence

from prefdata.errors import ConfigError, first_line


def launch(command: Sequence[str], options: Sequence[str]) -> int:
    """Run ``prefdata COMMAND`` under ``accelerate launch OPTIONS``; its exit code, that of the first process that failed.

    Raises ConfigError for options that accelerate does not take.
    """
    from accelerate.commands import launch as accelerate
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    options = list(options)
    if "--cpu" in options and "--num_processes" in options:  # accelerate starts several on a CPU through MPI only
        options[options.index("--cpu")] = "--multi_gpu"
        command = [*command, "--device", "cpu"]
        os.environ["ACCELERATE_USE_CPU"] = "true"
    for name in ("torch.distributed", "accelerate"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print a report of every process that ends with 1
    try:
        given = accelerate.launch_command_parser().parse_args([*options, "--module", "prefdata", *command])
        accelerate.launch_command(given)
    except ChildFailedError as error:
        return int(error.get_first_failure()[1].exitcode)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    except SystemExit as error:
        if error.code == 2:
            raise ConfigError(
                "accelerate launch does not take these options", hint="See accelerate launch --help."
            ) from error
        return int(error.code or 0)
    except ValueError as error:
        raise ConfigError(f"accelerate launch: {first_line(error)}", hint="See accelerate launch --help.") from error
    return 0
