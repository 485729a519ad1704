"""How gpumon starts processes of its own: same interpreter, own session, own module path."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any


def environment() -> dict[str, str]:
    """The program's own environment, with gpumon findable however the program found it."""
    here = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": here + (os.pathsep + known if known else "")}


def start(
    module: str,
    config: dict[str, Any],
    stdout: int,
    stderr: int | IO[bytes],
    files: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Run a module of gpumon with a configuration; its standard input ends when we do.

    It gets these open files, under the same numbers.

    The session of its own keeps an interrupt that is meant for the program away from it.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, json.dumps(config)],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env=environment(),
        start_new_session=True,
        pass_fds=files,
    )


def rank() -> int | None:
    """This process's rank as torchrun, MPI or Slurm give it, or None."""
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        if re.fullmatch(r"[0-9]{1,9}", text := os.environ.get(name, "")):
            return int(text)
    return None


def family(rank: int | None) -> int:
    """The process whose descendants are the program's own: this one, or a rank's launcher.

    The ranks of one machine are no strangers to each other: whoever started this one started them.
    """
    parent = os.getppid()
    return parent if rank is not None and parent > 1 else os.getpid()
