"""Distinguish the machines of runs by their hardware, and price their hours.

Hosts of equal hardware count as one machine, as the nodes of a cluster do, or a container that has
another name each time.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.errors import UserError
from helpers.results import comparability

Key = tuple[str, int, int]
"""CPU, its logical cores, GiB of memory. GPUs are known from the devices of a run."""


def key(content: Mapping[str, Any]) -> Key | None:
    """What tells a run's machine from another; None where it ended before it knew."""
    hardware = content.get("hardware")
    if hardware is None:
        return None
    return hardware["cpu"], hardware["cores"], _installed(hardware["memory_bytes"] / 2**30)


def models(devices: Mapping[str, Any]) -> str:
    """The models of a run's devices, each once: ``NVIDIA A100, NVIDIA H100``."""
    return ", ".join(dict.fromkeys(devices["names"]))


def _installed(memory: float) -> int:
    """The size of the memory modules (12, 16, 24, 32 ... GiB) of a machine with so much for use.

    The kernel keeps a share, which differs by megabytes between machines that are the same.
    """
    above: int = 2 ** max(2, math.ceil(math.log2(max(memory, 1))))
    return above * 3 // 4 if memory <= above * 3 // 4 else above


def cores_per_device(content: Mapping[str, Any]) -> str:
    """``2`` physical cores that compute; ``1 and 2`` where its CPU devices differ.

    Nothing where none has cores of its own.
    """
    threads = {cpu["threads"] for cpu in content["devices"].get("cpus", [])}
    return " and ".join(map(str, sorted(threads)))


def names(contents: Sequence[Mapping[str, Any]]) -> list[str]:
    """``box``, each run's machine by its host; nothing of runs that know none.

    Of several hosts the first is named; where two machines have the same, the CPU is said too.
    """
    hosts: dict[Key, str] = {}
    keys = [key(content) for content in contents]
    for found, content in zip(keys, contents, strict=True):
        if found is not None:
            hosts.setdefault(found, str(content["run"]["host"]))
    taken = list(hosts.values())
    said = {
        found: host
        if taken.count(host) == 1
        else f"{host} ({found[0]}, {found[1]} logical cores, {found[2]} GiB)"
        for found, host in hosts.items()
    }
    return ["" if found is None else said[found] for found in keys]


MOST = 1e9
_PRICE = re.compile(
    r"(?:(?P<host>[^=\s]{1,100})=)?(?P<before>[^\d\s.,=/-]{0,5}) ?"
    r"(?P<amount>\d+(?:\.\d+)?) ?(?P<after>[^\d\s.,=/-]{0,5})/h"
)


@dataclass(frozen=True)
class Prices:
    """An hour of one machine: of each host that is named, and of any other (``any``)."""

    any: float | None = None
    hosts: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""

    def an_hour(self, content: Mapping[str, Any]) -> float | None:
        """All machines of a run together; None where one has no price."""
        found = [self.hosts.get(host, self.any) for host in comparability.hosts_of(content)]
        return None if None in found else sum(price for price in found if price is not None)


def read_prices(texts: Iterable[str]) -> Prices | None:
    """``12.24/h``, ``12.24 EUR/h``, ``$12.24/h``, ``box=3.06/h``; None without any.

    Raises:
        UserError: one is no price, a machine has two, or there are two currencies.
    """
    hosts: dict[str | None, float] = {}
    currencies = set()
    for text in texts:
        found = _PRICE.fullmatch(text.strip())
        amount = float(found["amount"]) if found else math.nan
        if found is None or not 0 <= amount <= MOST or (found["before"] and found["after"]):
            raise UserError(
                f"--price {text[:60]}: no price of a machine's hour; write 12.24/h, 12.24 EUR/h, "
                "or box=12.24/h for the machine called box"
            )
        if found["host"] in hosts:
            which = found["host"] or "any machine"
            raise UserError(f"--price {text[:60]}: {which} has a price already; give one each")
        hosts[found["host"]] = amount
        currencies.add(found["before"] or found["after"])
    if len(currencies) > 1:
        said = ", ".join(sorted(currency or "none" for currency in currencies))
        raise UserError(f"--price: several currencies ({said}); give all prices in one")
    if not hosts:
        return None
    other = hosts.pop(None, None)
    return Prices(other, {host: price for host, price in hosts.items() if host}, currencies.pop())
