"""Whether processes have ended, and where those that are killed leave their files."""

import os
import tempfile
import time

import psutil

from helpers.launch.processes import lives


def ended(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends in time. A zombie has ended: who has to wait for it may be late."""
    deadline = time.monotonic() + seconds
    while lives(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def group_ended(group: int, seconds: float = 60.0) -> bool:
    """Whether all processes of a group end in time."""
    members = [pid for pid in psutil.pids() if group_of(pid) == group]
    deadline = time.monotonic() + seconds
    return all(ended(pid, max(0.0, deadline - time.monotonic())) for pid in members)


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def own_temporary_folder() -> str:
    """One for programs that are killed: the system removes what they leave there."""
    return tempfile.mkdtemp(prefix="k")
