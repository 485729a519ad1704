"""Read the prices of machine hours from the command line: ``--price 12.24/h``."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.errors import UserError
from helpers.results import comparability

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
        cluster = content.get("cluster")
        hosts = [str(content["run"]["host"])]
        if cluster and comparability.nodes(content) > 1 and not cluster["simulated"]:
            hosts = [str(host["name"]) for host in cluster["hosts"]]
        found = [self.hosts.get(host, self.any) for host in hosts]
        return None if None in found else sum(price for price in found if price is not None)

    def text(self, amount: float) -> str:
        """``3.06``, with its currency behind it."""
        return f"{amount:,.2f} {self.currency}".strip()


def read(texts: Iterable[str]) -> Prices | None:
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
