"""Be a rank that torchrun has started, for a notebook that was converted to a script."""

import os
import pickle
import socket
from collections.abc import MutableMapping
from datetime import timedelta
from importlib.metadata import version
from itertools import count
from typing import Any

from helpers.errors import UserError
from helpers.frameworks import rank_info
from helpers.launch import place

IN_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""torchrun's variables by which a process knows that it was started as one of several."""
LONGEST_WAIT = timedelta(days=1)
"""A rank may download or compile for long while the others wait for it."""


def started_this() -> bool:
    """Whether torchrun, and not a launcher of this project, has started this process."""
    return rank_info.here() is None and all(name in os.environ for name in IN_RANKS)


def join(values: MutableMapping[str, Any]) -> None:
    """Take this rank's place, and set the parameter ``devices`` to the ranks of each machine.

    Raises:
        UserError: ``devices`` is another number.
    """
    from torch.distributed.rendezvous import rendezvous

    rank, ranks, here = (int(os.environ[name]) for name in IN_RANKS)
    if str(values.get("devices", "auto")) not in ("auto", str(here)):
        said = f"devices is {values['devices']!r}, and torchrun started {here} processes on each"
        raise UserError(f"{said} machine")
    values["devices"] = here
    store, *_ = next(rendezvous("env://", timeout=LONGEST_WAIT))
    numbers = count()

    def gather(value: Any) -> list[Any]:
        key = f"rosetta-{next(numbers)}"
        store.set(f"{key}-{rank}", pickle.dumps(value))
        return [pickle.loads(store.get(f"{key}-{each}")) for each in range(ranks)]

    about = {"launcher": "torchrun", "launcher_version": version("torch")}
    order = {"nodes": ranks // here, "devices": here, "kind": "", "interface": "", "about": about}
    rank_info.take(place.of_all(gather, rank, socket.gethostname(), order))
