"""What the tests of runs over two nodes share: a small recipe, deaths, and what is left."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from notebook_cells import SIDE

from helpers.frameworks import rank_info

Found = Mapping[str, Any]
Names = dict[str, Any]
EPOCHS = 2
END_SECONDS = 15
"""In which nothing of a run may be left whose rank has died."""
SMALL = f'recipe = "demo"\n[model]\nnetwork = "resnet44"\n[data]\nimage_size = {SIDE}\ncrop = 32\n'


def different(one: Found, other: Found, limit: float) -> dict[str, float]:
    """By how much numbers differ, of those that differ by more than ``limit``."""
    assert one.keys() == other.keys()
    apart = {name: float(np.abs(np.subtract(one[name], other[name])).max()) for name in one}
    return {name: by for name, by in apart.items() if not by <= limit}


def kill(victims: Callable[[], list[int]]) -> None:
    for victim in victims():
        os.kill(victim, signal.SIGKILL)


def itself() -> list[int]:
    return [os.getpid()]


def its_server() -> list[int]:
    children = psutil.Process().children()
    return [child.pid for child in children if child.environ().get("DMLC_ROLE") == "server"]


def started_for(folder: Path) -> list[str]:
    """Processes that a run's launcher has started, or one of its ranks."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        environ = process.info["environ"] or {}
        if environ.get(rank_info.VARIABLE) == str(folder):
            found.append(" ".join(process.info["cmdline"] or []))
    return found
