"""Format the tables of the comparison as text; rows and columns are as in the article.

Numbers to compute with come from ``helpers.results.comparison.results``.
"""

from typing import Any

import pandas as pd

from helpers import terminal
from helpers.fairness import check_results
from helpers.results.comparability import marked, together
from helpers.results.comparison import Comparison, devices, latest_of_each
from helpers.results.ranking import ordered
from helpers.results.repeated_runs import metric_with_interval, summarise, with_range
from helpers.training import attribution, rank_tables

IN_MINUTES = 120.0
"""Seconds above which a training time is shown in minutes."""


def training(compared: Comparison) -> pd.DataFrame:
    """Rows frameworks, the fastest first where they are ranked; for each number of devices columns.

    Images/s on files and on synthetic data are of the same rounds, with their minimum and maximum;
    the loader alone is a factor over training on files. Total time, of all epochs with validation,
    and time to the target include compiling. A single run's metric has its interval over patients.
    A row says where a check failed, a run was resumed or a GPU was shared.
    """
    numbers, metric = ordered(compared), compared.task.metric
    if numbers.empty:
        return pd.DataFrame()
    counts = sorted(numbers["devices"].unique())
    names = {
        label: marked(str(label), _marks(of.set_index("devices")["marks"]))
        for label, of in numbers.groupby("label")
    }
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for _, row in numbers.iterrows():
        headroom = row["loader_images_per_second"] / row["images_per_second"]
        texts = {
            "images/s": with_range(row, "images_per_second", short_number),
            "images/s, synthetic": with_range(row, "synthetic_images_per_second", short_number),
            "loader alone, times": short_number(headroom),
            "total time": with_range(row, "seconds", time_text),
            f"test {metric.short}": metric_with_interval(row, metric),
        }
        for name, text in texts.items():
            cells.setdefault((devices(row["devices"]), name), {})[names[row["label"]]] = text
    columns = [(devices(n), name) for n in counts for (head, name) in cells if head == devices(n)]
    frame = pd.DataFrame(cells).fillna("-")[columns]
    return frame.loc[list(dict.fromkeys(names[label] for label in numbers["label"]))].rename_axis(
        "framework"
    )


def state(compared: Comparison) -> pd.DataFrame:
    """Every run, which of several it was, how it ended, and why if not well.

    The run time is that of the whole run, with the kernel's start, the fairness check and the test:
    minutes and seconds, as the terminal shows it.
    """
    rows = []
    for entry in compared.entries:
        state, seconds = entry.content["state"], entry.content["run"].get("seconds")
        if entry.resumed_after:
            state += f", resumed after epoch {entry.resumed_after}"
        rows.append(
            {
                "framework": entry.label,
                "devices": "-" if entry.devices is None else str(entry.devices),
                "variant": entry.variant or "-",
                "state": state,
                "run time": "-" if seconds is None else terminal.clock(seconds),
                "reason": entry.content.get("reason") or "",
            }
        )
    unknown = {"framework": "?", "devices": "-", "variant": "-", "run time": "-"}
    rows += [unknown | {"state": "unreadable", "reason": why} for why in compared.unreadable]
    rows += [unknown | {"state": "set aside", "reason": why} for why in compared.set_aside]
    columns = ["framework", "devices", "variant", "state", "run time", "reason"]
    if not any(entry.variant for entry in compared.entries):
        columns.remove("variant")
    return _table(rows, columns)


def fairness(compared: Comparison) -> pd.DataFrame:
    """The fairness check: rows checks, columns runs; each cell the difference and the verdict.

    Of repeats the worst of each check is shown.
    """
    columns: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in compared.entries:
        for check in entry.content.get("fairness", {}).get("checks", []):
            worst = columns.setdefault(entry.run, {})
            before = worst.get(check["check"], check)
            worst[check["check"]] = max(before, check, key=_badness)
    shown = {run: {name: _check_cell(c) for name, c in of.items()} for run, of in columns.items()}
    return pd.DataFrame(shown).rename_axis("check").fillna("-") if shown else pd.DataFrame()


def _badness(check: dict[str, Any]) -> tuple[int, float]:
    order_of = ("pass", "expected", "not checked", "different", "fail")
    verdict = check["verdict"]
    place = order_of.index(verdict) if verdict in order_of else len(order_of)
    return place, check["difference"] or 0.0


def energy(compared: Comparison) -> pd.DataFrame:
    """The GPUs' energy during training: one row for each run whose GPUs report it."""
    rows = [
        {
            "run": marked(f"{row['label']}, {devices(row['devices'])}", row["marks"]),
            "energy (kJ)": with_range(row, "joules", short_number, 1000),
            "images per joule": with_range(row, "images_per_joule", "{:.3g}".format),
        }
        for _, row in summarise(compared).dropna(subset=["joules"]).iterrows()
    ]
    return _table(rows, ["run", "energy (kJ)", "images per joule"])


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


def sentences(compared: Comparison) -> list[str]:
    """The attribution in words, one line a run."""
    return [
        f"{entry.run}: {attribution.read(entry.content)['sentence']}"
        for entry in latest_of_each(compared.finished)
    ]


def versions(compared: Comparison) -> pd.DataFrame:
    """Versions of everything that matters: rows packages, columns frameworks."""
    columns = {
        entry.label: pd.Series(entry.content["framework"]["versions"], dtype=object)
        for entry in latest_of_each(compared.entries)
        if entry.content["framework"]["versions"]
    }
    return pd.DataFrame(columns).rename_axis("package").fillna("-") if columns else pd.DataFrame()


def hardware(compared: Comparison) -> pd.DataFrame:
    """What ran: devices, recipe, data, commit; rows properties.

    What their machines are made of is in `machine_cards`.

    What is the same for all runs stands in one row; else there is a row for each value. Repeats
    that differ, as those of several seeds do, have all their values in one.
    """
    found: dict[str, dict[str, list[str]]] = {}  # by property and run, the values of its repeats
    entries = [entry for entry in compared.entries if "hardware" in entry.content]
    tested = any("self_test" in entry.content for entry in entries)
    for entry in entries:
        content = entry.content
        recipe, data = content["recipe"], content.get("data")
        values = {
            "machine": content["run"]["host"],
            "devices": _devices_cell(content["devices"]) + _nodes_cell(content),
            "recipe": (
                f"{recipe['name']}, {recipe['crop']} px, "
                f"{recipe['epochs']} epoch{'s' * (recipe['epochs'] != 1)}, {recipe['precision']}"
            ),
            "seed": str(recipe["seed"]),
            "global batch": str(recipe["global_batch_size"]),
            "learning rate": f"{recipe['scaled_learning_rate']:g}",
            "data": _data_cell(data),
            "initial weights": _weights_cell(content.get("weights")),
            "environment": _environment_cell(content["run"].get("environment")),
            "commit": content["run"].get("commit") or "unknown",
        }
        if tested:
            values["self-test"] = _self_test_cell(content.get("self_test"))
        for what, value in values.items():
            found.setdefault(what, {}).setdefault(entry.run, []).append(value)
    rows = []
    for what, runs in found.items():
        alike: dict[str, list[str]] = {}
        for run, values_of in runs.items():
            alike.setdefault("; ".join(dict.fromkeys(values_of)), []).append(run)
        for value, who in alike.items():
            every = len(who) == len(runs)
            rows.append(
                {"what": what, "value": value, "runs": "every run" if every else "; ".join(who)}
            )
    return _table(rows, ["what", "value", "runs"])


def _marks(marks: pd.Series) -> list[str]:
    """The marks of a framework's row, with the devices where it is not all of them."""
    said = []
    for mark in together(marks):
        on = [devices(count) for count, of in marks.items() if mark in of]
        said.append(mark if len(on) == len(marks) else f"{mark} on {' and '.join(on)}")
    return said


def _check_cell(check: dict[str, Any]) -> str:
    if check["difference"] is None:
        return check_results.shown(check["verdict"])
    limit = "" if check["threshold"] is None else f" (limit {_size(check['threshold'], 0)})"
    return f"{check_results.shown(check['verdict'])}: {_size(check['difference'], 1)}{limit}"


def _size(value: float, digits: int) -> str:
    return "0" if value == 0 else f"{value:.{digits}e}"


def _devices_cell(found: dict[str, Any]) -> str:
    if found["kind"] == "cpu":
        return f"{found['count']} on the CPU{_cores(found.get('cpus', []))}"
    names = ", ".join(dict.fromkeys(found["names"]))
    if gpus := found.get("shared_gpus"):
        return f"{found['count']} replicas on {gpus} x {names}"
    return f"{found['count']} x {names}"


def _cores(cpus: list[dict[str, Any]]) -> str:
    """``, cores 0, 1 and 2, 3, 2 threads each``."""
    if not cpus:
        return ", sharing cores"
    cores = " and ".join(", ".join(map(str, cpu["cores"])) for cpu in cpus)
    threads = " and ".join(dict.fromkeys(str(cpu["threads"]) for cpu in cpus))
    return f", cores {cores}, {threads} thread{'s' * (threads != '1')} each"


def _nodes_cell(content: dict[str, Any]) -> str:
    """``, 2 nodes by srun over eth0``, with what they measured of their network and each other.

    Nothing of a run that no launcher started.
    """
    cluster = content.get("cluster")
    if cluster is None:
        return ""
    count, simulated = cluster["nodes"], "simulated " * cluster["simulated"]
    by = f"{cluster['launcher']} {cluster['launcher_version']}"
    nodes = f", {count} {simulated}node{'s' * (count != 1)} by {by} over {cluster['interface']}"
    return "; ".join([nodes, *(line.removesuffix(".") for line in rank_tables.lines(cluster))])


def _self_test_cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    taken = terminal.clock(found["seconds"])
    right = f"layers and all-reduce were right before the experiment ({taken})"
    return right if found["reason"] is None else str(found["reason"])


def _data_cell(data: dict[str, Any] | None) -> str:
    if data is None:
        return "-"
    images = data["images"]
    return (
        f"{data['kind']}, {data['pixels']} px, "
        f"{images['train']} + {images['valid']} + {images['test']} images, {data['folder']}"
    )


def _environment_cell(found: dict[str, str] | None) -> str:
    if found is None:
        return "not recorded"
    return " ".join(f"{name}={value}" for name, value in found.items()) or "nothing set"


def _weights_cell(found: dict[str, Any] | None) -> str:
    return "-" if found is None else f"{found['source']}, {found['sha256'][:12]}"


def time_text(seconds: float) -> str:
    """A training time, ``37.8 s``; from two minutes on as on a clock, ``2:06``."""
    return terminal.clock(seconds) if seconds >= IN_MINUTES else f"{short_number(seconds)} s"


def short_number(value: float) -> str:
    """Three digits that count: 1,234, 12.3, -1.23; what rounds to nothing has no sign."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:z.2f}"


def _table(rows: list[dict[str, str]], columns: list[str]) -> pd.DataFrame:
    """A table for reading, whose index says nothing and takes no room."""
    frame = pd.DataFrame(rows, columns=columns)
    return frame.set_index(columns[0])
