"""Compute what training uses: energy, memory, the time of the first step.

What was not measured is missing. Nothing is filled in from other runs.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pandas as pd

from helpers.results import comparability, learning_curves, tables
from helpers.results.comparison import KEPT, Comparison, Entry, latest_of_each, with_ends
from helpers.results.repeated_runs import summarise
from helpers.results.scaling import speedup_factors
from helpers.results.tables import ABSENT, Table, of_row, ranged, short_number, time_column

FIGURES = (
    "wh_an_epoch",
    "wh_to_target",
    "peak_bytes",
    "first_step_seconds",
)


@lru_cache(maxsize=KEPT)
def numbers(compared: Comparison) -> pd.DataFrame:
    """What each run used; a row a label and number of devices, medians and extremes of repeats.

    Columns: label, devices, nodes, kind, runs, target (that of ``speedup_factors.target``), marks,
    and of each of ``FIGURES`` its median, ``_low`` and ``_high``. Energy is the GPUs' while
    training; until the target it is the same share of it as of the images, and missing where some
    run did not reach it.
    """
    wanted = speedup_factors.target(compared)
    rows = [_costs(compared, entry, wanted) for entry in compared.finished]
    if not rows:
        return pd.DataFrame()
    found = pd.DataFrame(rows).astype(dict.fromkeys(FIGURES, float))
    keys, figures = ["label", "devices"], list(FIGURES)
    missing = found[figures].isna().groupby([found[key] for key in keys]).transform("any")
    found[figures] = found[figures].mask(missing)
    groups = found.groupby(keys, sort=False)
    fixed = {"nodes": "first", "kind": "first", "marks": comparability.together}
    parts = [groups.size().rename("runs"), groups.agg(fixed), with_ends(groups[figures])]
    return pd.concat(parts, axis=1).reset_index().assign(target=wanted)


def _costs(compared: Comparison, entry: Entry, wanted: float | None) -> dict[str, Any]:
    content = entry.content
    got = None if wanted is None else learning_curves.reached(entry, compared.metric, wanted)
    epochs = content["epochs"]
    trained = sum(epoch["images"] for epoch in epochs)
    joules = _joules(content)
    found = dict.fromkeys(FIGURES, math.nan) | {
        "first_step_seconds": content["training"]["first_step_seconds"],
        "peak_bytes": content.get("memory", {}).get("peak_bytes"),
    }
    if joules is not None:
        found["wh_an_epoch"] = joules / 3600 / len(epochs)
        if got is not None and trained:
            found["wh_to_target"] = joules / 3600 * got.images / trained
    return found | {
        "label": entry.label,
        "devices": entry.devices,
        "nodes": comparability.nodes(content),
        "kind": comparability.kind(content),
        "marks": comparability.marks(content),
    }


def _joules(content: dict[str, Any]) -> float | None:
    """Those of all its GPUs in all its epochs; None where the monitor saw only some of them."""
    joules: float | None = content.get("energy", {}).get("joules")
    if joules is None or comparability.resumed_after(content):
        return None
    if comparability.nodes(content) == 1 or comparability.simulated_nodes(content):
        return joules
    watched = content["monitor"].get("devices")
    seen = [
        device
        for device in (watched if isinstance(watched, list) else [])
        if isinstance(device, dict) and device.get("kind") == "gpu"
    ]
    return joules if len(seen) >= content["devices"]["count"] else None


def table(compared: Comparison) -> Table:
    """:func:`numbers` for a reader, without the columns for which no run has a figure."""
    found = numbers(compared)
    wanted, metric = speedup_factors.target(compared), compared.metric
    to = "" if wanted is None else f" to {metric.short} {metric.target(wanted)}"
    unit, clock = time_column(found.get("first_step_seconds_high", ()))
    heads: dict[str, tuple[str, Callable[[float], str], float]] = {
        "Wh an epoch": ("wh_an_epoch", short_number, 1.0),
        f"Wh{to}": ("wh_to_target", short_number, 1.0),
        "peak memory of a device (GiB)": ("peak_bytes", short_number, 2.0**30),
        f"first step ({unit})": ("first_step_seconds", clock, 1.0),
    }
    rows = [
        (
            of_row(row),
            {
                head: ranged(row, figure, form, divisor, missing=ABSENT)
                for head, (figure, form, divisor) in heads.items()
                if found[figure].notna().any()
            },
        )
        for row in found.to_dict("records")
    ]
    energy = (
        "Energy is that of the GPUs in training; until a target, it is proportional to the images. "
        if any("Wh an epoch" in cells for _, cells in rows)
        else ""
    )
    kept = (
        "GPU drivers and libraries keep compiled kernels, so a machine's first run can take longer "
        "over it. "
        if "gpu" in set(found.get("kind", ()))
        else ""
    )
    return tables.table(
        "What a run uses",
        "run",
        rows,
        note=f"{energy}The first step includes compilation and autotuning. {kept}Peak memory "
        "counts all processes on a GPU, but only a CPU device's own processes.",
    )


def energy(compared: Comparison) -> Table:
    """The GPUs' energy during training: one row for each run whose GPUs report it."""
    rows = [
        (
            of_row(row),
            {
                "energy (kJ)": ranged(row, "joules", short_number, 1000),
                "images per joule": ranged(row, "images_per_joule", "{:.3g}".format),
            },
        )
        for row in summarise(compared).dropna(subset=["joules"]).to_dict("records")
    ]
    return tables.table("Energy of the GPUs while training", "run", rows)


def no_energy(compared: Comparison) -> list[str]:
    """Why there is no energy, a sentence a reason, with the runs where it is not all of them."""
    finished = latest_of_each(compared.finished)
    said: dict[str, list[str]] = {}
    for entry in finished:
        found = entry.content.get("energy", {})
        if found.get("joules") is None:
            reason = found.get("reason") or "no reason was recorded"
            said.setdefault(reason, []).append(entry.run)
    return [
        f"No energy{'' if len(runs) == len(finished) else ' of ' + '; '.join(runs)}: {reason}."
        for reason, runs in said.items()
    ]
