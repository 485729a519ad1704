"""List this machine's GPUs by nvidia-smi, before any package is installed."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from helpers.frameworks import capabilities
from helpers.frameworks.capabilities import Gpu

COMMAND = (
    "nvidia-smi",
    "--query-gpu=name,compute_cap,driver_version,mig.mode.current",
    "--format=csv,noheader",
)

UNKNOWN = (*capabilities.NO_DRIVER, 2, 6)
"""Exit codes, which are NVML's: also a driver without one of these fields, and no GPU."""


class DriverError(Exception):
    """The driver is installed and does not start, so the GPUs are unknown."""


def found() -> tuple[Gpu, ...]:
    """All GPUs, whatever CUDA_VISIBLE_DEVICES is; an empty tuple without a driver."""
    if not shutil.which(COMMAND[0]):
        return ()
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    if done.returncode in UNKNOWN:
        return ()
    if done.returncode:
        said = done.stdout.partition("\n")[0].removeprefix("Failed to initialize NVML: ")
        raise DriverError(capabilities.driver_failure(done.returncode, said))
    return tuple(_gpu(*row) for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True))


def _gpu(name: str, capability: str, driver: str, mig: str) -> Gpu:
    major, _, minor = capability.partition(".")
    known = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
    return Gpu(f"{name} in MIG mode" if mig == "Enabled" else name, known, driver)
