"""Decide which runs may rank frameworks, by their devices and machines.

``helpers.results.best`` ranks them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from helpers.results import machines
from helpers.results.comparability import RANKED, kind
from helpers.results.comparison import Comparison, Entry


def ranked(compared: Comparison) -> tuple[Entry, ...]:
    """The finished runs whose times may rank frameworks.

    If any run used GPUs, only runs on GPUs, otherwise those on CPUs: GPUs and CPUs are never ranked
    together, nor are different machines (:func:`_differ`).
    """
    found = _rivals(compared)
    return found if _differ(found) is None else ()


def _rivals(compared: Comparison) -> tuple[Entry, ...]:
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    race = "gpu" if on_gpus else "cpu"
    return tuple(
        entry
        for entry in compared.finished
        if kind(entry.content) in RANKED and entry.content["devices"]["kind"] == race
    )


_ALIKE: dict[str, Callable[[dict[str, Any]], str]] = {
    "GPU": lambda c: machines.models(c["devices"]) if c["devices"]["kind"] == "gpu" else "",
    "CPU": lambda c: f"{c['hardware']['cpu']} of {c['hardware']['cores']} logical cores",
    "cores per device": machines.cores_per_device,
}


def _differ(entries: Sequence[Entry]) -> str | None:
    """How the machines of these runs differ, so that they are not ranked; None if they do not."""
    for what, get in _ALIKE.items():
        found = sorted({get(entry.content) for entry in entries})
        if len(found) > 1:
            return f"{what} ({', '.join(found)})"
    return None


def unranked(compared: Comparison) -> str | None:
    """A sentence that says why these runs rank no framework; None if they do."""
    if not compared.finished or ranked(compared):
        return None
    if rivals := _rivals(compared):
        race = rivals[0].content["devices"]["kind"].upper()
        return f"{race} runs are not ranked, because they differ in {_differ(rivals)}."
    kinds = {kind(entry.content) for entry in compared.finished}
    if "simulated" in kinds:
        why = "Simulated nodes are processes of one machine, with no network between them"
    else:
        why = "These CPU devices have no cores of their own"
    return f"{why}, so these times do not rank frameworks and say nothing about scaling."
