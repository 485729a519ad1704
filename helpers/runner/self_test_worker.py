"""The self-test's process, which runs inside the tested environment and may crash or hang.

    python -m helpers.runner.self_test_worker pytorch gpu 2 --to found.jsonl

The process writes the versions to the file once it has the devices, and the step's outcome when it
has taken it. The parent process therefore knows where it crashed. Full errors go to standard error.
"""

import argparse
import faulthandler
import importlib
import json
import re
import signal
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

from data_prep.errors import printable
from helpers.fairness import one_step
from helpers.frameworks import precisions

LONGEST = 300
"""The maximum number of characters of a reason."""
CUDA_PACKAGES = ("cuda-runtime", "cudnn", "cublas", "nccl")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m helpers.runner.self_test_worker")
    parser.add_argument("module", help="one of helpers.frameworks")
    parser.add_argument("kind", choices=("gpu", "cpu"))
    parser.add_argument("count", type=int)
    parser.add_argument("--to", type=Path, required=True)
    given = parser.parse_args(arguments)
    faulthandler.enable()  # a crash in native code leaves a traceback
    faulthandler.register(signal.SIGUSR1)  # and so does a process that hangs
    with given.to.open("w", encoding="utf-8", buffering=1) as file:

        def tell(**found: Any) -> None:
            file.write(json.dumps(found) + "\n")

        try:
            precisions.allow_tf32(False)  # before the import, as the notebooks have it
            framework = importlib.import_module(f"helpers.frameworks.{given.module}")
            # As the notebooks do, and before anything is computed.
            devices = framework.list_devices(given.kind, given.count)
            framework.configure("fp32", given.kind)
            python = {"python": sys.version.split()[0]}
            tell(versions=python | framework.versions() | _cuda())
            reason = one_step.problem(framework, devices)
        except Exception as error:
            traceback.print_exc()
            reason = said(error)
        tell(reason=reason)
    return 0 if reason is None else 1


def said(error: BaseException) -> str:
    """An error in one line: if its text contains a traceback, the line below the traceback."""
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
    if lines[0].endswith(":"):  # "replica 1 failed:", "in user code:"
        code = [number for number, line in enumerate(lines) if line.lstrip().startswith('File "')]
        below = lines[code[-1] + 1 :] if code else lines[1:]
        causes = [line.strip() for line in below if re.match(r"\s*[\w.]+: ", line)]
        text += f": {next(iter(causes), lines[-1].strip())}"
    return printable(text)[:LONGEST]


def _cuda() -> dict[str, str]:
    """Versions of the CUDA packages that are installed with the framework."""
    found = {}
    for package in metadata.distributions():
        name = str(package.metadata["Name"] or "").lower()
        if name.startswith("nvidia-") and any(part in name for part in CUDA_PACKAGES):
            found[name] = package.version
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
