"""Describe the machines of a report, and compare the same framework on each of them."""

from statistics import median
from typing import Any

import pandas as pd

from helpers.results import comparability, machines
from helpers.results.comparison import Comparison, Entry, devices, repeats
from helpers.results.comparison_tables import short_number
from helpers.results.rates import ENDS, Rate, rate
from helpers.results.repeated_runs import with_range


def cards(compared: Comparison) -> pd.DataFrame:
    """A column a machine, as text: its hosts, CPU, memory, GPUs, what joins them, driver, network.

    Empty where no run knew its machine. What the records do not tell is ``not recorded``.
    """
    columns: dict[str, dict[str, str]] = {}
    for name, entries in _by_machine(compared).items():
        contents = [entry.content for entry in entries]
        hardware = [content["hardware"] for content in contents]
        columns[name] = {
            "hosts": _all(str(content["run"]["host"]) for content in contents),
            "CPU": f"{hardware[0]['cpu']}, {hardware[0]['cores']} cores",
            "memory": f"{hardware[0]['memory_bytes'] / 2**30:.0f} GiB",
            "GPUs": _gpus(hardware),
            "between GPUs": _between(hardware),
            "driver": _all(str(found["driver"] or "none") for found in hardware),
            "system": _all(str(found["platform"]) for found in hardware),
            "nodes": _all(filter(None, map(_nodes, contents))) or "one",
            "runs": str(len(entries)),
        }
    return pd.DataFrame(columns).rename_axis("machine")


def _by_machine(compared: Comparison) -> dict[str, list[Entry]]:
    names = machines.names([entry.content for entry in compared.entries])
    found: dict[str, list[Entry]] = {}
    for entry, name in zip(compared.entries, names, strict=True):
        if name is not None:
            found.setdefault(name.removeprefix("on "), []).append(entry)
    return found


def _gpus(hardware: list[dict[str, Any]]) -> str:
    """Of the run that saw the most."""
    most: list[str] = max((found["gpus"] for found in hardware), key=len)
    counted = {name: most.count(name) for name in dict.fromkeys(most)}
    return ", ".join(f"{count} x {name}" for name, count in counted.items()) or "none"


def _between(hardware: list[dict[str, Any]]) -> str:
    if not any(found["gpus"] for found in hardware):
        return "-"
    if not any("topology" in found for found in hardware):
        return "not recorded"
    return _all(pair for found in hardware for pair in found.get("topology", [])) or "one GPU"


def _nodes(content: dict[str, Any]) -> str:
    """``2 by mpiexec 5.0.2 over eth0; all-reduce of 31.0 MB at 118 MB/s, gloo on eth0``."""
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


def _all(texts: Any) -> str:
    """Each once, at most six."""
    found = list(dict.fromkeys(texts))
    return "; ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")


def against(compared: Comparison) -> pd.DataFrame:
    """The same framework on as many devices of two machines or more: images/s, as text.

    A row a framework (with settings other than the machine and its devices), nodes and number of
    devices that several machines ran; a column a machine, and the ratio of the highest to the
    lowest with the minimum and maximum that repeats allow.
    """
    of_machine = _by_machine(compared)
    if len(of_machine) < 2:
        return pd.DataFrame()
    rows: dict[str, dict[str, list[Rate]]] = {}
    for machine, entries in of_machine.items():
        for group in repeats(entry for entry in entries if entry.finished).values():
            first = group[0]
            where = (f"on {machine}", f"on {', '.join(dict.fromkeys(_names(first)))}", "on the CPU")
            name = first.label
            for part in where:
                name = name.replace(f" {part}", "")
            marks = comparability.together(comparability.marks(e.content) for e in group)
            run = comparability.marked(f"{name}, {devices(first.devices or 0)}", marks)
            rates = [rate(entry.content) for entry in group]
            rows.setdefault(run, {}).setdefault(machine, []).extend(rates)
    texts = {
        run: {machine: _rate(found.get(machine, [])) for machine in of_machine}
        | {"highest over lowest": _ratio(list(found.values()))}
        for run, found in rows.items()
        if len(found) > 1
    }
    return pd.DataFrame.from_dict(texts, orient="index").rename_axis("images/s")


def _names(entry: Entry) -> list[str]:
    return [str(name) for name in entry.content["devices"]["names"]]


def _rate(rates: list[Rate]) -> str:
    if not rates:
        return "-"
    row = pd.Series({"runs": len(rates), **dict(zip(ENDS, _spread(rates), strict=True))})
    return with_range(row, "", short_number)


def _spread(rates: list[Rate]) -> Rate:
    """The median of the runs, and the minimum and maximum of all their rounds."""
    values, lows, highs = zip(*rates, strict=True)
    return median(values), min(lows), max(highs)


def _ratio(rates: list[list[Rate]]) -> str:
    slow, fast = (of(map(_spread, rates)) for of in (min, max))
    low, high = fast[1] / slow[2], fast[2] / slow[1]
    spread = f" ({low:.2f} to {high:.2f})" if low < high else " (one run each)"
    return f"{fast[0] / slow[0]:.2f}{spread}"
