"""Detect other processes on a run's GPUs, because they make the run's times unreliable.

gpumon lists the processes of all users that compute on a GPU. Before the run's processes start and
after they have ended, all of them are others'. NVML reports the machine's process ids, which are
unknown inside a container. An unknown id counts before the run, but not after it, when it may be
one of the run's that the driver still lists.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpumon import gpu_processes
from gpumon.series import Unavailable
from helpers.launch import processes

SETTLE_SECONDS = 3.0
"""The time for the driver to forget processes that have just ended."""


@dataclass(frozen=True)
class OtherProcess:
    """A process of another user or experiment; ``gpu`` is a UUID, ``seen`` is before or during."""

    gpu: str
    process: int
    name: str | None
    memory_mib: float | None
    seen: str

    def __str__(self) -> str:
        memory = "" if self.memory_mib is None else f", {self.memory_mib:.0f} MiB"
        return f"{self.name or 'a process'} ({self.process}{memory}) on {self.gpu[:12]}"


class Watch:
    """``with Watch(uuids, warn) as watch:`` around a run on these GPUs, if any.

    ``warn`` is called with one line for each other process.
    """

    def __init__(self, uuids: Sequence[str], warn: Callable[[str], None]) -> None:
        self._uuids, self._warn = list(uuids), warn
        self._found: dict[tuple[str, int], OtherProcess] = {}
        self._reason: str | None = None

    def __enter__(self) -> "Watch":
        end = time.monotonic() + SETTLE_SECONDS
        seen = self._ask()
        while any(not processes.lives(pid) for _, pid, _ in seen) and time.monotonic() < end:
            time.sleep(0.5)
            seen = self._ask()
        for gpu, process, memory in seen:
            self._note(gpu, process, memory, "before")
        return self

    def __exit__(self, *_: object) -> None:
        for gpu, process, memory in self._ask():
            if (gpu, process) not in self._found and processes.lives(process):
                self._note(gpu, process, memory, "during")

    def as_record(self) -> dict[str, Any]:
        """The record's section ``other_processes``, as a dictionary to merge; {} without GPUs."""
        if not self._uuids:
            return {}
        found = [asdict(other) for other in self._found.values()]
        return {"other_processes": {"processes": found, "reason": self._reason}}

    def _note(self, gpu: str, process: int, memory: float | None, seen: str) -> None:
        other = OtherProcess(gpu, process, gpu_processes.process_name(process), memory, seen)
        self._found[gpu, process] = other
        self._warn(f"{other}: another process shares this GPU, its times are not reliable")

    def _ask(self) -> list[tuple[str, int, float | None]]:
        try:
            return gpu_processes.compute_processes(self._uuids) if self._uuids else []
        except Unavailable as error:
            if self._reason is None:
                self._reason = f"the driver does not list the processes on the GPUs ({error})"
                self._warn(self._reason)
            return []
