"""Describe the rank that this process is, if a launcher (``helpers.launch``) started it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

Value = TypeVar("Value")

VARIABLE = "ROSETTA_RANKS"
"""Environment variable with the folder of the run, which all that its ranks start inherit."""

SLURM_NODE = "SLURMD_NODENAME"
"""Environment variable in which Slurm says what it calls this node."""


@dataclass(frozen=True)
class Place:
    """A rank's place among the ranks; each node has the same number, in consecutive order.

    ``virtual`` nodes are on one machine, and have ``devices`` (``gpu`` or ``cpu``) each. Every rank
    has a host's name, an address ``10.0.0.1:4711`` with a port that was free when it joined, and a
    network interface. They meet at the first host's ``port`` (``MASTER_PORT``).
    """

    rank: int
    ranks: int
    nodes: int
    virtual: bool
    devices: int
    kind: str
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    interfaces: tuple[str, ...]
    port: int
    gather: Callable[[Any], list[Any]] = field(default=lambda value: [value], hash=False)
    """Gives each rank the values of all, in their order; all call it."""
    about: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What the record's section ``cluster`` says of launcher, hosts and network."""

    @property
    def ranks_a_node(self) -> int:
        return self.ranks // self.nodes

    @property
    def node(self) -> int:
        return self.rank // self.ranks_a_node

    @property
    def local_rank(self) -> int:
        return self.rank % self.ranks_a_node

    @property
    def first_host(self) -> str:
        """The address at which rank 0 is reached."""
        return self.addresses[0].rpartition(":")[0]

    def environment(self) -> dict[str, str]:
        """The variables that torchrun sets, so that a cell finds the same as a script."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_WORLD_SIZE": str(self.ranks_a_node),
            "GROUP_RANK": str(self.node),
            "MASTER_ADDR": self.first_host,
            "MASTER_PORT": str(self.port),
            "GLOO_SOCKET_IFNAME": self.interfaces[self.rank],
            "NCCL_SOCKET_IFNAME": self.interfaces[self.rank],
        }


def _unheard(said: str) -> None:
    print(said, file=sys.stderr, flush=True)


class _Here:
    place: Place | None = None
    tell_why: Callable[[str], None] = _unheard


def here() -> Place | None:
    """This process's place; None if no launcher of this project started it."""
    return _Here.place


def exchange(value: Value) -> list[Value]:
    """Every rank's value, in their order, in each of them: all make the same calls in one order.

    They wait without a device: a rank may compile for longer than a collective's timeout.
    """
    place = here()
    return [value] if place is None else place.gather(value)


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Rank 0 executes the block first, so that the others find what it downloads."""
    first = (place := here()) is None or place.rank == 0
    if not first:
        exchange(None)
    yield
    if first:
        exchange(None)


def take(place: Place, tell_why: Callable[[str], None] = _unheard) -> None:
    """From now on this process is that rank; :func:`fail` calls ``tell_why`` with its reason."""
    _Here.place, _Here.tell_why = place, tell_why  # type: ignore[method-assign]


def fail(said: str) -> None:
    """End this rank with a one-line reason, from any thread: the main thread may wait for ever."""
    _Here.tell_why(said)
    os._exit(1)
