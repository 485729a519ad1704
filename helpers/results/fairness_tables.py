"""The tables of the fairness check: what did not pass first, with reasons, then what did."""

from collections.abc import Callable, Iterator
from typing import Any

from helpers.fairness import check_results
from helpers.results import run_sets
from helpers.results.comparison import Comparison, Entry
from helpers.results.tables import ABSENT, Cell, Row, Table, table

_WORST = ("fail", "different", "expected", "not checked")
"""The verdicts of which a reader wants to know, in this order."""
_TONES = {"pass": "good", "fail": "bad"}
Check = dict[str, Any]


def not_passed(compared: Comparison) -> Table:
    """A row each check, verdict and reason, the failed ones first, with the runs they hold for.

    What was not checked for the same reason shares a row.
    """
    found: dict[tuple[str, str, str], list[tuple[Entry, Check]]] = {}
    for entry, check in _checks(compared):
        if check["verdict"] != "pass":
            reason = check.get("variant") or check.get("reason") or ""
            name = "" if check["difference"] is None else check["check"]
            found.setdefault((check["verdict"], reason, name), []).append((entry, check))
    checked = [entry for entry in compared.entries if "fairness" in entry.content]
    rows: list[tuple[str, Row]] = []
    for (verdict, reason, _), those in sorted(
        found.items(), key=lambda item: _WORST.index(item[0][0])
    ):
        cells: dict[str, Cell | str] = {
            "verdict": Cell(check_results.shown(verdict), tone=_TONES.get(verdict, "other")),
            "runs": run_sets.named((entry for entry, _ in those), checked),
            **_sizes([check for _, check in those]),
            "reason": reason,
        }
        rows.append(("; ".join(dict.fromkeys(check["check"] for _, check in those)), cells))
    return table("Differences and checks not made", "check", rows)


def passed(compared: Comparison) -> Table:
    """A row each check that some run passed: the largest difference among them, and its limit."""
    found: dict[str, list[Check]] = {}
    for _, check in _checks(compared):
        if check["verdict"] == "pass":
            found.setdefault(check["check"], []).append(check)
    rows = [(name, _sizes(those)) for name, those in found.items()]
    return table(
        "Passed checks", "check", rows, note="Cells give the largest difference of any run."
    )


def in_short(compared: Comparison) -> str:
    """``28 of 43 checks passed in every run that made them.``"""
    every = {check["check"] for _, check in _checks(compared)}
    missed = {check["check"] for _, check in _checks(compared) if check["verdict"] != "pass"}
    return f"{len(every - missed)} of {len(every)} checks passed in every run that made them"


def _checks(compared: Comparison) -> Iterator[tuple[Entry, Check]]:
    for entry in compared.entries:
        for check in entry.content.get("fairness", {}).get("checks", []):
            yield entry, check


def _sizes(checks: list[Check]) -> Row:
    """The largest difference of these checks and the limit, as far as they have them."""
    worst = max(checks, key=lambda check: check["difference"] or 0.0)
    return {
        "largest difference": _size(worst["difference"], 1),
        "limit": _size(worst["threshold"], 0),
    }


def _size(value: float | None, digits: int) -> Cell:
    form = f"{{:.{digits}e}}" if value else "{:.0f}"
    return Cell(value, form.format, missing=ABSENT)


def executions(compared: Comparison) -> list[str]:
    """Which frameworks ran eagerly, and which compiled their program; a line each way."""
    return _who(compared.finished, lambda training: str(training.get("execution", "")))


def switches(compared: Comparison) -> list[str]:
    """The settings that make which frameworks fast; a line each set of them."""
    return _who(compared.finished, lambda training: ", ".join(training.get("switches", ())))


def _who(entries: tuple[Entry, ...], said: Callable[[dict[str, Any]], str]) -> list[str]:
    """The runs' labels, each with what section ``training`` of their records says."""
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        if how := said(entry.content.get("training", {})):
            found.setdefault(how, {})[entry.label] = None
    return [f"{', '.join(labels)}: {how}" for how, labels in sorted(found.items())]
