"""Read facts about a finished training from a framework's own objects (``watch``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Seen:
    """What a framework's own objects say of a training when it has ended.

    ``constants`` are those of the optimiser's rule: ``beta 1``, ``beta 2`` and ``epsilon`` of Adam,
    ``momentum``, and ``weight decay`` as it is added to the gradient; each the smallest and the
    largest that any weight has. ``rate factor`` is what a weight's own rate is of the optimiser's,
    where some have one. What cannot be read is None.
    """

    optimizer: str
    constants: Mapping[str, tuple[float, float]]
    updates: int | None
    """Of the weights, counted by the optimiser."""
    convolutions: str | None
    """The type that they compute in, such as ``bfloat16``."""
    execution: str
    """``eager``, ``graph`` or ``compiled``, and by what."""
    tf32: bool | None = None
    threads: int | None = None
    weights: int | None = None
    """How many numbers the optimiser updates."""
    rate_in_velocity: bool = False
    """Whether momentum's velocity has the rate in it: then a step at which the rate changes has
    its momentum times the change."""


class Watch(NamedTuple):
    """How a framework's own objects are read while a replica trains, and after."""

    rate: Callable[[], float]
    """The learning rate of the step that was queued last."""
    seen: Callable[[], Seen]
    """Called once, when training has ended."""
    waits: bool = False
    """Whether ``rate`` waits for the device, so that it is not to be called at every step."""
