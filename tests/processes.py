"""Whether processes have ended, for tests that look for what is left over."""

import time
from pathlib import Path


def ended(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends in time. A zombie has ended: who has to wait for it may be late."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def group_ended(group: int, seconds: float = 60.0) -> bool:
    """Whether all processes of a group end in time."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            members.append(int(stat.parent.name))
    deadline = time.monotonic() + seconds
    return all(ended(pid, max(0.0, deadline - time.monotonic())) for pid in members)
