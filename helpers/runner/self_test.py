"""Check that an environment computes correctly on the given devices.

A process inside the environment, which may crash or hang, imports the framework and takes one
training step over all devices (``self_test_worker``). ``rosetta run`` checks so before an
experiment on GPUs (``helpers.runner.preflight``), and ``rosetta doctor`` on request.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.errors import printable
from helpers.errors import refusal
from helpers.frameworks import capabilities, devices, replicas
from helpers.frameworks.capabilities import Gpu
from helpers.frameworks.devices import Devices
from helpers.runner import environment_variables, kernel_processes, shutdown

LIMIT_SECONDS, COMPILING_SECONDS = 300.0, 1800.0
"""It takes about ten; the second where the driver first has to compile a library's code."""
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Outcome:
    """The outcome of the self-test of ``kernel`` on ``devices``."""

    kernel: str
    devices: Devices
    seconds: float
    reason: str | None
    """Why it failed, in one line; None if everything works."""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def in_words(self) -> str:
        """How it failed, as the reason of the runs that are skipped."""
        log = devices.run_name(f"self-test-{self.kernel}", self.devices.count)
        why = f"environment '{self.kernel}' failed its self-test: {self.reason}"
        return f"{why} ({log}.log has the details)"


def test(kernel: str, on: Devices, gpus: Sequence[Gpu], *, log: Path) -> Outcome:
    """Test an environment on ``gpus``, or on CPU devices; the outcome says if that is impossible.

    The self-test and every process that it started have ended when this function returns. What it
    prints goes to the file ``log``.

    Raises:
        OSError: the log cannot be written.
    """
    if problem := devices.problem(kernel, gpus):
        return Outcome(kernel, on, 0.0, problem)
    python, variables = kernel_processes.start_of(kernel)
    variables = environment_variables.for_a_kernel(os.environ) | variables
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = devices.cuda_names(gpus)
    limit = COMPILING_SECONDS if capabilities.compiles_first(kernel, gpus) else LIMIT_SECONDS
    log.parent.mkdir(parents=True, exist_ok=True)
    began, told = time.monotonic(), dict[str, Any]()
    with replicas.temporary_folder("self-test-") as folder, log.open("wb") as output:
        found = Path(folder) / "found.json"
        about = [kernel, on.kind, str(on.count), str(found)]
        command = [python, "-m", "helpers.runner.self_test_worker", *about]
        try:
            code = _run(command, variables | {"TMPDIR": folder}, output, limit)
        except OSError as error:  # this Python is damaged or not executable
            return Outcome(kernel, on, 0.0, f"it cannot be started: {printable(refusal(error))}")
        if found.exists():
            told = json.loads(found.read_text(encoding="utf-8"))
    seconds = time.monotonic() - began
    died = f"hung: not done after {limit:g} s"
    if code is not None:
        how = f"exit code {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"
        died = f"the process died: {how}"
    reason = told.get("reason", died)
    if reason is not None:
        reason = f"{f'a step on {on.short}' if 'versions' in told else 'start'}: {reason}"
    return Outcome(kernel, on, seconds, reason, told.get("versions", {}))


def _run(command: list[str], variables: dict[str, str], output: Any, limit: float) -> int | None:
    """Run a process in a new session; returns its exit code, or None at the limit."""
    how = {"env": variables, "stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
    with shutdown.held():  # else a signal could come before the process is known
        process = subprocess.Popen(command, **how, start_new_session=True)
        try:
            end = time.monotonic() + limit
            while process.poll() is None and time.monotonic() < end:
                shutdown.check()
                time.sleep(LOOK_SECONDS)
            if process.returncode is None:
                process.send_signal(signal.SIGUSR1)  # it prints where it hangs
                time.sleep(1)
            return process.returncode
        finally:
            kernel_processes.end(process.pid)
            process.wait()
