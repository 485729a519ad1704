"""Check that an environment computes correctly on the given devices.

A process inside the environment, which may crash or hang, imports the framework and takes one
training step over all devices (``self_test_worker``). ``rosetta run`` checks so before an
experiment on GPUs (``helpers.runner.preflight``), and ``rosetta doctor`` on request.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.errors import printable
from helpers.errors import refusal
from helpers.frameworks import capabilities, devices, installed, temporary_files
from helpers.frameworks.capabilities import Gpu
from helpers.frameworks.devices import Devices
from helpers.launch import environment_variables
from helpers.runner import kernel_processes, shutdown

LIMIT_SECONDS, COMPILING_SECONDS = 300.0, 1800.0
"""The self-test takes about ten seconds. It takes longer if a framework is loaded from a cold disk,
and has the second limit if the driver first has to compile a library's code."""
LAST_WORDS_SECONDS = 1.0
"""The time in which a hanging self-test can write where it hangs."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of the self-test of ``kernel`` on ``devices``."""

    kernel: str
    devices: Devices
    seconds: float
    reason: str | None
    """Why it failed, in one line; None where everything works."""
    versions: dict[str, str] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        """The record's section ``self_test``."""
        return {
            "devices": list(self.devices.names),
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            "versions": self.versions,
        }


def test(kernel: str, on: Devices, gpus: Sequence[Gpu], *, mark: Path, log: Path) -> Outcome:
    """Test an environment; the outcome says why if that is impossible.

    The self-test and every process that it started have ended when this function returns.

    Args:
        gpus: what the devices are; none for CPU devices.
        mark: for which its processes run (``kernel_processes.MARK``).
        log: the file for the self-test's output.

    Raises:
        OSError: the log cannot be written.
    """
    if problem := installed.problem(kernel, gpus):
        return Outcome(kernel, on, 0.0, problem)
    python, environment = _start_of(kernel)
    environment |= {kernel_processes.MARK: str(mark)}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = devices.cuda_names(gpus)
    command = [python, "-m", "helpers.runner.self_test_worker", kernel, on.kind, str(on.count)]
    limit = COMPILING_SECONDS if capabilities.compiles_first(kernel, gpus) else LIMIT_SECONDS
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with temporary_files.own("self-test-") as folder, log.open("wb") as output:
        found = Path(folder) / "found.jsonl"
        try:
            code = _run(
                [*command, "--to", str(found)], environment | {"TMPDIR": folder}, output, limit
            )
        except OSError as error:  # this Python is damaged or not executable
            return Outcome(kernel, on, 0.0, f"it cannot be started: {printable(refusal(error))}")
        told: dict[str, Any] = {}
        for line in found.read_text(encoding="utf-8").splitlines() if found.exists() else []:
            told |= json.loads(line)
    ended = _ended(code, limit)
    reason = told.get("reason", ended) if code is not None else ended
    if reason is not None:
        reason += capabilities.cuda_cure(reason)
        reason = f"{f'a step on {on.short}' if 'versions' in told else 'start'}: {reason}"
    seconds = time.monotonic() - began
    return Outcome(kernel, on, seconds, reason, told.get("versions", {}))


def _start_of(kernel: str) -> tuple[str, dict[str, str]]:
    """The Python of a Jupyter kernel, and the environment variables that Jupyter gives it."""
    given, environment = kernel_processes.start_of(kernel)
    named = re.fullmatch(r"python[\d.]*", given)  # Jupyter also uses its own Python here
    environment = environment_variables.for_a_kernel(os.environ) | environment
    return sys.executable if named else given, environment


def _run(
    command: list[str], environment: Mapping[str, str], output: Any, limit: float
) -> int | None:
    """Run a process in a new session; return its exit code, or None if it was ended as hung."""
    process = None
    try:
        with shutdown.held():  # else a signal could come before the process is known
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)  # prints where it hangs (faulthandler)
            time.sleep(LAST_WORDS_SECONDS)
            return None
    finally:
        with shutdown.held():
            if process is not None:
                kernel_processes.stop(process.pid)
                process.wait()
            # A dead process no longer lists its children.
            kernel_processes.stop_marked(Path(environment[kernel_processes.MARK]))


def _ended(code: int | None, limit: float) -> str:
    """How a process ended that did not say so itself."""
    if code is None:
        return f"hung: not done after {limit:g} s"
    if code >= 0:
        return f"the process died with exit code {code}"
    known = -code in set(signal.Signals)  # not every signal has a name
    return f"the process died of {signal.Signals(-code).name if known else f'signal {-code}'}"
