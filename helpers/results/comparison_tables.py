"""The tables of the comparison: training, the runs' state, and the fairness check.

Numbers to compute with come from ``helpers.results.comparison.results``.
"""

from collections.abc import Callable
from typing import Any

import pandas as pd

from helpers import terminal
from helpers.fairness import check_results
from helpers.results import by_class
from helpers.results.comparability import together
from helpers.results.comparison import Comparison, Entry, devices
from helpers.results.ranking import ordered
from helpers.results.repeated_runs import brackets
from helpers.results.tables import (
    ABSENT,
    Cell,
    Name,
    Row,
    Table,
    of_label,
    of_metric,
    of_run,
    ranged,
    short_number,
    table,
    time_text,
    transposed,
)

_VERDICTS = ("pass", "expected", "not checked", "different", "fail")
"""From the best to the worst."""
_TONES = {"pass": "good", "fail": "bad"}


def training(compared: Comparison) -> Table:
    """Rows frameworks, the fastest first where they are ranked; for each number of devices columns.

    A row says where a check failed, a run was resumed or a GPU was shared.
    """
    numbers, metric = ordered(compared), compared.task.metric
    rows: dict[Name, dict[Name, Cell]] = {}
    marks = {
        label: _marks(of.set_index("devices")["marks"]) for label, of in numbers.groupby("label")
    }
    for row in numbers.to_dict("records"):
        headroom = row["loader_images_per_second"] / row["images_per_second"]
        cells = {
            "images/s": ranged(row, "images_per_second", short_number),
            "images/s, synthetic": ranged(row, "synthetic_images_per_second", short_number),
            "loader alone, times": Cell(headroom, short_number),
            "total time": ranged(row, "seconds", time_text),
            f"test {metric.short}": of_metric(row, metric),
        }
        on = devices(row["devices"])
        rows.setdefault(of_label(row["label"], marks[row["label"]]), {}).update(
            {Name(text, above=on): cell for text, cell in cells.items()}
        )
    order = [devices(count) for count in sorted(set(numbers["devices"]))]
    heads = sorted(
        dict.fromkeys(head for of in rows.values() for head in of),
        key=lambda head: order.index(head.above),
    )
    return table(
        "Training",
        "framework",
        rows.items(),
        columns=heads,
        note="Images/s on files and on synthetic data come from the same alternating rounds, "
        "without compiling and validation. The loader alone is given as times the rate of "
        "training on files. The total time covers all epochs with validation, and compiling. "
        f"{brackets(compared)} {by_class.uncertainty(compared)}",
        kind="measured",
    )


def _marks(marks: pd.Series) -> list[str]:
    """The marks of a framework's row, with the devices where it is not all of them."""
    said = []
    for mark in together(marks):
        on = [devices(count) for count, of in marks.items() if mark in of]
        said.append(mark if len(on) == len(marks) else f"{mark} on {' and '.join(on)}")
    return said


def state(compared: Comparison) -> Table:
    """Every run, which of several it was, how it ended, and why if not well."""
    rows: list[tuple[Name | str, Row]] = []
    several = any(entry.variant for entry in compared.entries)
    for entry in compared.entries:
        content, seconds = entry.content, entry.content["run"].get("seconds")
        after = f", resumed after epoch {entry.resumed_after}" * bool(entry.resumed_after)
        cells = {
            "devices": ABSENT if entry.devices is None else Cell(entry.devices),
            "state": content["state"] + after,
            "run time": ABSENT if seconds is None else Cell(seconds, terminal.clock),
            "reason": content.get("reason") or "",
        } | ({"variant": entry.variant or ABSENT} if several else {})
        rows.append((of_label(entry.label), cells))
    for state, reasons in (("unreadable", compared.unreadable), ("set aside", compared.set_aside)):
        rows += [("?", {"state": state, "reason": why}) for why in reasons]
    return table(
        "How every run ended",
        "framework",
        rows,
        columns=["devices", *["variant"] * several, "state", "run time", "reason"],
        note="Run time, in minutes and seconds, covers the whole run, as the terminal shows it: "
        "the start of its kernel, the fairness check, training, the test and the measurements "
        "after it. For a notebook run by hand it starts with its record.",
    )


def fairness(compared: Comparison) -> Table:
    """The fairness check: rows checks, columns runs; each cell the difference and the verdict.

    Of repeats the worst of each check is shown.
    """
    columns: dict[Name | str, dict[str, dict[str, Any]]] = {}
    for entry in compared.entries:
        for check in entry.content.get("fairness", {}).get("checks", []):
            worst = columns.setdefault(of_run(entry, timed=False), {})
            before = worst.get(check["check"], check)
            worst[check["check"]] = max(before, check, key=_badness)
    shown: dict[Name | str, Row] = {
        run: {name: _check_cell(check) for name, check in of.items()} for run, of in columns.items()
    }
    return table("Fairness check", "check", transposed(shown), kind="verdicts")


def _badness(check: dict[str, Any]) -> tuple[int, float]:
    verdict = check["verdict"]
    place = _VERDICTS.index(verdict) if verdict in _VERDICTS else len(_VERDICTS)
    return place, check["difference"] or 0.0


def _check_cell(check: dict[str, Any]) -> Cell:
    verdict, tone = check_results.shown(check["verdict"]), _TONES.get(check["verdict"], "other")
    if check["difference"] is None:
        return Cell(verdict, tone=tone)
    limit = "" if check["threshold"] is None else f"limit {_size(check['threshold'], 0)}"
    return Cell(f"{verdict}: {_size(check['difference'], 1)}", note=limit, tone=tone)


def _size(value: float, digits: int) -> str:
    return "0" if value == 0 else f"{value:.{digits}e}"


def reasons(compared: Comparison) -> Table:
    """The fairness check's remarks, each with the runs that share it."""
    said: dict[tuple[str, str, str], dict[str, None]] = {}
    checked = {entry.run: None for entry in compared.entries if "fairness" in entry.content}
    for entry in compared.entries:
        for check in entry.content.get("fairness", {}).get("checks", []):
            if reason := check.get("variant") or check.get("reason"):
                key = (check["check"], check["verdict"], reason)
                said.setdefault(key, {})[entry.run] = None
    rows = []
    for (check, verdict, reason), runs in said.items():
        who = "every run" if 1 < len(runs) == len(checked) else "; ".join(runs)
        rows.append(
            (check, {"verdict": check_results.shown(verdict), "reason": reason, "runs": who})
        )
    return table("Remarks on single checks", "check", rows)


def executions(compared: Comparison) -> list[str]:
    """Which frameworks ran eagerly, and which compiled their program, in one line."""
    return _who(compared.finished, lambda training: str(training.get("execution", "")))


def switches(compared: Comparison) -> list[str]:
    """What was switched on in which frameworks to be fast, in one line."""
    return _who(compared.finished, lambda training: ", ".join(training.get("switches", ())))


def _who(entries: tuple[Entry, ...], said: Callable[[dict[str, Any]], str]) -> list[str]:
    """What records' section ``training`` says, each time with the runs of which it is said."""
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        if how := said(entry.content.get("training", {})):
            found.setdefault(how, {})[entry.label] = None
    lines = [f"{how}: {', '.join(labels)}" for how, labels in sorted(found.items())]
    return [f"{'; '.join(lines)}."] if lines else []
