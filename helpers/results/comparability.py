"""Whose times may stand beside whose, and whether times rank frameworks at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from helpers.recipe import RECIPES, lookup
from helpers.results import agreement, apart

if TYPE_CHECKING:
    from helpers.results.comparison import Comparison, Entry

NOT_COMPARABLE = "not comparable"
DIFFERENT = "trained differently"
RESUMED = "resumed"
SHARED = "shared GPU"


def marks(content: dict[str, Any]) -> tuple[str, ...]:
    """What stands beside a run wherever it is timed, because its times are not like others'.

    *not comparable*: it failed its fairness check. *trained differently*: it did something else
    than the recipe says, as a notebook that was changed on purpose. *resumed*: it went on from a
    checkpoint, so what was measured is of its last process only. *shared GPU*: somebody else's
    process was on its GPUs. Nothing where its times may stand beside the others'.
    """
    found = {
        NOT_COMPARABLE: failed(content),
        DIFFERENT: bool(variants(content)),
        RESUMED: resumed_after(content) > 0,
        SHARED: bool(content.get("neighbours", {}).get("processes")),
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
    """The marks of runs that are told by one figure: those that any of them has."""
    found = {mark for one in several for mark in one}
    return tuple(mark for mark in (NOT_COMPARABLE, DIFFERENT, RESUMED, SHARED) if mark in found)


def marked(label: str, of: Iterable[str]) -> str:
    """``Keras (not comparable, resumed)``; the label alone where there is no mark."""
    said = ", ".join(of)
    return f"{label} ({said})" if said else label


def kind(content: dict[str, Any]) -> str:
    """What its times are of: ``gpu``, ``cpu``, or ``shared``, of replicas that share a GPU.

    ``virtual`` where nodes on GPUs were processes of one machine.
    """
    devices = content["devices"]
    if devices.get("shared_gpus"):
        return "shared"
    return "virtual" if devices["kind"] == "gpu" and virtual_nodes(content) else devices["kind"]


def nodes(content: Mapping[str, Any]) -> int:
    """On how many nodes a run was, virtual ones too."""
    return int(content.get("world", {}).get("nodes", 1))


def virtual_nodes(content: dict[str, Any]) -> bool:
    """Whether a run's several nodes were processes of one machine."""
    return nodes(content) > 1 and bool(content["world"]["virtual"])


def ranks(content: dict[str, Any]) -> bool:
    """Whether its times may rank frameworks: those of GPUs, one a replica.

    A CPU's times say nothing about GPUs. Devices that are only virtual share its cores: what they
    take says more about threads than about frameworks. Replicas on one GPU wait for each other.
    Virtual nodes have no network between them.
    """
    return kind(content) == "gpu"


_WORK: dict[str, Callable[[dict[str, Any]], Any]] = {
    "recipe": lambda c: c["recipe"]["name"],
    "crop": lambda c: c["recipe"]["crop"],
    "epochs": lambda c: c["recipe"]["epochs"],
    "batch size": lambda c: c["recipe"]["batch"],
    # Of all parts: the seed decides which patients are in which.
    "number of images": lambda c: sum(c["data"]["images"].values()),
    "task": lambda c: c["recipe"].get("task", "findings"),
    "network": lambda c: c["recipe"].get("network", "densenet121"),
    "reader": lambda c: c["recipe"].get("reader", "nih"),
    "optimiser": lambda c: agreement.optimizer(c["recipe"]),
    "own code": lambda c: apart.own_code(c["recipe"]) or "none",
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
    texts = sorted(digest[:12] for digest in digests)
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
    own = lookup(recipe["name"], small=recipe.get("small", False))
    epochs, batch, warmup = recipe["epochs"], recipe["batch"], recipe.get("warmup_epochs", 0.0)
    said = []
    if epochs != own.epochs:
        said.append(f"{epochs} epoch{'s' * (epochs != 1)} instead of {own.epochs}")
    if batch != own.batch:
        said.append(f"{batch} image{'s' * (batch != 1)} per device instead of {own.batch}")
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
    runs = compared.finished
    if not runs or any(ranks(entry.content) for entry in runs):
        return None
    if any(kind(entry.content) == "shared" for entry in runs):
        return (
            "Replicas that share a GPU take turns on it, "
            "so these times do not rank frameworks and say nothing about scaling."
        )
    if any(kind(entry.content) == "virtual" for entry in runs):
        return (
            "Virtual nodes are processes of one machine, with no network between them, "
            "so these times do not rank frameworks and say nothing about scaling."
        )
    if any(entry.content["devices"]["count"] > 1 for entry in runs):
        return (
            "Virtual devices share the cores of one CPU, "
            "so these times do not rank frameworks and say nothing about scaling."
        )
    return "Times on a CPU say nothing about GPUs, so they do not rank frameworks."
