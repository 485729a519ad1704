"""This module reads from a trace which share of a host the recorded program could use."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Any

from gpumon.compat import zip_strict
from gpumon.recording import Recording


@dataclass
class HostShare:
    """A program's part of a host.

    cpu: percent of the ``cores`` that it might use, and as the whole host's for as long as nothing
    limited it; None where nothing ever did. memory: MiB of the ``most`` it might use, likewise.
    """

    cpu: array[float] | None
    cores: float
    memory: array[float] | None
    memory_peaks: array[float] | None
    memory_limit: float


def host_share(recording: Recording, host: dict[str, Any]) -> HostShare:
    """The part of a host that the watched program might use.

    Where several programs of one host were recorded, each has its own part, and none is treated
    as the host's.
    """
    used, cores = _pair(recording, host, "CPU allowance", "%", "cores")
    memory, most = _pair(recording, host, "memory allowance", "MiB", "MiB")
    whole = recording.series(f"{host['name']}/cpu (%)")
    cpu = recording.series(used) if used else None
    if cpu is not None and whole is not None:
        cpu = array("d", [w if math.isnan(m) else m for m, w in zip_strict(cpu, whole)])
    if memory is None:
        return HostShare(cpu, cores, None, None, most)
    return HostShare(cpu, cores, recording.series(memory), recording.highest(memory), most)


def _pair(
    recording: Recording, host: dict[str, Any], quantity: str, used: str, amount: str
) -> tuple[str | None, float]:
    """The series of what was used, by name, and the least amount that there was to use."""
    prefix = host["name"].removesuffix("host")
    endings = f"process/{quantity} used ({used})", f"process/{quantity} ({amount})"
    keys = [
        [k for k in recording.keys if k.startswith(prefix) and _owner(k, prefix) == ending]
        for ending in endings
    ]
    if any(len(found) != 1 for found in keys):
        return None, math.nan
    series, limits = (recording.series(found[0]) for found in keys)
    if series is None or limits is None:
        return None, math.nan
    held = [limit for limit in limits if not math.isnan(limit)]
    return keys[0][0], min(held, default=math.nan)


def _owner(key: str, prefix: str) -> str:
    """A series of a process without the names of its machine and its rank."""
    rest = key.removeprefix(prefix)
    rank, colon, own = rest.partition(":")
    return own if colon and rank.startswith("rank") else rest
