"""Find the settings that differ between runs and make their results not comparable."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from helpers.recipe import RECIPES, lookup
from helpers.recipe.settings import must_agree
from helpers.results.comparison import Comparison, Entry
from helpers.results.run_labels import custom_code, optimizer, schedule


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
    """Settings that should be the same in all runs but are not, and which runs have which value.

    If every framework ran the same seeds on every number of devices, these are a sweep and not a
    difference; settings that depend on the seed must then agree within each seed.
    """
    seeds: dict[Any, set[int]] = {}
    for entry in entries:
        seeds.setdefault((entry.label, entry.devices), set()).add(_seed(entry))
    every = set().union(*seeds.values())
    swept = sorted(every) if len(every) > 1 and all(of == every for of in seeds.values()) else []
    rows = []
    for what, get in MUST_AGREE.items():
        groups = [list(entries)]
        if swept and what in _OF_THE_SEED:
            groups = [[entry for entry in entries if _seed(entry) == seed] for seed in swept]
        found = (_apart(group, get) for group in groups)
        rows += [(f"{what} differs", f"not comparable: {said}") for said in found if said]
    return rows


def workers(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Loader workers that differ between runs on as many devices, like :func:`differences`.

    Such a difference is shown but does not matter.
    """
    known = [entry for entry in entries if "loader_workers" in entry.content["data"]]
    found = (
        _apart([e for e in known if e.devices == count], lambda c: c["data"]["loader_workers"])
        for count in dict.fromkeys(entry.devices for entry in known)
    )
    return [("loader workers differ", said) for said in found if said]


def _seed(entry: Entry) -> int:
    return int(entry.content["recipe"]["seed"])


def _apart(entries: Iterable[Entry], get: Callable[[dict[str, Any]], Any]) -> str:
    """``5 (PyTorch, 2 devices); 1 (Keras, 2 devices)``; empty if all agree."""
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        value = get(entry.content)
        text = value if isinstance(value, str) else json.dumps(value).replace('"', "")
        found.setdefault(text, {})[entry.run] = None
    return "; ".join(f"{value} ({', '.join(of)})" for value, of in found.items()) * (len(found) > 1)


_WORK = {
    what: MUST_AGREE[what]
    for what in (
        *("recipe", "crop in pixels", "epochs", "batch per device"),
        *("task", "network", "reader", "optimiser"),
    )
} | {
    # All splits together: the seed decides which patients are in which.
    "number of images": lambda c: sum(c["data"]["images"].values()),
    "custom code": lambda c: custom_code(c["recipe"]) or "none",
}
"""The settings that decide what a run computes: if they differ, its times are not ranked."""


def of_custom_networks(entries: Iterable[Entry]) -> bool:
    """Whether several frameworks trained networks for which there is no reference."""
    own = [entry for entry in entries if entry.content["recipe"]["network"] == "own"]
    return len({entry.content["framework"]["name"] for entry in own}) > 1


def unequal(compared: Comparison) -> str | None:
    """A sentence that says why these runs' times cannot be ranked although each may be right.

    None if all runs did the same work.
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


def departures(content: dict[str, Any]) -> str:
    """What a run changed of the recipe that it names: ``epochs 1 instead of 5``.

    Empty if nothing changed, or if the recipe is not known here.
    """
    recipe = content["recipe"]
    if recipe["name"] not in RECIPES:
        return ""
    own = lookup(recipe["name"], demo=recipe["demo"])
    names = {
        "epochs": "epochs",
        "batch_size": "batch per device",
        "warmup_epochs": "warm-up epochs",
    }
    return ", ".join(
        f"{what} {recipe[name]:g} instead of {getattr(own, name):g}"
        for name, what in names.items()
        if recipe[name] != getattr(own, name)
    )
