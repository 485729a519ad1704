"""Find a rank's place among all ranks: each reports its host, and all derive the same layout."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers import network
from helpers.frameworks import devices
from helpers.frameworks.rank_info import Place

Gather = Callable[[Any], list[Any]]


def of_all(gather: Gather, rank: int, host: str, order: Mapping[str, Any]) -> Place:
    """The place of this process among all ranks, which call this at the same time.

    ``host`` is what the launcher calls this machine. ``order`` has the ``nodes`` and the
    ``devices`` of each, their ``kind``, the ``interface`` that the user named, and ``about`` the
    launcher.
    """
    machine = {"cpus": os.cpu_count(), "gpus": [gpu.name for gpu in devices.visible()]}
    own = {"host": host, "on": socket.gethostname(), "addresses": network.addresses()}
    free = [network.free_port() for _ in range(2)]
    joined = gather({**own, "machine": machine, "ports": free})
    on = [said["on"] for said in joined]
    addresses = {said["on"]: said["addresses"] for said in joined}
    found = network.common(addresses, on[0], order["interface"])
    where, ports = [found[machine] for machine in on], [said["ports"] for said in joined]
    interfaces = tuple(name for name, _ in where)
    virtual = order["nodes"] > 1 and len(set(on)) == 1
    about = {"nodes": order["nodes"], "simulated": virtual}
    about |= {"interface": network.summary(interfaces), "hosts": _machines(joined)}
    return Place(
        rank=rank,
        ranks=len(joined),
        nodes=order["nodes"],
        virtual=virtual,
        devices=order["devices"],
        kind=order["kind"],
        hosts=tuple(said["host"] for said in joined),
        addresses=tuple(f"{ip}:{port[0]}" for (_, ip), port in zip(where, ports, strict=True)),
        interfaces=interfaces,
        port=ports[0][1],
        gather=gather,
        about=about | order["about"],
    )


def _machines(joined: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each host: its name, CPUs, GPUs and ranks."""
    found: dict[str, dict[str, Any]] = {}
    for rank, said in enumerate(joined):
        host = said["host"]
        found.setdefault(host, {"name": host, **said["machine"], "ranks": []})["ranks"].append(rank)
    return list(found.values())
