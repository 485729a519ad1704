"""Fairness checks of the weights while they train: on all devices, and in each evaluation.

At a few moments a process notes one of the trained arrays, the last, as each of its devices holds
it: when an epoch begins, after the first step of all, after an epoch's last step and when it has
ended, and at the first batch of each evaluation. So no step is waited for but the first, and the
last of an epoch, for which its stopwatch waits anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from helpers.fairness.check_results import Check

TOGETHER = "weights of all devices in training"
EVALUATED = "weights of each evaluation"


@dataclass(frozen=True)
class Moment:
    """The weights at a moment, such as ``after the first step``."""

    when: str
    digests: tuple[str, ...]
    """One for each of the process's devices."""
    trained: bool
    """Whether steps were taken since the moment before."""


def moment(when: str, held: Iterable[np.ndarray], *, trained: bool = False) -> Moment:
    """A moment, from the array as each device holds it."""
    digests = (hashlib.sha256(np.ascontiguousarray(array).tobytes()) for array in held)
    return Moment(when, tuple(each.hexdigest()[:12] for each in digests), trained)


def together(processes: Sequence[Sequence[Moment]]) -> Check:
    """Check that all devices had the same weights at every moment."""
    held: dict[str, set[str]] = {}
    for moments in processes:
        for each in moments:
            held.setdefault(each.when, set()).update(each.digests)
    apart = [when for when, digests in held.items() if len(digests) > 1]
    said = f"at {len(held)} moments of training and evaluation"
    if apart:
        said = f"not the same {apart[0]}: does each device train alone?"
    return Check(TOGETHER, float(len(apart)), 0.0, said)


def evaluated(processes: Sequence[Sequence[Moment]]) -> Check:
    """Check that the final weights of the training were evaluated and saved."""
    wrong = {
        f"{later.when}: not those {before.when}": None
        for moments in processes
        for before, later in pairwise(moments)
        if not later.trained and set(before.digests) != set(later.digests)
    }
    variant = f"weights ({next(iter(wrong), '')})"
    return Check(EVALUATED, float(len(wrong)), 0.0, "those trained and saved", variant=variant)
