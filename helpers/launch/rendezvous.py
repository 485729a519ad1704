"""The rendezvous of a run's ranks: each writes down its host, and all derive the same layout."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import network
from helpers.errors import UserError
from helpers.frameworks import devices
from helpers.frameworks.rank_info import Place
from helpers.launch import run_files

Joined = Mapping[str, Any]
"""What a rank says of itself when it joins."""


def join(folder: Path, order: Mapping[str, Any], rank: int, host: str) -> Place:
    """Join the other ranks; every rank waits until all have joined.

    ``order`` is the launcher's, which is in the ``folder`` too (``helpers.runner.ranks.Order``);
    ``host`` is what the launcher calls this rank's machine.
    """
    own = {"rank": rank, "host": host, "process": os.getpid(), "on": socket.gethostname()}
    own["machine"] = {"cpus": os.cpu_count(), "gpus": devices.visible_gpus()}
    own |= {"addresses": network.addresses(), "ports": [network.free_port() for _ in range(2)]}
    run_files.write(folder / f"joined-{rank}", own)
    joined = run_files.wait_for_all(folder, "joined", order["ranks"])
    check_hosts(joined, order["nodes"], virtual=order["virtual"])
    return place_of_all(folder, order, joined, rank)


def check_hosts(joined: Sequence[Joined], nodes: int, *, virtual: bool) -> None:
    """Whether the hosts that came are those that were asked for."""
    hosts, size = [said["host"] for said in joined], len(joined) // nodes
    by_node = [hosts[first : first + size] for first in range(0, len(hosts), size)]
    wanted = 1 if virtual else nodes
    if len(set(hosts)) != wanted or any(len(set(each)) > 1 for each in by_node):
        raise UserError(
            f"expected {wanted} host(s) with {size} rank(s) for each node, but the ranks are "
            f"on {', '.join(hosts)}"
        )


def place_of_all(
    folder: Path, order: Mapping[str, Any], joined: Sequence[Joined], rank: int
) -> Place:
    """A rank's place among all."""
    on, nodes = [said["on"] for said in joined], order["nodes"]
    found = network.common(
        {said["on"]: said["addresses"] for said in joined}, on[0], order["interface"]
    )
    where, ports = [found[machine] for machine in on], [said["ports"] for said in joined]
    interfaces = tuple(name for name, _ in where)
    virtual = nodes > 1 and len(set(on)) == 1
    about = {"nodes": nodes, "simulated": virtual, "interface": network.summary(interfaces)}
    return Place(
        rank=rank,
        ranks=len(joined),
        nodes=nodes,
        virtual=virtual,
        devices=order["devices"],
        kind=order["kind"],
        hosts=tuple(said["host"] for said in joined),
        addresses=tuple(f"{ip}:{port[0]}" for (_, ip), port in zip(where, ports, strict=True)),
        interfaces=interfaces,
        port=ports[0][1],
        folder=folder,
        about=about | order["launcher"] | {"hosts": machines(joined)},
    )


def machines(joined: Sequence[Joined]) -> list[dict[str, Any]]:
    """Each host: its name, CPUs, GPUs and ranks."""
    found: dict[str, dict[str, Any]] = {}
    for rank, said in enumerate(joined):
        host = said["host"]
        found.setdefault(host, {"name": host, **said["machine"], "ranks": []})["ranks"].append(rank)
    return list(found.values())
