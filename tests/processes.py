"""Whether processes have ended, and where those that are killed leave their files."""

import tempfile
import time

from helpers.record.processes import lives


def ended(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends in time. A zombie has ended: who has to wait for it may be late."""
    deadline = time.monotonic() + seconds
    while lives(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def own_temporary_folder() -> str:
    """One for programs that are killed: the system removes what they leave there."""
    return tempfile.mkdtemp(prefix="k")
