"""Identify the process that a file names, and find out if it still runs.

A process number alone is not enough: another host has a process of the same number, and this host
reuses numbers. So a process also writes down its host, the boot and the namespace of its number,
and its start time.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil


def own() -> dict[str, Any]:
    """This process, for a file that others read."""
    process = os.getpid()
    return {
        "process": process,
        "process_ticks": _ticks(process),
        "process_space": _space(),
        "host": socket.gethostname(),
    }


def runs(said: Mapping[str, Any]) -> bool | None:
    """Whether the process that :func:`own` described still runs; None if this host cannot know."""
    space, here = said.get("process_space"), _space()
    if space is None or here is None:
        if said["host"] != socket.gethostname():
            return None
    elif space != here:
        same_host, other_boot = said["host"] == socket.gethostname(), boot(space) != boot(here)
        return False if same_host and other_boot else None
    if not lives(said["process"]):
        return False
    began, now = said.get("process_ticks"), _ticks(said["process"])
    return began is None or now is None or began == now


def lives(process: int) -> bool:
    """Whether it still runs. A zombie (dead, not yet reaped by its parent) does not.

    Some parents take over a second to reap, and the first process of many containers never does.
    A process of which the main thread alone has ended looks like a zombie, but holds its GPU.
    """
    try:
        with (found := psutil.Process(process)).oneshot():
            return found.status() != psutil.STATUS_ZOMBIE or found.num_threads() > 1
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def named(said: Mapping[str, Any]) -> str:
    """``process 4711 on node2``."""
    return f"process {said['process']} on {said['host']}"


def boot(space: str | None) -> str:
    """The part that all processes of a machine share until it starts again."""
    return (space or "").partition(" ")[0]


def here() -> str:
    """This machine since its last start, for a file's name; its host's name where it has none."""
    return boot(_space()) or socket.gethostname()


def _space() -> str | None:
    """The machine's boot, and the namespace in which its processes have their numbers."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink().name}"
    except (OSError, UnicodeDecodeError):
        return None


def _ticks(process: int) -> int | None:
    """The start time of a process, in clock ticks since the machine's; None where it is unknown.

    The system reuses a free process number, but never sets this clock back.
    """
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
