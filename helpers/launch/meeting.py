"""Where a run's ranks turned out to be, and what each is told of all."""

from collections.abc import Mapping, Sequence
from typing import Any

from helpers import network
from helpers.errors import UserError
from helpers.launch.engines import Engine

Joined = Mapping[str, Any]
"""What a rank said of itself when it joined (``rank._join``)."""


def machines(joined: Sequence[Joined]) -> list[dict[str, Any]]:
    """Each host: its name, CPUs, GPUs and ranks."""
    found: dict[str, dict[str, Any]] = {}
    for rank, said in enumerate(joined):
        host = said["host"]
        found.setdefault(host, {"name": host, **said["machine"], "ranks": []})["ranks"].append(rank)
    return list(found.values())


def check_hosts(engine: Engine, joined: Sequence[Joined], nodes: int) -> None:
    """Whether the hosts that came are those that were asked for.

    Raises:
        UserError: they are not.
    """
    hosts, size = [said["host"] for said in joined], len(joined) // nodes
    by_node = [hosts[first : first + size] for first in range(0, len(hosts), size)]
    wanted = 1 if engine.virtual else nodes
    if len(set(hosts)) != wanted or any(len(set(each)) > 1 for each in by_node):
        raise UserError(
            f"{wanted} host(s) with {size} rank(s) for each node were asked for; the ranks are "
            f"on {', '.join(hosts)}"
        )


def place_of_all(engine: Engine, joined: Sequence[Joined], nodes: int) -> dict[str, Any]:
    """What each rank is told, as ``helpers.frameworks.place.Place`` has it.

    Raises:
        UserError: no network joins their hosts.
    """
    on = [said["on"] for said in joined]
    found = network.common(
        {said["on"]: said["addresses"] for said in joined}, on[0], engine.interface
    )
    where, ports = [found[machine] for machine in on], [said["ports"] for said in joined]
    return {
        "ranks": len(joined),
        "nodes": nodes,
        "virtual": nodes > 1 and len(set(on)) == 1,
        "hosts": tuple(said["host"] for said in joined),
        "addresses": tuple(f"{ip}:{port[0]}" for (_, ip), port in zip(where, ports, strict=True)),
        "interfaces": tuple(name for name, _ in where),
        "port": ports[0][1],
    }
