"""Identify the process that a file names, and find out if it still runs.

A number alone is not enough: other hosts have it too, and this host uses it again.
"""

import os
import socket
from collections.abc import Mapping
from typing import Any

import psutil

SAME_SECONDS = 2.0
"""By which a process's start may seem to move: it is told from the clock on the wall."""


def own() -> dict[str, Any]:
    """Describe this process, for a file that others read."""
    started = psutil.Process().create_time()
    return {"process": os.getpid(), "process_started": started, "host": socket.gethostname()}


def runs(said: Mapping[str, Any]) -> bool | None:
    """Whether the process that :func:`own` described still runs; None if this host cannot know."""
    if said["host"] != socket.gethostname():
        return None
    if not lives(said["process"]):
        return False
    now = psutil.Process(said["process"]).create_time()
    return abs(said.get("process_started", now) - now) < SAME_SECONDS


def lives(process: int) -> bool:
    """Whether the process still runs. A zombie (dead, not yet reaped by its parent) does not.

    A process of which the main thread alone has ended looks like a zombie, but holds its GPU.
    """
    try:
        with (found := psutil.Process(process)).oneshot():
            return found.status() != psutil.STATUS_ZOMBIE or found.num_threads() > 1
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
