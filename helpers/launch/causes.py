"""What ended a run of several ranks: the earliest cause, as one line.

One rank fails, and all others fail after it, for a connection that was closed. Each rank writes
down its own error at once, and its watcher the signal that killed it. The files' times are those of
the one filesystem, whatever the hosts' clocks say.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.frameworks.replicas import ReplicaError
from helpers.launch import letters

TOGETHER = 2e9
"""Nanoseconds in which one rank's death and the others' errors are told apart by kind."""
OUT_OF_MEMORY = 9


class RankError(ReplicaError):
    """A rank failed; the message is the earliest cause, in one line."""


def earliest(folder: Path) -> str | None:
    """The first thing that went wrong on any rank: ``rank 3 on node2: ValueError: ...``."""
    found = []
    for kind in ("error", "died"):
        for path in folder.glob(f"{kind}-*"):
            said = letters.heard(path)
            if said is not None:
                found.append((path.stat().st_mtime_ns, kind, said))
    if not found:
        return None
    first = min(time for time, _, _ in found)
    own = {said["rank"] for _, kind, said in found if kind == "error"}
    # A rank that was killed wrote nothing itself, and others may have been quicker to notice than
    # its watcher was to write.
    killed = [
        each
        for each in found
        if each[1] == "died" and each[2]["status"] < 0 and each[2]["rank"] not in own
    ]
    soon = [each for each in killed if each[0] - first < TOGETHER]
    _, kind, said = min(soon or found, key=lambda each: (each[0], each[1] == "died"))
    what = said["said"] if kind == "error" else died(said["status"])
    return f"{named(said)}: {what}"


def died(status: int) -> str:
    """How a rank ended that could not say it itself."""
    if status >= 0:
        return f"ended with exit code {status}"
    memory = "; out of memory?" if -status == OUT_OF_MEMORY else ""
    return f"killed (signal {-status}{memory})"


def named(joined: Mapping[str, Any]) -> str:
    """``rank 3 on node2``."""
    return f"rank {joined['rank']} on {joined['host']}"


def waiting(
    answered: Sequence[int], states: Mapping[int, Mapping[str, Any]], hosts: Sequence[str]
) -> str:
    """Who waits for whom: ``ranks 0 to 2 wait for rank 3 on node2``, as far as it can be told.

    A rank that has not answered waits for itself where others have; else the one with the fewest
    steps is behind, or the one that is somewhere else in its code than all others.

    Args:
        answered: the ranks that have answered.
        states: of each rank that said so, ``steps`` and ``where`` its main thread is.
        hosts: of each rank.
    """
    ranks = range(len(hosts))
    late = [rank for rank in ranks if rank not in answered]
    steps = {rank: states[rank]["steps"] for rank in late if rank in states}
    if not answered and steps and max(steps.values()) > min(steps.values()) + 1:
        late = [rank for rank in late if steps.get(rank, 0) == min(steps.values())]
    elif not answered:
        late = _elsewhere({rank: states[rank]["where"] for rank in late if rank in states}) or late
    others = [rank for rank in ranks if rank not in late]
    where = [f"rank {rank} on {hosts[rank]}" + _at(states.get(rank)) for rank in late]
    if not others:
        return f"{_several(late)} all wait, or compute" + _at(states.get(0))
    return f"{_several(others)} wait{'s' * (len(others) == 1)} for {', '.join(where)}"


def _elsewhere(where: Mapping[int, str]) -> list[int]:
    """The ranks that are where fewest are, where most are somewhere else together."""
    counts = {place: list(where.values()).count(place) for place in where.values()}
    if len(counts) < 2 or 2 * max(counts.values()) <= len(where):
        return []
    most = max(counts, key=lambda place: counts[place])
    return [rank for rank, place in where.items() if place != most]


def _at(state: Mapping[str, Any] | None) -> str:
    return f" (in {state['where']})" if state else ""


def _several(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"
