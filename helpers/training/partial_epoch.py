"""Combine the parts of an epoch that a run trained before and after it was stopped."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """Some steps of an epoch, by one process after another."""

    steps: int = 0
    loss: float = 0.0
    """Mean over the steps."""
    seconds: float = 0.0
    data_seconds: float | None = 0.0
    communication_seconds: float | None = 0.0
    attempts: int = 0
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
            _sum(self.communication_seconds, other.communication_seconds),
            self.attempts + other.attempts,
        )

    def as_said(self) -> dict[str, Any]:
        """For the checkpoint, as JSON."""
        return asdict(self)


NONE = Part()


def of_said(said: Any, steps: int) -> Part:
    """The part that a checkpoint names; an empty part where it names none.

    Args:
        said: from an untrusted file.
        steps: of a whole epoch.

    Raises:
        ValueError: it is none.
    """
    if said is None:
        return NONE
    names = asdict(Part()).keys()
    if not isinstance(said, dict) or said.keys() != names:
        raise ValueError("what it says of the epoch's part is not to be understood")
    whole = [said["steps"], said["attempts"]]
    numbers = [said["loss"], said["seconds"]]
    numbers += [
        said[key] for key in ("data_seconds", "communication_seconds") if said[key] is not None
    ]
    right = all(type(value) is int and value > 0 for value in whole) and said["steps"] < steps
    right = right and all(type(value) in (int, float) for value in numbers)
    # A loss may have become infinite, or none; a time has not.
    if not right or not all(math.isfinite(value) and value >= 0 for value in numbers[1:]):
        raise ValueError(f"a part of an epoch that cannot be one of {steps} steps")
    return Part(**said)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
