"""The self-test's process, which runs inside the tested environment and may crash or hang.

    python -m helpers.runner.self_test.worker pytorch gpu 2 --to steps.jsonl

The process writes a line of JSON to the file when a step begins, and another when it has ended. The
parent process therefore knows the step in which it crashed. Full errors go to standard error.
"""

import argparse
import faulthandler
import importlib
import json
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from data_prep.errors import printable
from helpers.frameworks import precisions
from helpers.runner.self_test import expected

START = "start"
LONGEST = 300
"""The maximum number of characters of a reason."""
CUDA_PACKAGES = ("cuda-runtime", "cudnn", "cublas", "nccl")


class Steps:
    """Run the steps one after the other, and record how each ended."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def do(self, what: str, device: int | None, step: Callable[[], str | None]) -> bool:
        """Run a step, which returns a reason if its result is wrong; return whether it passed."""
        self.tell(what=what, device=device, seconds=None, reason=None)
        began = time.monotonic()
        try:
            reason = step()
        except Exception as error:
            traceback.print_exc()
            reason = said(error)
        seconds = time.monotonic() - began
        self.tell(what=what, device=device, seconds=round(seconds, 3), reason=reason)
        return reason is None

    def tell(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m helpers.runner.self_test.worker")
    parser.add_argument("module", help="one of helpers.frameworks")
    parser.add_argument("kind", choices=("gpu", "cpu"))
    parser.add_argument("count", type=int)
    parser.add_argument("--gpus", type=int, help="on how many GPUs, where they are shared")
    parser.add_argument("--to", type=Path, required=True)
    given = parser.parse_args(arguments)
    faulthandler.enable()  # a crash in native code leaves a traceback
    faulthandler.register(signal.SIGUSR1)  # and so does a process that hangs
    steps = Steps(given.to)
    held: dict[str, Any] = {}

    def start() -> None:
        precisions.allow_tf32(False)  # before the import, as the notebooks have it
        module = importlib.import_module(f"helpers.frameworks.{given.module}")
        # As the notebooks do, and before anything is computed.
        held["devices"] = module.list_devices(given.kind, given.count, given.gpus)
        module.configure("fp32", given.kind)
        held["module"] = module
        steps.tell(versions={"python": sys.version.split()[0], **module.versions(), **_cuda()})

    if not steps.do(START, None, start):
        return 1
    module, devices = held["module"], held["devices"]
    right = True
    for number, device in enumerate(devices):
        for layer in expected.LAYERS:
            right &= steps.do(layer, number, lambda: _layer(module, layer, device))  # noqa: B023
    if right:  # else a device could wait forever for a failed one
        right = steps.do(expected.ALL_REDUCE, None, lambda: _all_reduce(module, devices))
    return 0 if right else 1


def _layer(module: Any, layer: str, device: Any) -> str | None:
    given = expected.inputs(layer)
    found = module.through_layer(layer, given, device)
    return expected.wrong(found, expected.expected(layer, given))


def _all_reduce(module: Any, devices: Any) -> str | None:
    shares = expected.shares(len(devices))
    return expected.wrong_sum(module.all_reduced(shares, devices), shares)


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
