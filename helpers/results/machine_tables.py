"""Describe what a report's runs were measured on, and compare the same framework on machines."""

from collections.abc import Iterable
from statistics import geometric_mean
from typing import Any

import pandas as pd

from helpers import terminal
from helpers.results import comparability, machines, run_sets
from helpers.results.comparison import ENDS, Comparison, Entry, devices, latest_of_each, repeats
from helpers.results.tables import (
    Cell,
    Name,
    Table,
    of_label,
    ranged,
    short_number,
    table,
)


def cards(compared: Comparison) -> Table:
    """A row a machine: its hosts, CPU, memory, GPUs, what joins them, driver, network.

    Empty where no run knew its machine. What the records do not tell is ``not recorded``.
    """
    rows: list[tuple[Name | str, dict[str, str]]] = []
    for name, entries in _by_machine(compared).items():
        contents = [entry.content for entry in entries]
        hardware = [content["hardware"] for content in contents]
        found = {
            "hosts": _all(host for content in contents for host in comparability.hosts_of(content)),
            "CPU": f"{hardware[0]['cpu']}, {hardware[0]['cores']} logical cores",
            "memory": f"{hardware[0]['memory_bytes'] / 2**30:.0f} GiB",
            "GPUs": _gpus(hardware),
            "between GPUs": _between(hardware),
            "driver": _all(str(each["driver"]) for each in hardware if each["driver"]),
            "system": _all(str(each["platform"]) for each in hardware),
            "nodes": _all(filter(None, map(_nodes, contents))),
        }
        rows.append((name, {what: text for what, text in found.items() if text}))
    return table("Machines", "machine", rows)


def _by_machine(compared: Comparison) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in compared.entries:
        if entry.machine:
            found.setdefault(entry.machine, []).append(entry)
    return found


def label_anywhere(entry: Entry) -> str:
    """Its label without the machine and the device, for tables that have columns for these."""
    gpus = machines.models(entry.content["devices"])
    label = entry.label
    for part in filter(None, (entry.machine, gpus, "the CPU")):
        label = label.replace(f" on {part}", "")
    return label


def _gpus(hardware: list[dict[str, Any]]) -> str:
    """The GPUs of the run that saw the most; nothing without GPUs."""
    most: list[str] = max((found["gpus"] for found in hardware), key=len)
    counted = {name: most.count(name) for name in dict.fromkeys(most)}
    return ", ".join(f"{count} x {name}" for name, count in counted.items())


def _between(hardware: list[dict[str, Any]]) -> str:
    if not any(found["gpus"] for found in hardware):
        return ""
    if not any("topology" in found for found in hardware):
        return "not recorded"
    return _all(pair for found in hardware for pair in found.get("topology", [])) or "one GPU"


def _nodes(content: dict[str, Any]) -> str:
    """``2 by mpiexec 5.0.2 over eth0 (all-reduce of 31.0 MB at 118 MB/s, gloo on eth0)``."""
    cluster = content.get("cluster")
    if cluster is None:
        return ""
    said = (
        f"{cluster['nodes']}{' simulated' * cluster['simulated']} by {cluster['launcher']} "
        f"{cluster['launcher_version']} over {cluster['interface']}"
    )
    if found := cluster.get("all_reduce"):
        said += (
            f" (all-reduce of {found['bytes'] / 1e6:,.1f} MB at "
            f"{found['bus_bytes_per_second'] / 1e6:,.3g} MB/s, {found['over']})"
        )
    return said


def _all(texts: Iterable[str]) -> str:
    """Each once, at most six."""
    found = list(dict.fromkeys(texts))
    return "; ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")


def against(compared: Comparison) -> Table:
    """The images/s of the same framework on as many devices of two machines or more.

    A row a framework (with settings other than the machine and its devices), nodes and number of
    devices that several machines ran; a column a machine, and the ratio of the highest to the
    lowest with the range that their brackets allow.
    """
    of_machine = _by_machine(compared)
    rows: dict[Name, dict[str, list[Entry]]] = {}
    for machine, entries in of_machine.items():
        for group in repeats(entry for entry in entries if entry.finished).values():
            first = group[0]
            marks = comparability.together(comparability.marks(e.content) for e in group)
            run = of_label(f"{label_anywhere(first)}, {devices(first.devices or 0)}", marks)
            rows.setdefault(run, {}).setdefault(machine, []).extend(group)
    texts = [
        (
            run,
            {
                machine: ranged(_rate(entries), "", short_number)
                for machine, entries in found.items()
            }
            | {"highest / lowest": _ratio(list(map(_rate, found.values())))},
        )
        for run, found in rows.items()
        if len(found) > 1
    ]
    return table(
        "The same runs on other machines",
        "images/s",
        texts,
        columns=[*of_machine, "highest / lowest"],
        note="Cells give images/s in steady state. Brackets hold the minimum and maximum of the "
        "runs; of one run, of its epochs. Notebooks, settings and numbers of devices are the same.",
    )


def _rate(entries: list[Entry]) -> dict[str, Any]:
    each = [entry.content["training"]["images_per_second"] for entry in entries]
    values = comparability.steady(entries[0].content) if len(each) == 1 else each
    ends = geometric_mean(each), min(values), max(values)
    return {"runs": len(each), **dict(zip(ENDS, ends, strict=True))}


def _ratio(rates: list[dict[str, Any]]) -> Cell:
    slow, fast = (of(rates, key=lambda rate: rate[""]) for of in (min, max))
    low, high = fast["_low"] / slow["_high"], fast["_high"] / slow["_low"]
    if low < high:
        return Cell(fast[""] / slow[""], "{:.2f}".format, low, high)
    return Cell(fast[""] / slow[""], "{:.2f}".format, note="one run each")


def versions(compared: Comparison) -> pd.DataFrame:
    """Versions of everything that matters: rows packages, columns frameworks."""
    columns = {
        entry.label: pd.Series(entry.content["framework"]["versions"], dtype=object)
        for entry in latest_of_each(compared.entries)
        if entry.content["framework"]["versions"]
    }
    return pd.DataFrame(columns).rename_axis("package").fillna("-") if columns else pd.DataFrame()


def versions_table(compared: Comparison) -> Table:
    """:func:`versions`, one line a framework, of which some notebooks share one."""
    found: dict[str, list[str]] = {}
    for label, of in versions(compared).items():
        packages = [f"{name} {version}" for name, version in of.items() if version != "-"]
        found.setdefault(", ".join(packages), []).append(str(label))
    rows = [(", ".join(labels), {"packages": packages}) for packages, labels in found.items()]
    return table("Versions", "framework", rows, folded=True)


def hardware(compared: Comparison) -> Table:
    """What ran: devices, recipe, data, commit; rows properties.

    What is the same for all runs stands in one row; else there is a row for each value. Repeats
    that differ, as those of several seeds do, have all their values in one.
    """
    found: dict[str, dict[str, list[str]]] = {}  # by property and run, the values of its repeats
    entry_of: dict[str, Entry] = {}
    entries = [entry for entry in compared.entries if "hardware" in entry.content]
    tested = any("self_test" in entry.content for entry in entries)
    for entry in entries:
        content = entry.content
        recipe = content["recipe"]
        values = {
            "machine": content["run"]["host"],
            "devices": ", ".join(filter(None, [devices_text(content["devices"]), _nodes(content)])),
            "recipe": (
                f"{recipe['name']}, {recipe['crop']} px, "
                f"{recipe['epochs']} epoch{'s' * (recipe['epochs'] != 1)}, {recipe['precision']}"
            ),
            "seed": str(recipe["seed"]),
            "global batch": str(recipe["global_batch_size"]),
            "learning rate": f"{recipe['scaled_learning_rate']:g}",
            "data": _data(content),
            "initial weights": _weights(content.get("weights")),
            "environment": _environment(content["run"].get("environment")),
            "commit": content["run"].get("commit") or "unknown",
        }
        if tested:
            values["self-test"] = _self_test(content.get("self_test"))
        entry_of[entry.run] = entry
        for what, value in values.items():
            found.setdefault(what, {}).setdefault(entry.run, []).append(value)
    rows = []
    for what, runs in found.items():
        alike: dict[str, list[str]] = {}
        for run, values_of in runs.items():
            alike.setdefault("; ".join(dict.fromkeys(values_of)), []).append(run)
        for value, who in alike.items():
            said = run_sets.named([entry_of[run] for run in who], entries)
            rows.append((what, {"value": value, "runs": said}))
    return table("Devices, recipe, data", "what", rows, folded=True)


def devices_text(found: dict[str, Any]) -> str:
    """``2 x NVIDIA H100``, ``2 on the CPU, sharing cores``."""
    if found["kind"] == "cpu":
        return f"{found['count']} on the CPU{_cores(found.get('cpus', []))}"
    return f"{found['count']} x {machines.models(found)}"


def _cores(cpus: list[dict[str, Any]]) -> str:
    """``, cores 0, 1 and 2, 3, 2 threads each``."""
    if not cpus:
        return ", sharing cores"
    cores = " and ".join(", ".join(map(str, cpu["cores"])) for cpu in cpus)
    threads = " and ".join(dict.fromkeys(str(cpu["threads"]) for cpu in cpus))
    return f", cores {cores}, {threads} thread{'s' * (threads != '1')} each"


def _self_test(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    taken = terminal.clock(found["seconds"])
    right = f"a training step was correct before the experiment ({taken})"
    return right if found["reason"] is None else str(found["reason"])


def _data(content: dict[str, Any]) -> str:
    if (data := content.get("data")) is None:
        return "-"
    images = data["images"]
    said = (
        f"{data['kind']}, {data['pixels']} px, "
        f"{images['train']} + {images['valid']} + {images['test']} images, {data['folder']}"
    )
    if mounted := data.get("filesystem"):
        said += f", read from a {'shared' if mounted['shared'] else 'local'} filesystem"
        said += f" ({mounted['kind']})"
    return said


def _environment(found: dict[str, str] | None) -> str:
    if found is None:
        return "not recorded"
    settings = {name: value for name, value in found.items() if not name.endswith("_CACHE_DIR")}
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "nothing set"


def _weights(found: dict[str, Any] | None) -> str:
    return "-" if found is None else f"{found['source']}, {found['sha256'][:12]}"
