"""Estimate the time of planned runs from earlier runs on this machine.

Only earlier runs with the same notebook, environment, settings, data folder and devices on this
host count. Without such a run there is no estimate.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from statistics import median
from typing import Any

from helpers import record
from helpers.errors import UserError
from helpers.frameworks import cpu_cores
from helpers.frameworks import devices as device_helpers
from helpers.recipe import lookup
from helpers.runner import experiments
from helpers.runner.plans import Plan, PlannedRun, counted
from helpers.terminal import clock
from helpers.training import image_folders, image_readers

LATEST = 5
"""The number of latest runs whose median is used, because they ran today's code and driver."""


class History:
    """The times of earlier runs, read once from the records under ``runs/``."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._where: dict[int, tuple[Any, ...]] = {}
        self._earlier = sorted(_earlier(), key=lambda found: found[0])

    def of(self, run: PlannedRun) -> str:
        """``about 3:05 (2 earlier runs)``; "" if no comparable run exists."""
        times = self._times(run)
        many = counted(len(times), "earlier run")
        return f"about {clock(median(times))} ({many})" if times else ""

    def seconds(self, run: PlannedRun) -> float | None:
        times = self._times(run)
        return median(times) if times else None

    def _times(self, run: PlannedRun) -> list[float]:
        key = (_asked(self._plan, run), self._here(run.devices))
        return [seconds for _, other, seconds in self._earlier if other == key][-LATEST:]

    def _here(self, count: int) -> tuple[Any, ...]:
        """The host, the devices and the data folder of a run on so many devices."""
        if count not in self._where:
            found = device_helpers.resolve(count, cpu_cores.SHARED)
            name, data = self._plan.recipe, self._plan.data
            if name == "auto":
                name = "chexnet" if found.kind == "gpu" else "demo"
            recipe = lookup(name, demo=found.kind == "cpu")
            folder = image_folders.data_folder(recipe, recipe.folder if data == "auto" else data)
            named = image_readers.called(recipe, folder)
            self._where[count] = (socket.gethostname(), list(found.names), named)
        return self._where[count]


def total(history: History, runs: list[PlannedRun]) -> str:
    """The time of these runs, as far as it can be estimated, in a line."""
    known = [seconds for seconds in map(history.seconds, runs) if seconds is not None]
    unknown = len(runs) - len(known)
    if not known:
        return (
            "Estimate: none, because no earlier run here had the same notebook, settings, data and "
            "devices"
        )
    rest = f", and {unknown} more without an earlier run to go by" if unknown else ""
    return f"Estimate: about {clock(sum(known))} for {counted(len(known), 'run')}{rest}"


def _asked(plan: Plan, run: PlannedRun) -> tuple[Any, ...]:
    """What decides a run's time, as it was asked for; its seed does not."""
    how = run.label, run.devices, run.nodes, run.precision, run.execution
    settings = {key: value for key, value in plan.parameters().items() if key != "data"}
    return (*how, settings, plan.recipe_digests)


def _earlier() -> Iterator[tuple[str, Any, float]]:
    """The start, the key and the seconds of every finished run of every experiment.

    Notebooks that a user runs by hand do not count, because their time includes pauses.
    """
    for folder in experiments.folders():
        plan, runs = None, list[PlannedRun]()
        with suppress(OSError, UserError):  # one that cannot be read
            plan = experiments.read_plan(folder)
            runs = plan.runs
        for run in runs:
            with suppress(OSError, ValueError, KeyError, TypeError):
                text = (folder / run.folder / record.FILE).read_text(encoding="utf-8")
                content = json.loads(text)
                about, devices = content["run"], content["devices"]["names"]
                where = (about["host"], devices[: run.devices], content["data"]["folder"])
                if content["state"] == "finished" and plan is not None:
                    key = (_asked(plan, run), where)
                    yield about["started"], key, float(about["seconds"])
