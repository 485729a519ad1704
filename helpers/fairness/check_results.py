"""The result of a single check, and all results of a run as its record stores them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

DIFFERENT = "different"
"""The verdict on a notebook that trains something else than the recipe says, and not wrongly."""
EXPECTED = "expected"
"""The verdict on a difference whose cause is known, and explains it."""


@dataclass(frozen=True)
class Check:
    """One line of the fairness check. ``difference``, ``threshold`` and ``rest`` share a unit.

    ``rest`` is what is left of the difference once ``reason`` is taken account of; None if
    there is no known reason. ``variant`` says in a few words what a notebook trains differently if
    the difference is above the threshold, such as ``augmentation (no flip)``; None if that would
    be a bug.
    """

    check: str
    difference: float | None
    threshold: float | None
    reason: str | None = None
    rest: float | None = None
    variant: str | None = None

    @property
    def verdict(self) -> str:
        if self.difference is None or self.threshold is None:
            return "not checked"
        # <= and not >, so that NaN fails
        if self.difference <= self.threshold:
            return "pass"
        if self.rest is not None and self.rest <= self.threshold:
            return EXPECTED
        return "fail" if self.variant is None else DIFFERENT

    def as_record(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "difference": self.difference,
            "threshold": self.threshold,
            "verdict": self.verdict,
            "reason": self.reason,
            **({"variant": self.variant} if self.verdict == DIFFERENT else {}),
        }


@dataclass(frozen=True)
class FairnessCheck:
    """All checks of one run."""

    checks: tuple[Check, ...]

    @property
    def comparable(self) -> bool:
        """False when any check failed, or found another training than the recipe's."""
        return all(check.verdict not in ("fail", DIFFERENT) for check in self.checks)

    def updated(self, checks: Iterable[Check]) -> "FairnessCheck":
        """Replace the checks with these names by these; new checks come last."""
        rows = {check.check: check for check in (*self.checks, *checks)}
        return FairnessCheck(tuple(rows.values()))

    def table(self) -> pd.DataFrame:
        """One row per check, as text for the notebook; a dash where nothing was compared."""
        rows = [
            {
                "check": check.check,
                "difference": _size(check.difference),
                "threshold": _size(check.threshold),
                "verdict": shown(check.verdict),
                "reason": (check.variant if check.verdict == DIFFERENT else check.reason) or "",
            }
            for check in self.checks
        ]
        return pd.DataFrame(rows).set_index("check")

    def as_record(self) -> dict[str, Any]:
        """The record's section ``fairness``."""
        checks = [check.as_record() for check in self.checks]
        return {"comparable": self.comparable, "checks": checks}


def shown(verdict: str) -> str:
    """A verdict as a reader sees it."""
    return "expected difference" if verdict == EXPECTED else verdict


def counted(verdicts: Iterable[str]) -> str:
    """``78 pass, 8 expected differences, 4 not checked``, the most frequent first."""
    return ", ".join(
        f"{count} {shown(verdict)}{'s' * (verdict == EXPECTED and count != 1)}"
        for verdict, count in Counter(verdicts).most_common()
    )


def _size(value: float | None) -> str:
    """``4.8e-07``; exactly nothing is ``0``."""
    if value is None:
        return "-"
    return f"{value:.1e}" if value else "0"
