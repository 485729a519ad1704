"""Show the fairness check's results: what did not pass, with reasons, and how much passed."""

from collections.abc import Iterator
from typing import Any

from helpers.fairness import check_results
from helpers.results import run_sets
from helpers.results.comparison import Comparison, Entry
from helpers.results.tables import ABSENT, Cell, Row, Table, table

NOT_CHECKED = "not checked"
_WORST = ("fail", "different", "expected", NOT_CHECKED)
_TONES = {"pass": "good", "fail": "bad"}
Check = dict[str, Any]


def not_passed(compared: Comparison) -> Table:
    """One row per check, verdict and reason, with the runs concerned; failed checks come first.

    Checks that were not made for the same reason share a row. A check that another run of the label
    made, such as the comparison of devices, has no row.
    """
    made = {(e.label, c["check"]) for e, c in _checks(compared) if c["verdict"] != NOT_CHECKED}
    found: dict[tuple[str, str, str], list[tuple[Entry, Check]]] = {}
    for entry, check in _checks(compared):
        elsewhere = check["verdict"] == NOT_CHECKED and (entry.label, check["check"]) in made
        if check["verdict"] != "pass" and not elsewhere:
            reason = check.get("variant") or check.get("reason") or ""
            name = "" if check["difference"] is None else check["check"]
            found.setdefault((check["verdict"], reason, name), []).append((entry, check))
    checked = [entry for entry in compared.entries if "fairness" in entry.content]
    rows: list[tuple[str, Row]] = []
    for (verdict, reason, _), those in sorted(
        found.items(), key=lambda item: _WORST.index(item[0][0])
    ):
        worst = max((check for _, check in those), key=lambda check: check["difference"] or 0.0)
        cells: dict[str, Cell | str] = {
            "verdict": Cell(check_results.shown(verdict), tone=_TONES.get(verdict, "other")),
            "runs": run_sets.named((entry for entry, _ in those), checked),
            "largest difference": ABSENT,
            "reason": reason,
        }
        if (value := worst["difference"]) is not None:
            limit = "" if worst["threshold"] is None else f"limit {worst['threshold']:.0e}"
            form = "{:.1e}".format if value else str
            cells["largest difference"] = Cell(value, form, note=limit)
        rows.append(("; ".join(dict.fromkeys(check["check"] for _, check in those)), cells))
    return table("Differences, and checks not made", "check", rows)


def passed(compared: Comparison) -> str:
    """A sentence with the number of checks that every run passed; empty without a check."""
    verdicts: dict[str, set[str]] = {}
    for _, check in _checks(compared):
        verdicts.setdefault(check["check"], set()).add(check["verdict"])
    count = sum(found == {"pass"} for found in verdicts.values())
    reference = "compares what each run used and computed with one float64 reference"
    said = f"The fairness check {reference}: {count} rows passed in every run (fairness.csv)."
    return said * bool(verdicts)


def _checks(compared: Comparison) -> Iterator[tuple[Entry, Check]]:
    for entry in compared.entries:
        for check in entry.content.get("fairness", {}).get("checks", []):
            yield entry, check
