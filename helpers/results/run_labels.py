"""Label the compared runs with the settings in which they differ.

Runs with different labels are never treated as repeats of each other.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from helpers.recipe.settings import AS_USUAL, COMPILED, EAGER
from helpers.results import machines


def settings(contents: Sequence[dict[str, Any]], on: Sequence[str]) -> list[str]:
    """What distinguishes each record from the others: ``bf16``, ``2 epochs``, or nothing.

    Args:
        contents: the records.
        on: the name of each record's machine; nothing if it is not known.
    """
    rows: list[dict[str, str]] = [{"machine": f"on {name}"} if name else {} for name in on]
    for content, row in zip(contents, rows, strict=True):
        for what, said in (_SETTINGS | _ELSE).items():
            with suppress(KeyError):  # a run that never began
                row[what] = said(content)
    known = pd.DataFrame(rows, columns=["machine", *_SETTINGS, *_ELSE], dtype=object)
    several = [what for what in _SETTINGS if known[what].nunique() > 1]
    for what in ("machine", *_ELSE):
        alike = known.fillna("").assign(all="").groupby(["all", *several])[what]
        if any(len(set(values) - {""}) > 1 for _, values in alike):
            several.append(what)
    return [" ".join(row[what] for what in several if what in row) for row in rows]


def programs(series: Sequence[str], contents: Sequence[dict[str, Any]]) -> list[str]:
    """What distinguishes the programs of records in one series: nothing if they are the same.

    ``(code 1a2b3c4)``, with the notebook's name if several have the same label. The record of a
    skipped run has no program.

    Args:
        series: each record's series, which names everything else that distinguishes it.
        contents: the records.
    """
    codes: dict[tuple[str, str], set[str]] = {}
    of_each = []
    for name, content in zip(series, contents, strict=True):
        run = content["run"]
        code = f"code {run.get('code', '')[:7] or 'not recorded'}"
        began = "code" in run or content["state"] == "finished"
        of_each.append((name, run["notebook"], code) if began else None)
        if began:
            codes.setdefault((name, run["notebook"]), set()).add(code)
    said = []
    for each in of_each:
        name, notebook, code = each or ("", "", "")
        parts = [notebook] * (sum(one == name for one, _ in codes) > 1)
        parts += [code] * (len(codes.get((name, notebook), ())) > 1)
        said.append(f"({', '.join(parts)})" if parts else "")
    return said


def optimizer(recipe: dict[str, Any]) -> str:
    """``adam``; ``sgd with momentum 0.9, weight decay 0.0001``."""
    rule, decay = recipe["optimizer"], recipe["weight_decay"]
    momentum = recipe["momentum"] if rule == "sgd" else 0
    said = f"{rule} with momentum {momentum:g}" if momentum else rule
    return said + (f", weight decay {decay:g}" if decay else "")


def schedule(recipe: dict[str, Any]) -> str:
    """``linear``; ``linear, x 0.1 after [20, 30]``."""
    drops = recipe["lr_milestones"]
    said = f", x {recipe['lr_gamma']:g} after {drops}" if drops else ""
    return str(recipe["lr_scaling"]) + said


def custom_code(recipe: dict[str, Any]) -> str:
    """``mine.py 3f2a01``, from the files' digests; nothing without custom code."""
    return ", ".join(f"{file} {sha[:6]}" for file, sha in sorted(recipe["code"].items()))


def _cores(content: dict[str, Any]) -> str:
    if content["devices"]["kind"] == "gpu":
        raise KeyError("cpus")
    count = machines.cores_per_device(content)
    return f"{count} core{'s' * (count != '1')} per device" if count else "sharing cores"


_EXECUTIONS = {AS_USUAL: "as usual", EAGER: "eager", COMPILED: "compiled"}


def _device(devices: dict[str, Any]) -> str:
    return machines.models(devices) if devices["kind"] == "gpu" else "the CPU"


_SETTINGS: dict[str, Callable[[dict[str, Any]], str]] = {
    "recipe": lambda c: str(c["recipe"]["name"]),
    "precision": lambda c: str(c["recipe"]["precision"]),
    "execution": lambda c: _EXECUTIONS[c["recipe"]["execution"]],
    "crop": lambda c: f"{c['recipe']['crop']} px",
    "epochs": lambda c: f"{c['recipe']['epochs']} epoch{'s' * (c['recipe']['epochs'] != 1)}",
    "batch": lambda c: f"{c['recipe']['batch_size']} per device",
    "warm-up": lambda c: f"warm-up {c['recipe']['warmup_epochs']:g}",
    "device": lambda c: f"on {_device(c['devices'])}",
    "cores": _cores,
    "images": lambda c: f"{sum(c['data']['images'].values())} images",
}

# Mostly these follow from those above, as the learning rate from the batch: then they say no more.
_ELSE: dict[str, Callable[[dict[str, Any]], str]] = {
    "data": lambda c: f"data {c['data']['sha256'][:6]}",
    "network": lambda c: str(c["recipe"]["network"]),
    "optimiser": lambda c: optimizer(c["recipe"]),
    "learning rate": lambda c: f"rate {c['recipe']['learning_rate']:g}",
    "schedule": lambda c: schedule(c["recipe"]),
    "code": lambda c: custom_code(c["recipe"]) or "no custom code",
    "text": lambda c: f"recipe {c['recipe']['sha256'][:6]}",
}
