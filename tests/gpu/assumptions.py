"""Checks what our code assumes about a GPU, each assumption in a process of its own.

    assumptions.py gpu|cpu [NAME]

It prints a line of JSON for each, the most important first: ``ok``, ``differs`` with what that
means, ``failed`` or ``skipped``. The exit code is 0, whatever it finds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import gpu_checks
import gpu_place
import numpy as np

from helpers.runner.self_test import worker


class Assumption(NamedTuple):
    """What is checked, the framework that it needs, and what a difference means."""

    check: Callable[[str], gpu_checks.Found]
    kernel: str | None
    meaning: str
    on_cpu: bool = False
    seconds: float = 30


ASSUMPTIONS = {
    "JAX's recorded memory is what it uses": Assumption(
        gpu_checks.jax_memory,
        "jax",
        "the recorded peak is JAX's pool: do not compare memory with JAX",
    ),
    "PyTorch's fairness check frees its memory": Assumption(
        gpu_checks.pytorch_memory,
        "pytorch",
        "replicas have less of GPU 0, and the recorded peak counts it",
        seconds=45,
    ),
    "the step clock waits for the GPU": Assumption(
        gpu_checks.step_clock, "pytorch", "times of steps and images/s are not the GPU's"
    ),
    "the driver answers the monitor": Assumption(
        gpu_checks.nvml, None, "traces and figures lack these series", on_cpu=True
    ),
    "PyTorch multiplies in the precision": Assumption(
        partial(gpu_checks.products, "pytorch"),
        "pytorch",
        "runs are not of their precision",
        on_cpu=True,
    ),
    "JAX multiplies in the precision": Assumption(
        partial(gpu_checks.products, "jax"), "jax", "runs are not of their precision", on_cpu=True
    ),
    "loader workers start after CUDA": Assumption(
        gpu_checks.loader, "pytorch", "batches are wrong", on_cpu=True
    ),
    "NCCL sums in one process": Assumption(
        gpu_checks.all_reduce, "pytorch", "gradients are not averaged", on_cpu=True
    ),
}


def in_this_process(name: str, kind: str) -> tuple[str, str]:
    """The outcome of a check, and what to say of it."""
    check, _, meaning, *_ = ASSUMPTIONS[name]
    try:
        holds, said = check(kind)
    except gpu_checks.NotHereError as why:
        return "skipped", str(why)
    except Exception as error:
        traceback.print_exc()
        return "failed", worker.said(error)
    return ("ok", said) if holds else ("differs", f"{said}; so {meaning}")


def environment(folder: str) -> dict[str, str]:
    """For the checks' processes, whose temporary files go with ``folder`` when one is killed.

    Where packages came without bytecode it is kept there too: to compile PyTorch's modules takes
    three times as long as to import them.
    """
    kept = os.environ | {"TMPDIR": folder}
    if Path(np.__spec__.cached or "").is_file():
        return kept
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}


def in_its_own(name: str, kind: str, env: dict[str, str]) -> tuple[str, str]:
    """The same from another process, which may crash or hang."""
    _, kernel, _, on_cpu, seconds = ASSUMPTIONS[name]
    if kind == "cpu" and not on_cpu:
        return "skipped", "there is no GPU to compute on"
    if why := kernel and gpu_place.lacks(kernel):
        return "skipped", why
    with tempfile.TemporaryFile("w+") as out:
        command = [sys.executable, "-W", "ignore", __file__, kind, name]
        child = subprocess.Popen(command, stdout=out, env=env, start_new_session=True)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            return "failed", f"ran past its {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):  # and what it has started
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        out.seek(0)
        if code:
            return "failed", f"ended with exit code {code}"
        outcome, said = json.loads(out.read().splitlines()[-1])
        return outcome, said


def main(kind: str, *names: str) -> None:
    if names:
        print(json.dumps(in_this_process(names[0], kind)))
        return
    outcomes = Counter[str]()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name in ASSUMPTIONS:
            outcome, said = in_its_own(name, kind, environment(folder))
            outcomes[outcome] += 1
            print(json.dumps({"assumption": name, "outcome": outcome, "said": said}), flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
