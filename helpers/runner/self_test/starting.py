"""Starts a probe in a kernel's environment, limits its time, and judges it by what it wrote."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from data_prep.errors import printable
from helpers.errors import refusal
from helpers.frameworks import temporary_files
from helpers.runner import kernel_processes, shutdown
from helpers.runner.self_test import expected
from helpers.training import environment_variables

LIMIT_SECONDS = 300.0
"""A probe takes about ten seconds; but a driver may have to compile a library's code first, and a
cold disk takes its time over a framework."""
LAST_WORDS_SECONDS = 1.0
"""What a probe that hangs gets to write where it does."""


@dataclass(frozen=True)
class Outcome:
    """What a probe of ``kernel`` on ``devices`` (their names) came to."""

    kernel: str
    devices: tuple[str, ...]
    seconds: float
    reason: str | None
    """Why it failed, in one line; None where everything works."""
    versions: dict[str, str] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    """What was done: ``what``, ``device`` (its number; None for all of them), ``seconds`` (None
    where it did not end), ``reason``."""

    def as_record(self) -> dict[str, Any]:
        """The record's section ``self_test``."""
        return {
            "devices": list(self.devices),
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            "versions": self.versions,
            "steps": self.steps,
        }


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
    """Probe ``kernel`` on devices of ``kind`` (``gpu`` or ``cpu``) with these names.

    Whatever happens, the probe and every process it started are gone afterwards.

    Args:
        python: of the environment that holds the framework.
        environment: what the probe is started with: its GPUs, and ``kernel_processes.MARK``.
        log: where everything goes that it prints.
        limit: seconds after which it is ended as hung.
        shared_gpus: on how many GPUs the devices are, where they share them.

    Raises:
        OSError: what it says cannot be written.
    """
    with temporary_files.own("probe-") as folder:
        told = Path(folder) / "steps.jsonl"
        words = [python, "-m", "helpers.runner.self_test.worker", kernel, kind, str(len(devices))]
        words += [] if shared_gpus is None else ["--gpus", str(shared_gpus)]
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with log.open("wb") as output:
            try:
                words += ["--to", str(told)]
                code = _run(words, {**environment, "TMPDIR": folder}, output, limit)
            except OSError as error:  # not ours: a Python that is damaged, or may not be run
                why = f"it cannot be started: {printable(refusal(error))}"
                return Outcome(kernel, tuple(devices), 0.0, why)
        seconds = time.monotonic() - began
        events = list(_events(told))
    versions: dict[str, str] = next(
        (event["versions"] for event in events if "versions" in event), {}
    )
    steps = [
        {name: event[name] for name in ("what", "device", "seconds", "reason")}
        for event in _in_order(events)
    ]
    reason = _judge(steps, code, limit, devices)
    return Outcome(kernel, tuple(devices), seconds, reason, versions, steps)


def start_of(kernel: str) -> tuple[str, dict[str, str]]:
    """The Python of a kernel that Jupyter knows, and the variables that Jupyter starts it with."""
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec(kernel)
    environment = environment_variables.for_a_kernel(os.environ)
    own = {name: Template(text).safe_substitute(environment) for name, text in spec.env.items()}
    given = spec.argv[0]
    named = re.fullmatch(r"python[\d.]*", given)  # Jupyter too takes its own for it
    return sys.executable if named else given, {**environment, **own}


def _run(words: list[str], environment: Mapping[str, str], output: Any, limit: float) -> int | None:
    """The exit code of a process that leads a session of its own; None if it was ended as hung."""
    process = None
    try:
        with shutdown.held():  # else a signal could come before we know whom to end
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
            process.send_signal(signal.SIGUSR1)  # says where it hangs (faulthandler)
            time.sleep(LAST_WORDS_SECONDS)
            return None
    finally:
        with shutdown.held():
            if process is not None:
                kernel_processes.stop(process.pid)
                process.wait()
            if kernel_processes.MARK in environment:  # one that died has lost its children
                kernel_processes.stop_marked(Path(environment[kernel_processes.MARK]))


def _events(told: Path) -> Iterator[dict[str, Any]]:
    """What the probe wrote; the last line may be half of one."""
    if not told.exists():
        return
    for line in told.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def _in_order(events: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The steps that were begun, with how they ended."""
    for number, event in enumerate(events):
        if "begin" in event:
            rest = (e for e in events[number + 1 :] if e.get("end") == event["begin"])
            ended = next((e for e in rest if e["device"] == event["device"]), {})
            yield {"seconds": None, "reason": None, **event, "what": event["begin"], **ended}


def _judge(
    steps: list[dict[str, Any]], code: int | None, limit: float, devices: Sequence[str]
) -> str | None:
    """Why the probe failed; a step that did not end is given its reason too."""
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
    return f"{what} over {of(devices)}" if what == expected.ALL_REDUCE else str(what)


def numbered(number: int, name: str) -> str:
    """A device's number and name; a virtual one has its number in the name."""
    return name if name.endswith(f" {number}") else f"device {number} ({name})"


def of(devices: Sequence[str]) -> str:
    """How many there are."""
    return f"{len(devices)} device{'s' * (len(devices) != 1)}"
