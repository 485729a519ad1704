"""The data frame of runs, from which every table, chart and ranking of the report is made."""

from functools import lru_cache
from typing import Any

import pandas as pd

from helpers.record import tasks
from helpers.results import comparability, learning_curves
from helpers.results.comparison import KEPT, Comparison, Entry
from helpers.results.ranking import ranked
from helpers.results.shared_settings import unequal
from helpers.training import attribution

ROUNDS = {
    "files_images_per_second": "files",
    "synthetic_images_per_second": "synthetic",
    "loader_images_per_second": "loader",
}
"""The record's section for each column; their rounds explain the rate of the epochs."""
PARTS = ("seconds_compiling", "seconds_training", "seconds_validating", "seconds_other")


@lru_cache(maxsize=KEPT)
def frame(compared: Comparison) -> pd.DataFrame:
    """One row per finished run, numbers only.

    Columns:

    - label, series (the label without its nodes), devices, nodes, seed;
    - kind (``comparability.kind``), comparable (its fairness check was passed), flags
      (``comparability.flags``: why its times are not comparable), ranks (whether its devices rank
      frameworks, and all runs are of one machine and did the same work);
    - seconds (all epochs: training, validation and compiling), seconds_to_target (until the end of
      the epoch that reached ``learning_curves.main_target``; NaN if none did or there is none),
      images_to_target (trained on until then), images_per_second of the epochs without the first;
    - seconds_compiling (what the first step took longer than a typical one), seconds_training (the
      rest of the epochs' training), seconds_validating and seconds_other: together the seconds;
    - first_step_seconds, step_median, step_minimum and step_maximum (seconds, without the first
      step of each epoch), the rounds' files_, synthetic_ and loader_images_per_second; of these
      rates the minimum and maximum (``_low``, ``_high``) over the run's epochs or rounds;
    - those of the task's metrics (mean_auc, auc_low and auc_high, the ends of its 95 % interval
      over patients; or test_top1, top1_low, top1_high, test_top5, ...), peak_bytes of a device's
      memory, joules, images_per_joule.
    """
    race = ranked(compared) if unequal(compared) is None else ()
    return pd.DataFrame(
        [_numbers(compared, entry) | {"ranks": entry in race} for entry in compared.finished]
    )


def undisturbed(runs: pd.DataFrame) -> pd.DataFrame:
    """``frame`` without runs whose times only noise spoiled, if a repeat has no flags."""
    flags = runs["flags"].map(set)
    noise = flags.map(lambda found: bool(found) and found <= comparability.NOISE)
    sound = (flags.map(len) == 0).groupby([runs["label"], runs["devices"]]).transform("any")
    return runs[~(noise & sound)]


def _numbers(compared: Comparison, entry: Entry) -> dict[str, Any]:
    content = entry.content
    training, test, energy = content["training"], content["test"], _energy(content)
    metrics = tasks.of(content["recipe"]).metrics
    wanted, trained = learning_curves.main_target(compared), comparability.steady(content)
    got = {} if wanted is None else learning_curves.reached(entry, compared.metric, wanted)
    found = {
        "label": entry.label,
        "series": entry.series,
        "devices": entry.devices,
        "nodes": comparability.nodes(content),
        "kind": comparability.kind(content),
        "seed": content["recipe"]["seed"],
        "comparable": entry.comparable,
        "flags": comparability.flags(content),
        "seconds": training["seconds"],
        "seconds_to_target": got.get("seconds"),
        "images_to_target": got.get("images"),
        "images_per_second": training["images_per_second"],
        "images_per_second_low": min(trained),
        "images_per_second_high": max(trained),
        **_parts(content),
        "first_step_seconds": training["first_step_seconds"],
        **{f"step_{name}": step for name, step in training.get("step_seconds", {}).items()},
    }
    for rate, section in ROUNDS.items():
        rounds = content[section]["rounds"]
        found[rate] = content[section]["images_per_second"]
        found |= {f"{rate}_low": min(rounds), f"{rate}_high": max(rounds)}
    for metric in metrics:
        found |= zip((metric.column, *metric.ends), metric.of(test), strict=True)
    return found | {
        "peak_bytes": content.get("memory", {}).get("peak_bytes"),
        "joules": energy.get("joules"),
        "images_per_joule": energy.get("images_per_joule"),
    }


def _energy(content: dict[str, Any]) -> dict[str, Any]:
    """The section of a run whose GPUs were all observed in all epochs; otherwise nothing."""
    if comparability.resumed_after(content):
        return {}
    if comparability.nodes(content) > 1 and not comparability.simulated_nodes(content):
        watched = content["monitor"].get("devices")
        seen = [each for each in watched if isinstance(each, dict)] if watched else []
        if sum(each.get("kind") == "gpu" for each in seen) < content["devices"]["count"]:
            return {}
    return content.get("energy", {})


def _parts(content: dict[str, Any]) -> dict[str, float]:
    """The seconds of a run's training, divided by what they were spent on."""
    seconds, epochs = content["training"]["seconds"], content["epochs"]
    compiled = seconds * attribution.compiling(content)
    train, valid = (
        sum(epoch[f"{part}_seconds"] for epoch in epochs) for part in ("train", "valid")
    )
    return {
        "seconds_compiling": compiled,
        "seconds_training": max(train - compiled, 0.0),
        "seconds_validating": valid,
        "seconds_other": max(seconds - train - valid, 0.0),
    }
