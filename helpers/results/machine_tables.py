"""Describe the setup of a report's runs: machine, devices, recipe, data, versions."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from helpers.results import comparability, machines, run_sets
from helpers.results.comparison import Comparison, Entry, latest_of_each
from helpers.results.tables import Table, table

Content = dict[str, Any]


def label_anywhere(entry: Entry) -> str:
    """The label without machine and device, for tables that have columns for these."""
    label = entry.label
    for part in filter(None, (entry.machine, machines.models(entry.content["devices"]), "the CPU")):
        label = label.replace(f" on {part}", "")
    return label


def devices_text(found: dict[str, Any]) -> str:
    """``2 x NVIDIA H100``, ``2 on the CPU, sharing cores``."""
    if found["kind"] != "cpu":
        return f"{found['count']} x {machines.models(found)}"
    said = f"{found['count']} on the CPU"
    if not (cpus := found.get("cpus", [])):
        return f"{said}, sharing cores"
    cores = " and ".join(", ".join(map(str, cpu["cores"])) for cpu in cpus)
    threads = " and ".join(dict.fromkeys(str(cpu["threads"]) for cpu in cpus))
    return f"{said}, cores {cores}, {threads} thread{'s' * (threads != '1')} each"


def _devices(content: Content) -> str:
    """``2 x NVIDIA H100, 2 by mpiexec 5.0.2 over eth0``."""
    said, cluster = devices_text(content["devices"]), content.get("cluster")
    if cluster is None:
        return said
    return (
        f"{said}, {cluster['nodes']}{' simulated' * cluster['simulated']} by {cluster['launcher']} "
        f"{cluster['launcher_version']} over {cluster['interface']}"
    )


def _gpus(content: Content) -> str:
    """``2 x NVIDIA H100``; nothing without GPUs."""
    gpus = Counter(content["hardware"]["gpus"])
    return "; ".join(f"{count} x {name}" for name, count in gpus.items())


def _data(content: Content) -> str:
    if (data := content.get("data")) is None:
        return ""
    images = data["images"]
    return (
        f"{data['kind']}, {data['pixels']} px, "
        f"{images['train']} + {images['valid']} + {images['test']} images, {data['folder']}"
    )


def _recipe(content: Content) -> str:
    recipe = content["recipe"]
    epochs = f"{recipe['epochs']} epoch{'s' * (recipe['epochs'] != 1)}"
    return f"{recipe['name']}, {recipe['crop']} px, {epochs}, {recipe['precision']}"


MACHINE: dict[str, Callable[[Content], str]] = {
    "machine": lambda c: "; ".join(comparability.hosts_of(c)),
    "CPU": lambda c: f"{c['hardware']['cpu']}, {c['hardware']['cores']} logical cores",
    "memory": lambda c: f"{c['hardware']['memory_bytes'] / 2**30:.0f} GiB",
    "GPUs": _gpus,
    "driver": lambda c: str(c["hardware"]["driver"] or ""),
    "system": lambda c: str(c["hardware"]["platform"]),
    "devices": _devices,
}
SETTINGS: dict[str, Callable[[Content], str]] = {
    "recipe": _recipe,
    "seed": lambda c: str(c["recipe"]["seed"]),
    "global batch": lambda c: str(c["recipe"]["global_batch_size"]),
    "learning rate": lambda c: f"{c['recipe']['scaled_learning_rate']:g}",
    "data": _data,
    "initial weights": lambda c: (
        f"{c['weights']['source']}, {c['weights']['sha256'][:12]}" if "weights" in c else ""
    ),
    "commit": lambda c: str(c["run"].get("commit") or "unknown"),
    "versions": lambda c: ", ".join(
        f"{name} {version}" for name, version in sorted(c["framework"]["versions"].items())
    ),
}


PROGRAM: dict[str, Callable[[Content], str]] = {
    "execution": lambda c: str(c.get("training", {}).get("execution", "")),
}


def machine(compared: Comparison) -> Table:
    """The hardware of the runs: one row per property and value, with the runs that have it."""
    return _properties(compared, "Machine", MACHINE)


def settings(compared: Comparison) -> Table:
    """Recipe, data and versions, as :func:`machine`."""
    return replace(_properties(compared, "Recipe, data, versions", SETTINGS), folded=True)


def programs(compared: Comparison) -> Table:
    """How each program was executed, if this differs."""
    found = _properties(compared, "Settings that differ", PROGRAM)
    return found if len(found.rows) > len(PROGRAM) else replace(found, rows=())


def _properties(
    compared: Comparison, title: str, properties: dict[str, Callable[[Content], str]]
) -> Table:
    """If repeats differ, as with several seeds, one text holds all their values."""
    entries = [entry for entry in compared.entries if "hardware" in entry.content]
    rows: list[tuple[str, dict[str, str]]] = []
    for what, get in properties.items():
        values: dict[str, dict[str, None]] = {}
        for entry in entries:
            values.setdefault(entry.run, {})[get(entry.content)] = None
        said = {run: "; ".join(filter(None, of)) for run, of in values.items()}
        for value in dict.fromkeys(filter(None, said.values())):
            runs = run_sets.named((e for e in entries if said[e.run] == value), entries)
            rows.append((what, {"value": value, "runs": runs}))
    if len({row["runs"] for _, row in rows}) == 1:
        rows = [(what, {"value": row["value"]}) for what, row in rows]
    return table(title, "what", rows)


def versions(compared: Comparison) -> pd.DataFrame:
    """Versions of the relevant packages: one row per package, one column per framework."""
    columns = {
        entry.label: pd.Series(entry.content["framework"]["versions"], dtype=object)
        for entry in latest_of_each(compared.entries)
        if entry.content["framework"]["versions"]
    }
    return pd.DataFrame(columns).rename_axis("package").fillna("-") if columns else pd.DataFrame()
