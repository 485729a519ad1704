"""Rank frameworks by their images/s when training on files, the report's main metric.

The rate is that of the rounds of section 11, which exclude compiling (``rates.together``).
Headline, answer, first chart and tables use the same order.
"""

from collections.abc import Iterable
from functools import lru_cache

import pandas as pd

from helpers.results import machines
from helpers.results.comparability import RANKED, kind
from helpers.results.comparison import KEPT, Comparison, Entry
from helpers.results.repeated_runs import summarise

RATE = "images_per_second"


def ranked(compared: Comparison) -> tuple[Entry, ...]:
    """The finished runs whose times may rank frameworks.

    Those on GPUs where any run is on GPUs, else those on CPUs: a GPU and a CPU are never in one
    ranking, and neither are two machines (:func:`_differ`).
    """
    found = _rivals(compared)
    return found if _differ(found) is None else ()


def _rivals(compared: Comparison) -> tuple[Entry, ...]:
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    race = "gpu" if on_gpus else "cpu"
    return tuple(
        entry
        for entry in compared.finished
        if kind(entry.content) in RANKED and entry.content["devices"]["kind"] == race
    )


def _differ(entries: Iterable[Entry]) -> str | None:
    """In what the machines of these runs differ, so that they do not rank; None if in nothing."""
    contents = [entry.content for entry in entries]
    on_gpus = [content["devices"] for content in contents if content["devices"]["kind"] == "gpu"]
    gpus = set(map(machines.models, on_gpus))
    if len(gpus) > 1:
        return f"GPU ({', '.join(sorted(gpus))})"
    of_machine = {
        machines.key(content): f"{content['hardware']['cpu']} of {content['hardware']['cores']}"
        for content in contents
    }
    if len(of_machine) > 1:
        return f"CPU ({', '.join(sorted(of_machine.values()))} logical cores)"
    cores = sorted({machines.cores_per_device(content) for content in contents})
    return f"cores per device ({', '.join(cores)})" if len(cores) > 1 else None


def unranked(compared: Comparison) -> str | None:
    """Why the times of these runs rank no framework, in a sentence; None where they do."""
    if not compared.finished or ranked(compared):
        return None
    if rivals := _rivals(compared):
        race = rivals[0].content["devices"]["kind"].upper()
        return f"{race} runs are not ranked, because they differ in {_differ(rivals)}."
    kinds = {kind(entry.content) for entry in compared.finished}
    if "simulated" in kinds:
        why = "Simulated nodes are processes of one machine, with no network between them"
    else:
        why = "These CPU devices have no cores of their own"
    return f"{why}, so these times do not rank frameworks and say nothing about scaling."


@lru_cache(maxsize=KEPT)
def field(compared: Comparison) -> pd.DataFrame:
    """The rows of :func:`summarise` that are ranked: of the ranked runs those on most devices.

    The fastest first; rows with marks, which are not ranked, last. Empty where nothing ranks.
    """
    rivals, found = ranked(compared), summarise(compared)
    most = max((entry.devices or 0 for entry in rivals), default=0)
    labels = {entry.label for entry in rivals if entry.devices == most}
    found = found[found["label"].isin(labels) & (found["devices"] == most)]
    order = found.assign(marked=found["marks"].map(len) > 0, slow=-found[RATE].astype(float))
    return found.loc[order.sort_values(["marked", "slow"], kind="stable").index]


def ordered(compared: Comparison) -> pd.DataFrame:
    """The rows of :func:`summarise`, the fastest label of :func:`field` first.

    Labels that are not ranked follow, in the order of the frameworks.
    """
    found = summarise(compared)
    places = {label: place for place, label in enumerate(field(compared)["label"])}
    return found.sort_values("label", key=lambda labels: labels.map(places), kind="stable")


def fastest(compared: Comparison) -> list[pd.Series]:
    """The rows of :func:`field` from which no other is significantly faster, the fastest first."""
    rows = [row for _, row in field(compared).iterrows() if not row["marks"]]
    return [row for row in rows if row is rows[0] or not is_faster(rows[0], row)]


def is_faster(fast: pd.Series, slow: pd.Series) -> bool:
    """Whether two rows' intervals are clear of each other."""
    return bool(fast[f"{RATE}_low"] > slow[f"{RATE}_high"])
