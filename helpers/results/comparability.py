"""Decide whether a record's times are comparable, and on which kind of devices they were."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from helpers.results import intervals

NOT_COMPARABLE = "not comparable"
DIFFERENT = "differs from the recipe"
RESUMED = "resumed"
BUSY = "GPU in use by others"
DISTURBED = "disturbed"
APART = "rates disagree"
FACTOR = 1.4
"""In 137 published runs, whose rounds were one step long, honest epochs ran at 0.73 to 1.26 times
the rate of the rounds. If the rounds skip every second backward pass, this ratio is about 0.6."""
MOST = 0.1
"""The part of a run's cores that other programs may use."""
NOISE = {RESUMED, BUSY, DISTURBED}
"""The flags that spoil the times of one run, but not those of its repeats."""
FLAGS = (NOT_COMPARABLE, DIFFERENT, RESUMED, BUSY, DISTURBED, APART)


def flags(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Why a run's times are not comparable with those of other runs; docs/report.md explains each.

    It is empty if they are.
    """
    found = {
        NOT_COMPARABLE: failed(content),
        DIFFERENT: bool(variants(content)),
        RESUMED: resumed_after(content) > 0,
        BUSY: bool(content.get("other_processes", {}).get("processes")),
        DISTURBED: disturbed(content),
        APART: bool(disagreement(content)),
    }
    return tuple(flag for flag, holds in found.items() if holds)


def failed(content: Mapping[str, Any]) -> bool:
    """Whether a run failed its fairness check, or ended before the check."""
    fairness = content.get("fairness", {"comparable": False, "checks": []})
    wrong = any(check["verdict"] == "fail" for check in fairness["checks"])
    return wrong or not (fairness["comparable"] or variants(content))


def variants(content: Mapping[str, Any]) -> tuple[str, ...]:
    """How a run's training differs from the recipe, such as ``augmentation (no flip)``."""
    checks = content.get("fairness", {}).get("checks", [])
    found = [
        check.get("variant", check["check"]) for check in checks if check["verdict"] == "different"
    ]
    return tuple(dict.fromkeys(found))


def resumed_after(content: Mapping[str, Any]) -> int:
    """The number of epochs that an earlier process had finished; 0 if there was none."""
    return int(content.get("checkpoint", {}).get("resumed_after", 0))


def disturbed(content: Mapping[str, Any]) -> bool:
    """Whether other programs used too much of the run's cores; False if that is not known."""
    others = content.get("other_programs", {"used": None})
    return others["used"] is not None and others["used"] > MOST * others["cores"]


def steady(content: Mapping[str, Any]) -> list[float]:
    """Images/s of the last process's epochs without its first epoch, which contains compiling.

    If there is no other epoch, that of the first. ``training.images_per_second`` is their median.
    """
    epochs = content.get("epochs") or []
    own = epochs[resumed_after(content) :] or epochs
    return [epoch["images_per_second"] for epoch in own[1:] or own]


def disagreement(content: Mapping[str, Any]) -> float | None:
    """The rate of the rounds on real data, divided by that of the epochs; None if they agree.

    They disagree if their 95 % intervals of the median (of few values: their ends) do not overlap
    and one rate is more than ``FACTOR`` times the other. A single epoch contains compiling.
    """
    trained, rounds = steady(content), content.get("files", {}).get("rounds", [])
    if len(content.get("epochs") or []) - resumed_after(content) < 2 or not rounds:
        return None
    times = median(rounds) / median(trained)
    ones, others = intervals.of_median(trained), intervals.of_median(rounds)
    overlap = ones.low <= others.high and others.low <= ones.high
    return None if overlap or 1 / FACTOR <= times <= FACTOR else times


def together(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Every flag that any of these runs has."""
    found = {flag for one in several for flag in one}
    return tuple(flag for flag in FLAGS if flag in found)


def flagged(label: str, of: Iterable[str]) -> str:
    """``Keras (not comparable, resumed)``; the label alone if there is no flag."""
    said = ", ".join(of)
    return f"{label} ({said})" if said else label


RANKED = ("gpu", "cpu")
"""The kinds whose times rank frameworks and show scaling, each kind for itself."""


def kind(content: Mapping[str, Any]) -> str:
    """The kind of devices that the run's times belong to.

    ``gpu`` or ``cpu``: each device has its own GPU or cores. ``shared cores``: CPU devices share
    cores, or their cores are not known. ``simulated``: the nodes were processes of one machine.
    """
    if simulated_nodes(content):
        return "simulated"
    if content["devices"]["kind"] == "gpu":
        return "gpu"
    return "cpu" if _own_cores(content) else "shared cores"


def _own_cores(content: Mapping[str, Any]) -> bool:
    """Whether every CPU device has cores that no other device of its node has."""
    count, cpus = content["devices"]["count"], content["devices"].get("cpus", [])
    each = count // nodes(content)
    for first in range(0, len(cpus), each):
        cores = [core for cpu in cpus[first : first + each] for core in cpu["cores"]]
        if len(set(cores)) < len(cores):
            return False
    return len(cpus) == count


def nodes(content: Mapping[str, Any]) -> int:
    """The number of a run's nodes, including simulated ones."""
    return int(content.get("cluster", {}).get("nodes", 1))


def hosts_of(content: Mapping[str, Any]) -> list[str]:
    """The machines of a run; simulated nodes count as one.

    The first machine has its own name, as in runs on one node, because Slurm may give it another.
    """
    several = nodes(content) > 1 and not simulated_nodes(content)
    others = content["cluster"]["hosts"][1:] if several else []
    return [str(content["run"]["host"]), *others]


def simulated_nodes(content: Mapping[str, Any]) -> bool:
    """Whether a run's several nodes were processes of one machine."""
    return nodes(content) > 1 and bool(content["cluster"]["simulated"])
