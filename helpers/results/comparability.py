"""Say of one record whether its times are comparable, and on what kind of devices they were."""

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
"""Honest epochs ran at 0.73 to 1.26 times the rate of the rounds in 137 published runs, in which a
round was one step. Rounds that leave out every second backward pass make it about 0.6."""
MOST = 0.1
"""The part of a run's cores that other programs may use."""
NOISE = {RESUMED, BUSY, DISTURBED}
"""What spoils the times of one run, and says nothing against its repeats."""
FLAGS = (NOT_COMPARABLE, DIFFERENT, RESUMED, BUSY, DISTURBED, APART)


def flags(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Why a run's times are not comparable with those of other runs; docs/report.md explains each.

    Empty if they are.
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
    """Whether a run failed its fairness check, or ended before it."""
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
    """The epochs that an earlier process had done; 0 of a run in one go."""
    return int(content.get("checkpoint", {}).get("resumed_after", 0))


def disturbed(content: Mapping[str, Any]) -> bool:
    """Whether other programs used too much of its cores; False where that is not known."""
    others = content.get("other_programs", {"used": None})
    return others["used"] is not None and others["used"] > MOST * others["cores"]


def steady(content: Mapping[str, Any]) -> list[float]:
    """Images/s of the last process's epochs but its first, which contains compiling.

    If there is no other, that of the first. ``training.images_per_second`` is their median.
    """
    epochs = content.get("epochs") or []
    own = epochs[resumed_after(content) :] or epochs
    return [epoch["images_per_second"] for epoch in own[1:] or own]


def disagreement(content: Mapping[str, Any]) -> float | None:
    """How many times the rate of the epochs the rounds on real data have; None if they agree.

    They disagree if their 95 % intervals of the median (of few values: their ends) do not overlap
    and one rate is more than ``FACTOR`` times the other. An only epoch contains compiling.
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
    """``Keras (not comparable, resumed)``; the label alone where there is no flag."""
    said = ", ".join(of)
    return f"{label} ({said})" if said else label


RANKED = ("gpu", "cpu")
"""The kinds whose times rank frameworks and show scaling, each among its own."""


def kind(content: Mapping[str, Any]) -> str:
    """What its times are of: ``gpu`` or ``cpu``, where each device has a GPU or cores of its own.

    ``shared cores``: CPU devices that share cores, or say nothing of them. ``simulated``: the nodes
    were processes of one machine.
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
    """On how many nodes a run was, simulated ones too."""
    return int(content.get("cluster", {}).get("nodes", 1))


def hosts_of(content: Mapping[str, Any]) -> list[str]:
    """The machines that a run had; of simulated nodes the one.

    The first by its own name, as in runs on one node: Slurm may call it by another.
    """
    several = nodes(content) > 1 and not simulated_nodes(content)
    others = content["cluster"]["hosts"][1:] if several else []
    return [str(content["run"]["host"]), *(str(host["name"]) for host in others)]


def simulated_nodes(content: Mapping[str, Any]) -> bool:
    """Whether a run's several nodes were processes of one machine."""
    return nodes(content) > 1 and bool(content["cluster"]["simulated"])
