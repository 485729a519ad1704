"""Detect other processes on a run's GPUs, because they make the run's times unreliable.

gpumon lists the processes of all users that compute on a GPU. Before the run's processes start, and
after they end, all processes belong to others. NVML reports the machine's process ids, which are
unknown inside a container. An unknown id counts before the run, but not after it, when it may be
one of the run's that the driver still lists.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gpumon import gpu as gpu_module
from gpumon.series import Unavailable
from helpers.record import processes

SETTLE_SECONDS = 3.0
"""The time for the driver to forget processes that have just ended."""


@contextmanager
def watched(uuids: Sequence[str], warn: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Around a run on these GPUs, if any: the record's section ``other_processes``.

    ``warn`` is called with one line for each other process.
    """
    found: dict[str, Any] = {"processes": [], "reason": None}

    def ask() -> list[tuple[str, int, float | None]]:
        try:
            return gpu_module.compute_processes(uuids) if uuids else []
        except Unavailable as error:
            if found["reason"] is None:
                said = f"the driver does not list the processes on the GPUs ({error})"
                found["reason"] = said
                warn(said)
            return []

    def note(gpu: str, process: int, memory: float | None, seen: str) -> None:
        name = gpu_module.process_name(process)
        found["processes"].append({"name": name, "seen": seen})
        used = "" if memory is None else f", {memory:.0f} MiB"
        warn(
            f"{name or 'a process'} ({process}{used}) on {gpu[:12]}: another process shares this "
            "GPU, its times are not reliable"
        )

    end = time.monotonic() + SETTLE_SECONDS
    while any(not processes.lives(pid) for _, pid, _ in ask()) and time.monotonic() < end:
        time.sleep(0.5)
    before = ask()
    for gpu, process, memory in before:
        note(gpu, process, memory, "before")
    try:
        yield found
    finally:
        known = {(gpu, process) for gpu, process, _ in before}
        for gpu, process, memory in ask():
            if (gpu, process) not in known and processes.lives(process):
                note(gpu, process, memory, "during")
