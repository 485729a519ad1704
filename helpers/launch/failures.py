"""Find the earliest cause that ended a run of several ranks, and report it in one line.

If one rank fails, all others fail after it, because their connection was closed. Each rank prints
its error with the time in one line, and its parent process how it ended.
"""

from __future__ import annotations

import json
import os
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


def earliest(told: Sequence[Mapping[str, Any]]) -> RankError | None:
    """The first thing that went wrong on any rank: ``rank 3 on node2: ValueError: ...``.

    If the first rank that ended said nothing, the errors of others follow from its death.
    """
    spoke = {said["rank"] for said in told if "error" in said or "done" in said}
    errors = [said for said in told if "error" in said]
    ended = next((said for said in told if "ended" in said), None)
    if ended and ended["rank"] not in spoke:
        return RankError(f"rank {ended['rank']} on {ended['host']}: {ended['ended']}")
    first = min(errors, key=lambda said: float(said["time"]), default=None)
    return None if first is None else RankError(first["error"], first["ename"])


def how(code: int) -> str:
    """How a process ended, by its exit code; negative: by a signal, as ``subprocess`` has it."""
    if code == -signal.SIGKILL:
        return "killed (signal 9; out of memory?)"
    return f"killed (signal {-code})" if code < 0 else f"ended with exit code {code}"
