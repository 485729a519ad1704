"""Start the self-test in an environment, limit its time, and evaluate what it wrote."""

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
from helpers import paths
from helpers.errors import refusal
from helpers.frameworks import devices, installed, temporary_files
from helpers.frameworks.capabilities import Gpu
from helpers.frameworks.devices import Devices
from helpers.launch import environment_variables
from helpers.runner import kernel_processes, shutdown
from helpers.runner.plans import counted
from helpers.runner.self_test import expected

LIMIT_SECONDS = 300.0
"""The self-test takes about ten seconds. It takes longer if the driver first has to compile a
library's code, or if a framework is loaded from a cold disk."""
LAST_WORDS_SECONDS = 1.0
"""The time in which a hanging self-test can write where it hangs."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of the self-test of ``kernel`` on ``devices`` (their names)."""

    kernel: str
    devices: tuple[str, ...]
    seconds: float
    reason: str | None
    """Why it failed, in one line; None where everything works."""
    versions: dict[str, str] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    """The steps: ``what``, ``device`` (its number; None for all devices), ``seconds`` (None if
    the step did not end), ``reason``."""

    def as_record(self) -> dict[str, Any]:
        """The record's section ``self_test``."""
        return {
            "devices": list(self.devices),
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            "versions": self.versions,
            "steps": self.steps,
        }


def test(
    kernel: str,
    on: Devices,
    gpus: Sequence[Gpu],
    *,
    mark: Path,
    log: Path,
    limit: float = LIMIT_SECONDS,
    here: bool = False,
) -> Outcome:
    """Test an environment; the outcome says why if that is impossible.

    Args:
        gpus: what the devices are; none for CPU devices.
        mark: for which its processes run (``kernel_processes.MARK``).
        log: the file for the self-test's output.
        limit: seconds after which the self-test is ended as hung.
        here: in this Python, where ``kernel`` is a framework's module.
    """
    if here:
        found = [str(paths.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        python, environment = sys.executable, {**os.environ, "PYTHONPATH": ":".join(found)}
    elif problem := installed.problem(kernel, gpus):
        return Outcome(kernel, on.names, 0.0, problem)
    else:
        python, environment = start_of(kernel)
    environment |= {kernel_processes.MARK: str(mark)}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = devices.cuda_names(gpus)
    how: dict[str, Any] = {"python": python, "environment": environment, "log": log, "limit": limit}
    return run(kernel, on.kind, on.names, **how, shared_gpus=on.shared_gpus)


def run(
    kernel: str,
    kind: str,
    devices: Sequence[str],
    *,
    python: str,
    environment: Mapping[str, str],
    log: Path,
    limit: float = LIMIT_SECONDS,
    shared_gpus: int | None = None,
) -> Outcome:
    """Test ``kernel`` on devices of ``kind`` (``gpu`` or ``cpu``) with these names.

    The self-test and every process that it started have ended when this function returns.

    Raises:
        OSError: the log cannot be written.
    """
    with temporary_files.own("self-test-") as folder:
        steps_file = Path(folder) / "steps.jsonl"
        words = [python, "-m", "helpers.runner.self_test.worker", kernel, kind, str(len(devices))]
        words += [] if shared_gpus is None else ["--gpus", str(shared_gpus)]
        words += ["--to", str(steps_file)]
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with log.open("wb") as output:
            try:
                code = _run(words, {**environment, "TMPDIR": folder}, output, limit)
            except OSError as error:  # this Python is damaged or not executable
                why = f"it cannot be started: {printable(refusal(error))}"
                return Outcome(kernel, tuple(devices), 0.0, why)
        seconds = time.monotonic() - began
        versions, steps = _read(steps_file)
    reason = _judge(steps, code, limit, devices)
    return Outcome(kernel, tuple(devices), seconds, reason, versions, steps)


def start_of(kernel: str) -> tuple[str, dict[str, str]]:
    """The Python of a Jupyter kernel, and the environment variables that Jupyter gives it."""
    given, environment = kernel_processes.start_of(kernel)
    named = re.fullmatch(r"python[\d.]*", given)  # Jupyter also uses its own Python here
    environment = environment_variables.for_a_kernel(os.environ) | environment
    return sys.executable if named else given, environment


def _run(words: list[str], environment: Mapping[str, str], output: Any, limit: float) -> int | None:
    """Run a process in a new session; return its exit code, or None if it was ended as hung."""
    process = None
    try:
        with shutdown.held():  # else a signal could come before the process is known
            process = subprocess.Popen(
                words,
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
            if kernel_processes.MARK in environment:  # a dead process no longer lists its children
                kernel_processes.stop_marked(Path(environment[kernel_processes.MARK]))


def _read(steps_file: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The versions and the steps that the self-test wrote, without an incomplete last line."""
    versions: dict[str, str] = {}
    steps: dict[tuple[str, int | None], dict[str, Any]] = {}
    text = steps_file.read_text(encoding="utf-8") if steps_file.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            event = json.loads(line)
            if "versions" in event:
                versions = event["versions"]
            else:  # a step that has ended replaces the same as it began
                steps[event["what"], event["device"]] = event
    return versions, list(steps.values())


def _judge(
    steps: list[dict[str, Any]], code: int | None, limit: float, devices: Sequence[str]
) -> str | None:
    """Return why the self-test failed, and set the reason of a step that did not end."""
    for step in steps:
        if step["seconds"] is None:
            step["reason"] = f"hung: not done after {limit:g} s" if code is None else _died(code)
        if step["reason"] is not None:
            return f"{_where(step, devices)}: {step['reason']}"
    if steps and steps[-1]["what"] == expected.ALL_REDUCE:
        return None if code is not None else f"done, but it did not end within {limit:g} s"
    return f"not at its end after {limit:g} s" if code is None else _died(code)


def _died(code: int) -> str:
    if code >= 0:
        return f"the process died with exit code {code}"
    number = -code  # not every signal has a name
    known = number in set(signal.Signals)
    return f"the process died of {signal.Signals(number).name if known else f'signal {number}'}"


def _where(step: Mapping[str, Any], devices: Sequence[str]) -> str:
    what, number = step["what"], step["device"]
    if number is not None:
        return f"{what} on {numbered(number, devices[number])}"
    return (
        f"{what} over {counted(len(devices), 'device')}"
        if what == expected.ALL_REDUCE
        else str(what)
    )


def numbered(number: int, name: str) -> str:
    """A device's number and name; the name of a CPU device already contains its number."""
    return name if name.endswith(f" {number}") else f"device {number} ({name})"
