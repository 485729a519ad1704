"""Combine the parts of an epoch that a run trained before and after it was stopped."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from helpers.record.types import Positive

Seconds = Annotated[float, Meta(ge=0, le=1e18)]


@dataclass(frozen=True)  # as ranks exchange it
class Part:
    """Some steps of an epoch, by one process after another."""

    steps: Positive
    loss: float
    """Mean over the steps. It may have become infinite, or NaN; a time has not."""
    seconds: Seconds
    data_seconds: Seconds | None
    attempts: Positive
    """How many processes have trained it."""

    def plus(self, other: "Part") -> "Part":
        """Both, one after the other."""
        steps = self.steps + other.steps
        if self.steps == 0:
            return other  # as it was measured, to the last digit
        return Part(
            steps,
            (self.loss * self.steps + other.loss * other.steps) / steps,
            self.seconds + other.seconds,
            _sum(self.data_seconds, other.data_seconds),
            self.attempts + other.attempts,
        )


NONE = Part(0, 0.0, 0.0, 0.0, 0)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
