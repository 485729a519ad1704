"""What a process noted of its training, for the checks of it (``training_checks``)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.fairness.crops import Crop
from helpers.fairness.weight_checks import Moment
from helpers.frameworks.interface import Seen

FIRST = 8
"""So many batches of the first epoch have a digest."""


@dataclass(frozen=True)
class Epoch:
    """What a process trained on in an epoch.

    ``images`` are their numbers in the training split, as they came, int64 (images,);
    ``misplaced`` of them have other labels than the image of their number.
    """

    number: int
    steps: int
    images: np.ndarray
    misplaced: int = 0


@dataclass(frozen=True)
class Evaluation:
    """The images that a process evaluated, of ``split``; ``wrong`` have another one's labels."""

    split: str
    images: int
    wanted: int
    wrong: int


@dataclass(frozen=True)
class Observed:
    """What one process noted of its training.

    ``rates`` have the number of a step, from 0 over all epochs, and the rate that it was taken at.
    ``weights`` is how many numbers of the network are to be trained, None of one that no reference
    knows; ``others``, how many of its arrays were not the recipe's, or the checkpoint's, at its
    start. Its threads could run on the logical ``cores``. ``resident`` are the most bytes of memory
    that it held at a time, ``pooled`` those of one of its GPUs, where the framework holds a pool of
    which it uses a part. ``blocks`` are digests of the devices' images, in their order, for each of
    the first epoch's first steps.
    """

    rank: int
    seen: Seen
    rates: Sequence[tuple[int, float]]
    epochs: Sequence[Epoch]
    evaluations: Sequence[Evaluation]
    crops: Sequence[Crop] = ()
    moments: Sequence[Moment] = ()
    weights: int | None = None
    others: int = 0
    cores: tuple[int, ...] = ()
    resident: int = 0
    pooled: int | None = None
    blocks: Sequence[Sequence[str]] = ()


def first_batches(observed: Sequence[Observed]) -> list[str]:
    """Digests of the first epoch's first global batches, the same for equal images in one order.

    They do not depend on how many processes share the devices.
    """
    steps = zip(*(each.blocks for each in observed), strict=False)
    joined = ("".join(block for own in step for block in own) for step in steps)
    return [hashlib.sha256(text.encode()).hexdigest()[:12] for text in joined]
