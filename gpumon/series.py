"""A series is one measured quantity with its unit; a source reads one or several series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class Unavailable(Exception):
    """A series cannot be read; the message is the reason that the trace keeps.

    permanent: asking again is pointless (not supported, function missing in this driver).
    lost: the whole device is gone. wrong_request: the user asked for what is not there.
    code: NVML's own number of the error.
    """

    def __init__(
        self,
        reason: str,
        *,
        permanent: bool = False,
        lost: bool = False,
        wrong_request: bool = False,
        code: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.permanent = permanent
        self.lost = lost
        self.wrong_request = wrong_request
        self.code = code


@dataclass
class Series:
    """One column of the trace: key such as ``gpu0/power (W)`` and how it is read."""

    key: str
    api: str
    digits: int = 0
    reason: str | None = None


Read = Callable[[], Sequence["float | Unavailable | None"]]
"""Gives values, in their series' order."""


@dataclass
class Source:
    """What gives the values of one or several series, in their order.

    A value may be None (nothing to say yet) or an Unavailable (this one failed, the others not).
    every: seconds between two readings, 0 for each sample. device: the name before the slash.
    pending_events: name and details of what a reading came upon, until the sampler writes them.
    """

    device: str
    series: list[Series]
    read: Read
    every: float = 0.0
    dead: bool = False
    pending_events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def describe(self) -> list[dict[str, Any]]:
        return [
            {"key": s.key, "api": s.api, "every (s)": self.every, "reason": s.reason}
            for s in self.series
        ]
