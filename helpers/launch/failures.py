"""Find the earliest cause that ended a run of several ranks, and report it in one line.

If one rank fails, all others fail after it, because their connection was closed. Each rank prints
its error with the time in one line; for a killed rank, the launcher does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from helpers.errors import FOR_USERS, Plain, in_a_line

MARK = "@rank "
"""What a line begins with that a rank tells the runner; JSON follows."""
LONGEST = 1000
"""Characters of an error's line: a longer one might not arrive whole."""
SIGNALS = (4, 6, 7, 8, 9, 11, 15)
"""ILL, ABRT, BUS, FPE, KILL, SEGV, TERM; mpiexec prints a signal's number as an exit code's."""
_DIED = re.compile(r"PID (\d+) RUNNING AT (\S+)\n=   EXIT CODE: (\d+)")
"""What mpiexec prints of the first process that has died."""


class RankError(Plain, RuntimeError):
    """A rank failed; the message is the earliest cause, in one line.

    ``ename`` is the type of the error of a cell; empty if a rank died.
    """

    def __init__(self, said: str, ename: str = "") -> None:
        super().__init__(said)
        self.ename = ename


def tell(**what: Any) -> None:
    """Tell the runner something in a line among all that is printed."""
    os.write(2, f"\n{MARK}{json.dumps(what)}\n".encode())


def tell_why(rank: int, host: str, error: BaseException | str, **more: Any) -> None:
    """Tell the runner why this rank ends; without a ``host`` it is the only process.

    A user's mistake is every rank's alike.
    """
    kind = "" if isinstance(error, str) else type(error).__name__
    said = error if isinstance(error, str) else in_a_line(error)
    if host and isinstance(error, FOR_USERS):
        said = str(error).partition("\n")[0]
    elif host:
        said = f"rank {rank} on {host}: {said}"
    tell(rank=rank, error=said[:LONGEST], ename=kind, time=time.time(), **more)


def heard(line: str) -> dict[str, Any] | None:
    """The message in a rank's printed line; None if the line has none."""
    with suppress(ValueError):
        if line.startswith(MARK):
            return dict(json.loads(line.removeprefix(MARK)))
    return None


def earliest(told: Sequence[Mapping[str, Any]], printed: str) -> RankError | None:
    """The first thing that went wrong on any rank: ``rank 3 on node2: ValueError: ...``.

    ``told`` is by the ranks. The launcher has ``printed`` at its end the first process that has
    died; the errors of others follow from that.
    """
    errors = {said["rank"]: said for said in told if "error" in said}
    if died := _DIED.search(printed):
        process, host, number = int(died[1]), died[2], int(died[3])
        joined = (said for said in told if said.get("process") == process)
        victim = next(joined, {"rank": "of unknown number", "host": host})
        if victim["rank"] not in errors:
            return RankError(f"rank {victim['rank']} on {victim['host']}: {how(number)}")
    first = min(errors.values(), key=lambda said: float(said["time"]), default=None)
    return None if first is None else RankError(first["error"], first["ename"])


def how(number: int) -> str:
    """What an exit code says, or a signal's number."""
    if number == signal.SIGKILL:
        return "killed (signal 9; out of memory?)"
    return f"killed (signal {number})" if number in SIGNALS else f"ended with exit code {number}"
