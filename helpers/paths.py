"""The paths of the checkout and of its folders for data, runs and environments."""

import os
import sys
from pathlib import Path

from data_prep.files import write_atomic

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
DATA = Path(os.environ.get("ROSETTA_DATA") or ROOT / "data").absolute()
RUNS = Path(os.environ.get("ROSETTA_RUNS") or ROOT / "runs").absolute()
VENVS = ROOT / ".venvs"
MPIEXEC = Path(sys.executable).with_name("mpiexec")
"""The mpiexec of this environment, if it is installed."""


def write_atomically(path: Path, text: str | bytes) -> None:
    """Write ``text`` to ``path`` so that a reader sees the old file or the new one, never half.

    Nor after a power cut. The umask sets its permissions, as for any other file.

    Raises:
        OSError: naming ``path``; the old file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode() if isinstance(text, str) else text, durable=True)
