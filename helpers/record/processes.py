"""Identify the process that a file names: its number is another's on other hosts, or later."""

import os
import socket
from collections.abc import Mapping
from typing import Any

import psutil


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
    # In seconds: told from the clock on the wall, a start may seem to move.
    return abs(said.get("process_started", now) - now) < 2.0


def lives(process: int) -> bool:
    """Whether the process still runs; of a zombie, whether threads but the main one still do."""
    try:
        found = psutil.Process(process)
        return found.status() != psutil.STATUS_ZOMBIE or found.num_threads() > 1
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
