"""Find the settings that differ between runs and make their figures not comparable."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helpers.results.comparison import Entry

MUST_AGREE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "machine": lambda c: c["run"]["host"],
    "kind of device": lambda c: sorted(set(c["hardware"]["gpus"])) or "CPU devices",
    "recipe": lambda c: c["recipe"]["name"],
    "crop in pixels": lambda c: c["recipe"]["crop"],
    "epochs": lambda c: c["recipe"]["epochs"],
    "batch per device": lambda c: c["recipe"]["batch_size"],
    "learning rate per device": lambda c: c["recipe"]["learning_rate"],
    "warm-up epochs": lambda c: c["recipe"].get("warmup_epochs", 0.0),
    "task": lambda c: c["recipe"]["task"],
    "reader": lambda c: c["recipe"].get("reader", "nih"),
    "network": lambda c: c["recipe"].get("network", "densenet121"),
    "custom code": lambda c: c["recipe"].get("code", {}),
    "optimiser": lambda c: optimizer(c["recipe"]),
    "learning rate over epochs": lambda c: _schedule(c["recipe"]),
    "precision": lambda c: c["recipe"]["precision"],
    "seed": lambda c: c["recipe"]["seed"],
    "images and labels": lambda c: c["data"].get("sha256", "not recorded")[:12],
    "number of images": lambda c: c["data"]["images"],
    "initial weights": lambda c: _weights(c["weights"]),
}

# The seed decides the patients' split and the random weights, and is what a sweep of seeds varies.
_OF_THE_SEED = ("seed", "number of images", "initial weights")


def _weights(said: dict[str, Any]) -> str:
    """The initial weights; each framework draws different ones for a custom network."""
    return "own" if said["source"] == "own" else f"{said['source']} {said['sha256'][:12]}"


def optimizer(recipe: dict[str, Any]) -> str:
    """``adam``; ``sgd with momentum 0.9, weight decay 0.0001``. Of schema 1 all are of Adam."""
    rule, decay = recipe.get("optimizer", "adam"), recipe.get("weight_decay", 0)
    momentum = recipe.get("momentum", 0) if rule == "sgd" else 0
    said = f"{rule} with momentum {momentum:g}" if momentum else rule
    return said + (f", weight decay {decay:g}" if decay else "")


def _schedule(recipe: dict[str, Any]) -> str:
    """``linear``; ``linear, x 0.1 after [20, 30]``."""
    drops = recipe.get("lr_milestones")
    said = f", x {recipe['lr_gamma']:g} after {drops}" if drops else ""
    return str(recipe.get("lr_scaling", "linear")) + said


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
                rows.append((f"{what} differs", f"not comparable in this: {_groups(found)}"))
    return rows


def workers(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """As :func:`differences`, of loader workers, where runs on as many devices had not as many.

    Each run may choose its number (``auto``), so a difference is shown but does not matter.
    """
    rows = []
    for count in dict.fromkeys(entry.devices for entry in entries):
        found: dict[str, list[str]] = {}
        for entry in entries:
            if entry.devices == count and (number := loader_workers(entry.content)) is not None:
                found.setdefault(str(number), []).append(entry.run)
        if len(found) > 1:
            rows.append(("loader workers differ", _groups(found)))
    return rows


def loader_workers(content: dict[str, Any]) -> int | None:
    """For all devices together; None where an older record does not tell."""
    number: int | None = content["data"].get("loader_workers")
    return number


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
