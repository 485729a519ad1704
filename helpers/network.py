"""Find the network interface by which the ranks reach each other, and a free port."""

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from helpers.errors import UserError

NAMED = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Environment variables that name an interface."""
Addresses = Mapping[str, tuple[str, str]]
"""A host's interfaces: IPv4 address and netmask of each."""


def addresses() -> dict[str, tuple[str, str]]:
    """This host's interfaces that are up, loopback among them."""
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    return {
        name: (each.address, each.netmask or "255.255.255.255")
        for name, found in psutil.net_if_addrs().items()
        for each in found
        if each.family == socket.AF_INET and name in up
    }


def free_port() -> int:
    """A TCP port on which no process listens now."""
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def loopback() -> tuple[str, str]:
    """The interface that only this machine reaches, and its address."""
    return next((name, ip) for name, (ip, _) in addresses().items() if ip.startswith("127."))


def common(hosts: Mapping[str, Addresses], first: str, named: str = "") -> dict[str, Any]:
    """An interface and its address for each host, so that all are in one network.

    Where the name of the ``first`` host stands for an address of such a network, as on a cluster
    with several, that network is taken. ``named`` is the interface to use; else it is found.
    """
    if len(hosts) == 1:
        return dict.fromkeys(hosts, loopback())
    networks: dict[str, dict[str, tuple[str, str]]] = {}
    for host, of in hosts.items():
        for name, (ip, mask) in of.items():
            network = ipaddress.ip_network(f"{ip}/{mask}", strict=False)
            if not network.is_loopback and (not named or name == named):
                key = named or str(network)
                networks.setdefault(key, {}).setdefault(host, (name, ip))
    shared = [
        found
        for found in networks.values()
        # A bridge for containers has the same address everywhere, and leads nowhere.
        if len({ip for _, ip in found.values()}) == len(hosts)
    ]
    if not shared:
        which = f"the interface {named} of each" if named else "an interface of each"
        raise UserError(
            f"{', '.join(hosts)} share no network by {which}: name an interface that all have, "
            f"such as {NAMED[1]}=eth0"
        )
    known = None
    with suppress(OSError):  # a name that no one knows
        known = socket.gethostbyname(first)
    return next((found for found in shared if found[first][1] == known), shared[0])
