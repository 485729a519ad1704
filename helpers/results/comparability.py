"""Decide which runs' times are comparable, and which of them rank frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from helpers.recipe import RECIPES, digest_now, lookup
from helpers.results import machines, run_labels, shared_settings

if TYPE_CHECKING:
    from helpers.results.comparison import Comparison, Entry

NOT_COMPARABLE = "not comparable"
DIFFERENT = "trained differently"
RESUMED = "resumed"
SHARED = "shared GPU"


def marks(content: dict[str, Any]) -> tuple[str, ...]:
    """The marks of a run whose times are not comparable with those of other runs.

    *not comparable*: it failed its fairness check. *trained differently*: it did something else
    than the recipe, as a notebook that was changed on purpose. *resumed*: it resumed from a
    checkpoint, so the measurements cover only its last process. *shared GPU*: another process was
    on its GPUs. The marks are empty if its times are comparable.
    """
    found = {
        NOT_COMPARABLE: failed(content),
        DIFFERENT: bool(variants(content)),
        RESUMED: resumed_after(content) > 0,
        SHARED: bool(content.get("other_processes", {}).get("processes")),
    }
    return tuple(mark for mark, holds in found.items() if holds)


def failed(content: Mapping[str, Any]) -> bool:
    """Whether a run failed its fairness check, or ended before it."""
    fairness = content.get("fairness", {"comparable": False, "checks": []})
    wrong = any(check["verdict"] == "fail" for check in fairness["checks"])
    return wrong or not (fairness["comparable"] or variants(content))


def variants(content: Mapping[str, Any]) -> tuple[str, ...]:
    """What a run trained differently, such as ``augmentation (no flip)``; usually nothing."""
    checks = content.get("fairness", {}).get("checks", [])
    found = [
        check.get("variant", check["check"]) for check in checks if check["verdict"] == "different"
    ]
    return tuple(dict.fromkeys(found))


def resumed_after(content: dict[str, Any]) -> int:
    """The epochs that an earlier process had done; 0 of a run in one go."""
    return int(content.get("checkpoint", {}).get("resumed_after", 0))


def together(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The marks of runs that share one figure: every mark that any of them has."""
    found = {mark for one in several for mark in one}
    return tuple(mark for mark in (NOT_COMPARABLE, DIFFERENT, RESUMED, SHARED) if mark in found)


def marked(label: str, of: Iterable[str]) -> str:
    """``Keras (not comparable, resumed)``; the label alone where there is no mark."""
    said = ", ".join(of)
    return f"{label} ({said})" if said else label


RANKED = ("gpu", "cpu")
"""The kinds whose times rank frameworks and show scaling, each among its own."""


def kind(content: dict[str, Any]) -> str:
    """What its times are of: ``gpu`` or ``cpu``, where each device has a GPU or cores of its own.

    ``shared``: replicas that share a GPU. ``shared cores``: CPU devices that share cores, or say
    nothing of them. ``simulated``: the nodes were processes of one machine.
    """
    devices = content["devices"]
    if devices.get("shared_gpus"):
        return "shared"
    if simulated_nodes(content):
        return "simulated"
    if devices["kind"] == "gpu":
        return "gpu"
    return "cpu" if _own_cores(content) else "shared cores"


def ranks(content: dict[str, Any]) -> bool:
    """Whether its times may rank frameworks, among those of its kind."""
    return kind(content) in RANKED


def _own_cores(content: dict[str, Any]) -> bool:
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


def simulated_nodes(content: dict[str, Any]) -> bool:
    """Whether a run's several nodes were processes of one machine."""
    return nodes(content) > 1 and bool(content["cluster"]["simulated"])


def ranked(compared: Comparison) -> tuple[Entry, ...]:
    """The finished runs whose times may rank frameworks.

    Those on GPUs where any run is on GPUs, else those on CPUs of one machine (:func:`_cpus`): a
    GPU and a CPU are never in one ranking.
    """
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    race = "gpu" if on_gpus else "cpu"
    found = tuple(
        entry
        for entry in compared.finished
        if ranks(entry.content) and entry.content["devices"]["kind"] == race
    )
    return found if on_gpus or _cpus(found) is None else ()


def _cpus(entries: Iterable[Entry]) -> str | None:
    """In what the CPUs of these runs differ, so that they do not rank; None if in nothing."""
    contents = [entry.content for entry in entries]
    of_machine = {
        machines.key(content): f"{content['hardware']['cpu']} of {content['hardware']['cores']}"
        for content in contents
    }
    if len(of_machine) > 1:
        return f"CPU ({', '.join(sorted(of_machine.values()))} cores)"
    cores = sorted({machines.cores_per_device(content) for content in contents})
    return f"cores per device ({', '.join(cores)})" if len(cores) > 1 else None


_WORK: dict[str, Callable[[dict[str, Any]], Any]] = {
    "recipe": lambda c: c["recipe"]["name"],
    "crop": lambda c: c["recipe"]["crop"],
    "epochs": lambda c: c["recipe"]["epochs"],
    "batch size": lambda c: c["recipe"]["batch_size"],
    # Of all parts: the seed decides which patients are in which.
    "number of images": lambda c: sum(c["data"]["images"].values()),
    "task": lambda c: c["recipe"]["task"],
    "network": lambda c: c["recipe"].get("network", "densenet121"),
    "reader": lambda c: c["recipe"].get("reader", "nih"),
    "optimiser": lambda c: shared_settings.optimizer(c["recipe"]),
    "custom code": lambda c: run_labels.own_code(c["recipe"]) or "none",
}
"""What decides how much a run computes, or on what: where it differs, times rank no framework."""


def of_own_networks(entries: Iterable[Entry]) -> bool:
    """Whether runs of several frameworks trained networks that no reference knows."""
    own = [entry for entry in entries if entry.content["recipe"].get("network") == "own"]
    return len({entry.content["framework"]["name"] for entry in own}) > 1


def unequal(compared: Comparison) -> str | None:
    """Why these runs' times cannot be ranked although each may be right, in a sentence.

    None where all did the same work.
    """
    contents = [entry.content for entry in compared.finished]
    said = []
    for what, work in _WORK.items():
        found = sorted({work(content) for content in contents})
        if len(found) > 1:
            said.append(f"{what} ({', '.join(map(str, found))})")
    digests = {content["recipe"].get("sha256") for content in contents} - {None, ""}
    texts = sorted(digest[:12] for digest in set(map(digest_now, digests)))
    if len(texts) > 1 and not any(what.startswith("recipe") for what in said):
        said.append(f"the recipe's text (SHA-256 {', '.join(texts)})")
    if not said:
        return None
    return f"These runs did not train the same: they differ in {' and '.join(said)}."


def departures(content: dict[str, Any]) -> str | None:
    """What a run changed of the recipe that it names: ``1 epoch instead of 5``; None if nothing.

    Nor of a recipe that is not known here.
    """
    recipe = content["recipe"]
    if recipe["name"] not in RECIPES:
        return None
    own = lookup(recipe["name"], demo=recipe.get("demo", False))
    epochs, batch_size, warmup = (
        recipe["epochs"],
        recipe["batch_size"],
        recipe.get("warmup_epochs", 0.0),
    )
    said = []
    if epochs != own.epochs:
        said.append(f"{epochs} epoch{'s' * (epochs != 1)} instead of {own.epochs}")
    if batch_size != own.batch_size:
        said.append(
            f"{batch_size} image{'s' * (batch_size != 1)} per device instead of {own.batch_size}"
        )
    if warmup != own.warmup_epochs:
        said.append(f"a warm-up of {warmup:g} epochs instead of {own.warmup_epochs:g}")
    return ", ".join(said) or None


def off_the_recipe(compared: Comparison) -> str | None:
    """Which runs changed something of the recipe that they name, in a sentence; None if none."""
    found: dict[str, list[str]] = {}
    for entry in compared.finished:
        if said := departures(entry.content):
            found.setdefault(said, []).append(entry.run)
    if not found:
        return None
    if [len(runs) for runs in found.values()] == [len(compared.finished)]:
        return f"Not the recipe's own training: {next(iter(found))}."
    runs = [f"{said} ({'; '.join(dict.fromkeys(of))})" for said, of in found.items()]
    return f"Not the recipe's own training: {'; '.join(runs)}."


def unranked(compared: Comparison) -> str | None:
    """Why the times of these runs rank no framework, in a sentence; None where they do."""
    if not compared.finished or ranked(compared):
        return None
    kinds = {kind(entry.content) for entry in compared.finished}
    if "shared" in kinds:
        why = "Replicas that share a GPU take turns on it"
    elif "simulated" in kinds:
        why = "Simulated nodes are processes of one machine, with no network between them"
    elif "cpu" in kinds:
        differ = _cpus(entry for entry in compared.finished if kind(entry.content) == "cpu")
        return f"CPU runs are not ranked, because they differ in {differ}."
    else:
        why = "These CPU devices have no cores of their own"
    return f"{why}, so these times do not rank frameworks and say nothing about scaling."
