"""Take the measurements of section 11 in rounds, so that a slow minute affects all of them.

In each round every measurement has one turn: training on *files*, on *synthetic* data that lies
ready, the same *silent* (without all-reduce, where there is more than one device), the *loader*
alone, and a matrix *product* for comparison (``helpers.training.arithmetic``). What is compared was
then measured seconds apart, and the spread of the rounds is its interval: the minimum and maximum
of six enclose the median with a probability of 1 - 2 / 2**6 = 97 %, whatever the distribution.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pandas as pd

from helpers import record

ROUNDS = 6
TURN_SECONDS = 2.0
"""How long a turn should last; on a device that takes longer for a step it is one step."""
LOADER_SECONDS = 0.3

KINDS = ("files", "synthetic", "no_allreduce", "loader")
"""Those that are counted in images."""
IMPOSSIBLE = "the all-reduce alone took longer than a whole step on synthetic data"
"""Why several devices have no measurement without all-reduce."""
PRODUCT = "product"
# The loader comes right before the files: it leaves nothing read ahead, which would make the
# first steps on files look as if loading cost nothing. The product comes right after synthetic
# data: steps with an all-reduce end at the same time in all processes.
_ORDERS = (
    ("loader", "files", "synthetic", PRODUCT, "no_allreduce"),
    ("no_allreduce", "synthetic", PRODUCT, "loader", "files"),
)

_TRAINING = ("files", "synthetic")

Turn = Callable[[int], float]
"""Takes that many steps, after one more that is not counted; the mean seconds of a step."""
Seconds = dict[str, list[float]]
"""By kind, the seconds of a step over all devices (for the loader: of a global batch; for the
product: of one on each device), a round each."""


def steps_of_a_turn(history: Sequence[Mapping[str, Any]]) -> int:
    """How many steps a turn counts, from what one took in training; at most an eighth of an epoch.

    Six rounds of three turns, each with a step more that is not counted, take a short training
    long enough.
    """
    last = history[-1]
    wanted = round(TURN_SECONDS * last["steps"] / last["train_seconds"])
    return max(1, min(wanted, math.ceil(last["steps"] / 8)))


def take_turns(
    phase: Callable[..., AbstractContextManager[Any]],
    turns: Mapping[str, Turn],
    *,
    steps: int,
    images: int,
) -> Seconds:
    """The seconds of a step in every turn.

    Args:
        phase: ``monitor.phase``; each turn is marked with its kind.
        turns: by kind; one device has none without all-reduce.
        steps: that a turn counts; all replicas must take equally many.
        images: in a step, over the devices whose work ``phase`` is to count. Only training's:
            the loader's are as many as come in its time, and without all-reduce some frameworks
            do nothing but reduce.
    """
    seconds: Seconds = {kind: [] for kind in turns}
    for number in range(ROUNDS):
        for kind in _ORDERS[number % 2]:
            if kind in turns:
                trained = {"items": (steps + 1) * images} if kind in _TRAINING else {}
                with phase(_PHASES[kind], **trained):
                    seconds[kind].append(turns[kind](steps))
    return seconds


_PHASES = {
    "files": "files",
    "synthetic": "synthetic",
    "no_allreduce": "without all-reduce",
    "loader": "loader alone",
    PRODUCT: "matrix product",
}


def slowest(replicas: Sequence[Seconds]) -> Seconds:
    """Turn by turn the longest time that a replica measured: all wait for that replica."""
    return {
        kind: [max(turn) for turn in zip(*(found[kind] for found in replicas), strict=True)]
        for kind in replicas[0]
    }


def without_the_impossible(seconds: Seconds) -> Seconds:
    """The measurements, without the one without all-reduce if it is none: :data:`IMPOSSIBLE`.

    Where the all-reduce is measured alone, a tiny network's may take longer than a whole step, in
    which it overlaps with computing; nothing is left of such a step.
    """
    if min(seconds.get("no_allreduce", [1.0])) > 0:
        return seconds
    return {kind: turns for kind, turns in seconds.items() if kind != "no_allreduce"}


def as_record(seconds: Seconds, *, steps: int, images: int) -> dict[str, dict[str, Any]]:
    """The record's sections ``files``, ``synthetic``, ``no_allreduce`` and ``loader``, by name.

    Args:
        images: the global batch.
    """
    return {
        kind: record.throughput([images / turn for turn in turns], images=images * steps)
        for kind, turns in seconds.items()
        if kind in KINDS
    }


def table(measured: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Images/s of each measurement: the median of its rounds, the minimum and the maximum."""
    columns = {"images_per_second": "median", "low": "minimum", "high": "maximum"}
    rows = {
        _PHASES[kind]: {columns[key]: found[key] for key in columns}
        for kind, found in measured.items()
    }
    return pd.DataFrame(rows).T.rename_axis("images/s").round(1)
