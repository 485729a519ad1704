"""Find the earliest cause that ended a run of several ranks, and report it in one line.

One rank fails, and all others fail after it, for a connection that was closed. Each rank writes
down its own error at once, and the process above it the signal that killed it. The files' times are
those of the one filesystem, whatever the hosts' clocks say.
"""

import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.errors import Plain
from helpers.launch import run_files

TOGETHER = 2e9
"""Nanoseconds in which one rank's death and the others' errors are distinguished by kind."""
OUT_OF_MEMORY = 9


class RankError(Plain, RuntimeError):
    """A rank failed; the message is the earliest cause, in one line.

    ``ename`` and ``evalue`` are type and message of the error of a cell; empty where a rank died.
    """

    def __init__(self, said: str, ename: str = "", evalue: str = "") -> None:
        super().__init__(said)
        self.ename, self.evalue = ename, evalue


def earliest(folder: Path) -> RankError | None:
    """The first thing that went wrong on any rank: ``rank 3 on node2: ValueError: ...``.

    What a user can put right is every rank's alike, and so rank 0 says it for all.
    """
    found = []
    for kind in ("error", "died"):
        for path in folder.glob(f"{kind}-*"):
            said = run_files.read(path)
            if said is not None:
                found.append((path.stat().st_mtime_ns, kind, said))
    if not found:
        return None
    first = min(time for time, _, _ in found)
    own = {said["rank"]: said for _, kind, said in found if kind == "error"}
    # A rank that was killed wrote nothing itself, and others may have been quicker to notice than
    # the process above it was to write. One that has aborted may be among those that noticed: JAX
    # aborts a process whose partner is gone.
    soon = [
        (time, kind, said)
        for time, kind, said in found
        if time - first < TOGETHER and kind == "died" and said["rank"] not in own
        if said["status"] < 0 and said["status"] != -signal.SIGABRT
    ]
    _, kind, said = min(soon or found, key=lambda each: (each[0], each[1] == "died"))
    if kind == "died":
        return RankError(f"{named(said)}: {died(said['status'])}")
    of_all = own.get(0, {})
    if said["for users"] and of_all.get("ename") == said["ename"]:
        return RankError(of_all["said"], of_all["ename"], of_all["evalue"])
    return RankError(f"{named(said)}: {said['said']}", said["ename"], said["evalue"])


def died(status: int) -> str:
    """How a rank ended that could not say it itself."""
    if status == 0:
        return "ended before its notebook did (exit code 0)"
    if status > 0:
        return f"ended with exit code {status}"
    memory = "; out of memory?" if -status == OUT_OF_MEMORY else ""
    return f"killed (signal {-status}{memory})"


def named(joined: Mapping[str, Any]) -> str:
    """``rank 3 on node2``."""
    return f"rank {joined['rank']} on {joined['host']}"


def where(
    states: Mapping[int, Mapping[str, Any]], hosts: Sequence[str], done: Collection[int]
) -> str:
    """Where each rank is, of those that hang: ``rank 3 on node2 in read, png.py:7 after 16 steps``.

    ``states`` are those of each rank that said so, ``done`` the ranks that have come to the
    notebook's end.
    """
    found: dict[str, list[int]] = {}
    for rank in range(len(hosts)):
        state = states.get(rank)
        at = f"in {state['where']} after {state['steps']} steps" if state else "not heard of"
        found.setdefault("at the end" if rank in done else at, []).append(rank)
    return "; ".join(f"{_several(ranks, hosts)} {at}" for at, ranks in found.items())


def _several(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} on {hosts[ranks[0]]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
