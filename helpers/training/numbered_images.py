"""Replace the targets of images by numbers, to find out which images a loader reads.

The loaders are the notebook's own and read the run's own images. The *targets* identify them: for
the time of a check, the tables hold each image's number in place of its labels.
Pixels would be a worse sign: a crop is at random, a mirror image is another one, and two images may
be alike; targets go unchanged through every loader, in whatever containers its framework keeps
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from helpers.errors import LoaderError
from helpers.recipe import MULTICLASS
from helpers.training.image_data import Data
from helpers.training.image_readers import COLUMNS
from helpers.training.work import Work
from helpers.training.world import World


class Black(NamedTuple):
    """A reader of black images of one shape."""

    shape: tuple[int, ...]

    def read(self, row: int) -> np.ndarray:
        return np.zeros(self.shape, np.uint8)


@contextmanager
def standing_in(
    images: Data, train: pd.DataFrame, task: str, outputs: Sequence[str], *, black: bool = False
) -> Iterator[None]:
    """Meanwhile these images are trained on, with these outputs.

    The notebook's loaders know the run's images by their own name for them, so that nothing but
    these themselves can be exchanged. Where they are to be ``black``, no image is read.
    """
    now: dict[str, Any] = {"train": train, "classes": tuple(outputs), "task": task}
    if black:
        recipe = images.recipe
        reader = Black((recipe.crop, recipe.crop, recipe.planes))
        now |= {"reader": reader, "files": False, "_array": None}
    before = {name: getattr(images, name) for name in now}
    vars(images).update(now)
    try:
        yield
    finally:
        vars(images).update(before)


def labelled(part: pd.DataFrame, labels: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """A table's images with other labels: a column of each finding, or one of the ``class``."""
    return part[list(COLUMNS)].reset_index(drop=True).assign(**labels)


def numbered(part: pd.DataFrame, task: str, outputs: Sequence[str]) -> pd.DataFrame:
    """A table's images, of which each has its number in place of every label."""
    columns = ["class"] if task == MULTICLASS else outputs
    return labelled(part, dict.fromkeys(columns, np.arange(len(part))))


def numbers(batches: Iterable[Any]) -> np.ndarray:
    """The numbers of the images in these batches, int64 (images,).

    Raises:
        LoaderError: there are no batches.
    """
    found = [in_memory(part) for batch in batches for part in parts_of(batch) if part.ndim < 4]
    if not found:
        raise LoaderError(
            "data-coverage check: the training loader ended before the second epoch; let "
            "make_train_loader give batches without end"
        )
    return np.concatenate([part.reshape(len(part), -1)[:, 0] for part in found]).astype(np.int64)


def read(world: World, work: Work, epoch: int, *batches: int) -> list[np.ndarray]:
    """The numbers of the images that the notebook's loader gives after so many epochs.

    Args:
        batches: of how many, several in turn.
    """
    loader = iter(work.functions.make_train_loader(world, epoch, work.workers))
    found = [numbers(islice(loader, count)) for count in batches]
    if hasattr(loader, "close"):
        loader.close()
    return found  # and with the loader its workers end


def parts_of(batch: Any) -> Iterator[Any]:
    """The arrays of a batch, pixels and targets, wherever its framework has them.

    A framework's loader gives them as such, or a pair for each device, or (TensorFlow's) the
    ``values`` of all replicas.
    """
    inner = getattr(batch, "values", batch)
    if isinstance(inner, tuple | list):
        for part in inner:
            yield from parts_of(part)
    else:
        yield batch


def own_length(part: Any) -> int:
    """How many images of such an array this process has; no device is waited for."""
    if isinstance(values := getattr(part, "values", None), tuple):  # TensorFlow's, of all replicas
        return sum(map(len, values))
    shards = getattr(part, "addressable_shards", None)  # of JAX's arrays a process has some
    return len(part) if shards is None else sum(len(shard.data) for shard in shards)


def kept(part: Any) -> Any:
    """Such an array as it is now, for later; no device is waited for.

    A copy, because its loader may fill it again; but JAX's and TensorFlow's arrays never change.
    """
    changes = isinstance(part, np.ndarray) or hasattr(part, "asnumpy") or hasattr(part, "is_cuda")
    return np.array(in_memory(part)) if changes else part


def in_memory(part: Any) -> np.ndarray:
    """An array of :func:`parts_of` as NumPy's, for which its device is waited for."""
    if hasattr(part, "asnumpy"):  # MXNet's
        return np.asarray(part.asnumpy())
    if isinstance(values := getattr(part, "values", None), tuple):  # TensorFlow's, of all replicas
        return np.concatenate([in_memory(each) for each in values])
    if hasattr(part, "addressable_shards"):  # of JAX's arrays a process has some
        return np.concatenate([np.asarray(shard.data) for shard in part.addressable_shards])
    return np.asarray(part.cpu() if hasattr(part, "is_cuda") else part)
