"""Find a rank's place among all ranks: each reports its host, and all derive the same layout."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from helpers import network
from helpers.frameworks.rank_info import Place

Gather = Callable[[Any], list[Any]]


def of_all(gather: Gather, rank: int, host: str, order: Mapping[str, Any]) -> Place:
    """The place of this process among all ranks, which call this at the same time.

    ``host`` is what the launcher calls this machine. ``order`` has the ``nodes`` and the
    ``devices`` of each, their ``kind``, the ``interface`` that the user named, and ``about`` the
    launcher.
    """
    own = {"host": host, "on": socket.gethostname(), "addresses": network.addresses()}
    free = [network.free_port() for _ in range(2)]
    joined = gather({**own, "ports": free})
    on = [said["on"] for said in joined]
    addresses = {said["on"]: said["addresses"] for said in joined}
    found = network.common(addresses, on[0], order["interface"])
    where, ports = [found[machine] for machine in on], [said["ports"] for said in joined]
    interfaces = tuple(name for name, _ in where)
    virtual = order["nodes"] > 1 and len(set(on)) == 1
    hosts = [*dict.fromkeys(said["host"] for said in joined)]
    about: dict[str, Any] = {"nodes": order["nodes"], "simulated": virtual}
    about |= {"interface": ", ".join(dict.fromkeys(interfaces)), "hosts": hosts}
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
