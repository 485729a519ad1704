"""Find the settings that differ between runs and make their figures not comparable."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from helpers.recipe import RECIPES, lookup, must_agree
from helpers.results.comparison import Comparison, Entry
from helpers.results.run_labels import optimizer, own_code, schedule


def _of_recipe(name: str, content: dict[str, Any]) -> Any:
    return content["recipe"][name]


MUST_AGREE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "machine": lambda c: c["run"]["host"],
    "kind of device": lambda c: sorted(set(c["hardware"]["gpus"])) or "CPU devices",
    **{what: partial(_of_recipe, name) for what, name in must_agree().items()},
    "custom code": lambda c: c["recipe"]["code"],
    "optimiser": lambda c: optimizer(c["recipe"]),
    "learning rate over epochs": lambda c: schedule(c["recipe"]),
    "images and labels": lambda c: c["data"].get("sha256", "not recorded")[:12],
    "number of images": lambda c: c["data"]["images"],
    "initial weights": lambda c: _weights(c["weights"]),
}


# The seed decides the patients' split and the random weights, and is what a sweep of seeds varies.
_OF_THE_SEED = ("seed", "number of images", "initial weights")


def _weights(said: dict[str, Any]) -> str:
    """The initial weights; each framework draws different ones for a custom network."""
    return "own" if said["source"] == "own" else f"{said['source']} {said['sha256'][:12]}"


def differences(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Settings that should be the same in all runs and are not: what, and who has which.

    Where every framework, on every number of devices, ran the same several seeds, these are a
    sweep and no difference; what follows from a seed then has to agree within each seed.
    """
    swept = _swept_seeds(entries)
    rows = []
    for what, get in MUST_AGREE.items():
        groups = [list(entries)]
        if swept and what in _OF_THE_SEED:
            groups = [[e for e in entries if MUST_AGREE["seed"](e.content) == s] for s in swept]
        for group in groups:
            found: dict[str, list[str]] = {}
            for entry in group:
                found.setdefault(_plain(get(entry.content)), []).append(entry.run)
            if len(found) > 1:
                rows.append((f"{what} differs", f"not comparable: {_groups(found)}"))
    return rows


def workers(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """As :func:`differences`, of loader workers, where runs on as many devices had not as many.

    A difference is shown but does not matter.
    """
    rows = []
    for count in dict.fromkeys(entry.devices for entry in entries):
        found: dict[str, list[str]] = {}
        for entry in entries:
            number = entry.content["data"].get("loader_workers")
            if entry.devices == count and number is not None:
                found.setdefault(str(number), []).append(entry.run)
        if len(found) > 1:
            rows.append(("loader workers differ", _groups(found)))
    return rows


def _groups(found: dict[str, list[str]]) -> str:
    """``5 (PyTorch, 2 devices); 1 (Keras, 2 devices)``."""
    return "; ".join(f"{value} ({', '.join(dict.fromkeys(runs))})" for value, runs in found.items())


def _swept_seeds(entries: Sequence[Entry]) -> list[Any]:
    """The seeds of a sweep over seeds that every framework took part in alike; else none."""
    seeds: dict[tuple[str, int | None], set[Any]] = {}
    for entry in entries:
        seeds.setdefault((entry.label, entry.devices), set()).add(MUST_AGREE["seed"](entry.content))
    sets = list(seeds.values())
    if not sets or len(sets[0]) < 2 or any(other != sets[0] for other in sets):
        return []
    return sorted(sets[0])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")


_WORK = {
    what: MUST_AGREE[what]
    for what in (
        *("recipe", "crop in pixels", "epochs", "batch per device"),
        *("task", "network", "reader", "optimiser"),
    )
} | {
    # All parts together: the seed decides which patients are in which.
    "number of images": lambda c: sum(c["data"]["images"].values()),
    "custom code": lambda c: own_code(c["recipe"]) or "none",
}
"""What decides how much a run computes, or on what: where it differs, times rank no framework."""


def of_own_networks(entries: Iterable[Entry]) -> bool:
    """Whether runs of several frameworks trained networks that no reference knows."""
    own = [entry for entry in entries if entry.content["recipe"]["network"] == "own"]
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
    digests = {content["recipe"]["sha256"] for content in contents} - {""}
    texts = sorted(digest[:12] for digest in digests)
    if len(texts) > 1 and not any(what.startswith("recipe") for what in said):
        said.append(f"the recipe's text (SHA-256 {', '.join(texts)})")
    if not said:
        return None
    return f"These runs did not do the same work: they differ in {' and '.join(said)}."


def departures(content: dict[str, Any]) -> str | None:
    """What a run changed of the recipe that it names: ``1 epoch instead of 5``; None if nothing.

    Nor of a recipe that is not known here.
    """
    recipe = content["recipe"]
    if recipe["name"] not in RECIPES:
        return None
    own = lookup(recipe["name"], demo=recipe["demo"])
    epochs, batch_size, warmup = recipe["epochs"], recipe["batch_size"], recipe["warmup_epochs"]
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
        return f"The recipe was changed: {next(iter(found))}."
    runs = [f"{said} ({'; '.join(dict.fromkeys(of))})" for said, of in found.items()]
    return f"The recipe was changed: {'; '.join(runs)}."
