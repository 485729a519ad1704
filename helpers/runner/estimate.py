"""Estimate the time of planned runs from earlier runs on this machine.

Only earlier runs with the same notebook, environment, recipe, precision, execution, epochs, batch
size, loader workers, data folder and devices on this host count. Without such a run there is no
estimate.
"""

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from helpers import record
from helpers.errors import UserError
from helpers.frameworks import cpu_cores, run_label
from helpers.frameworks import devices as device_helpers
from helpers.recipe import lookup
from helpers.runner import journal
from helpers.runner.plans import Plan, RunState
from helpers.training import image_folders, image_readers

LATEST = 5
"""The number of latest runs whose median is used, because they ran today's code and driver."""

Key = tuple[Any, ...]
"""Label, recipe, precision and execution, settings, data folder, devices, host."""


@dataclass(frozen=True)
class Estimate:
    """Seconds, the median of ``runs`` earlier runs that took ``low`` to ``high``."""

    seconds: float
    low: float
    high: float
    runs: int


class History:
    """The times of earlier runs, read once from the records under ``runs/``."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._keys: dict[tuple[Any, ...], Key] = {}
        self._seconds: dict[Key, list[float]] = {}
        for _, key, seconds in sorted(_earlier(), key=lambda row: row[0]):
            self._seconds.setdefault(key, []).append(seconds)

    def of(self, state: RunState) -> Estimate | None:
        """The estimate for a planned run; None if no comparable run exists."""
        known = self._seconds.get(self._key(state), [])[-LATEST:]
        if not known:
            return None
        return Estimate(median(known), min(known), max(known), len(known))

    def add(self, state: RunState) -> None:
        """Add a finished run of this plan to the history, for the estimates of later runs."""
        if state.state == "finished" and state.seconds is not None:
            self._seconds.setdefault(self._key(state), []).append(state.seconds)

    def _key(self, state: RunState) -> Key:
        how = state.precision, state.execution
        where = (state.label, state.devices, state.nodes, *how)
        if where not in self._keys:
            found = device_helpers.resolve(state.devices, cpu_cores.SHARED)
            name = self._plan.recipe
            if name == "auto":
                name = "chexnet" if found.kind == "gpu" else "demo"
            recipe = lookup(name, demo=found.kind == "cpu")
            data = recipe.folder if self._plan.data == "auto" else self._plan.data
            self._keys[where] = (
                state.label,
                recipe.name,
                (state.precision, _chosen(state.execution, recipe.execution)),
                _asked(self._plan, recipe.epochs, recipe.batch_size),
                image_readers.called(recipe, image_folders.data_folder(recipe, data)),
                found.kind,
                (str(state.nodes), *found.names * state.nodes),
                socket.gethostname(),
            )
        return self._keys[where]


def total(history: History, states: Iterable[RunState]) -> tuple[float, int]:
    """Seconds of the runs that can be estimated, and how many cannot."""
    estimates = [history.of(state) for state in states]
    known = [estimate.seconds for estimate in estimates if estimate is not None]
    return sum(known), len(estimates) - len(known)


def _earlier() -> Iterable[tuple[str, Key, float]]:
    """The start, key and seconds of every finished run of every experiment.

    The runner's time is used, which includes the kernel's start. Notebooks that a user runs by hand
    do not count, because their time includes pauses.
    """
    for folder in journal.folders():
        try:
            plan = journal.read(folder)[0]
        except (OSError, UserError):  # an unreadable journal
            continue
        for state in plan.runs:
            if state.state == "finished" and state.seconds is not None:
                with suppress(UserError, OSError, ValueError, KeyError, TypeError, RecursionError):
                    yield *_of_record(plan, folder / state.folder / record.FILE), state.seconds


def _of_record(plan: Plan, path: Path) -> tuple[str, Key]:
    content = json.loads(path.read_text(encoding="utf-8"))
    run, devices, recipe = content["run"], content["devices"], content["recipe"]
    key = (
        run_label(run["notebook"], content["framework"]["kernel"]),
        recipe["name"],
        (recipe["precision"], recipe["execution"]),
        _asked(plan, recipe["epochs"], recipe["batch_size"]),
        content["data"]["folder"],
        devices["kind"],
        (str(content.get("cluster", {}).get("nodes", 1)), *devices["names"]),
        run["host"],
    )
    return str(run["started"]), key


def _chosen(asked: Any, default: Any) -> Any:
    return default if asked == "default" else asked


def _asked(plan: Plan, epochs: int, batch: int) -> tuple[Any, ...]:
    """The settings of a plan that decide its runs' times, with the recipe's defaults filled in.

    The settings are the requested ones: a batch size that a run has yet to find is ``auto``. A
    custom recipe also counts by its digests, because another file may have the same name.
    """
    return (
        _chosen(plan.epochs, epochs),
        _chosen(plan.batch_size, batch),
        plan.num_workers,
        plan.cores_per_device,
        tuple(sorted(plan.recipe_digests.items())) if plan.recipe.endswith(".toml") else (),
    )
