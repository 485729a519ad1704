"""Find the largest batch that fits a device's memory, and advise when one does not fit."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helpers.errors import UserError
from helpers.recipe import ScaledRecipe

LARGEST = 1024
"""Beyond this the step no longer gets faster per image, and the learning rate too large."""

OutOfMemory = Callable[[BaseException], bool]
"""A framework module's ``out_of_memory``: whether an error says that memory ran out."""


def largest(
    scaled: ScaledRecipe,
    attempt: Callable[[int], object],
    out_of_memory: OutOfMemory,
    *,
    images: int,
    kind: str,
) -> ScaledRecipe:
    """The recipe with the largest batch per device that fits, found by halving.

    Args:
        attempt: takes one training step with that many images on every device.
        images: in the training part, which has to fill at least one global batch.
        kind: of the devices. CPU devices share the machine's memory, and the system kills a
            process that takes too much of it; no batch above the recipe's is tried there.

    Raises:
        UserError: not even one image fits.
    """
    most = min(LARGEST if kind == "gpu" else scaled.recipe.batch_size, images // scaled.devices)
    batch = 1 << (max(most, 1).bit_length() - 1)  # the largest power of two in it
    while batch >= 1:
        try:
            attempt(batch)
        except Exception as error:
            if not out_of_memory(error):
                raise
            print(f"{batch} images per device do not fit into memory; trying {batch // 2}")
        else:
            chosen = scaled.recipe.with_batch_size(batch).on(scaled.devices)
            print(f"{batch} images per device fit into memory. {chosen}")
            return chosen
        gc.collect()  # what the failed step still holds
        batch //= 2
    raise UserError("not even one image per device fits into memory: free some, see gpumon")


@contextmanager
def explained(scaled: ScaledRecipe, out_of_memory: OutOfMemory) -> Iterator[None]:
    """An out-of-memory error inside names the batch and the way out.

    Raises:
        UserError: in place of the framework's own error, which is its cause.
    """
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        half = max(scaled.recipe.batch_size // 2, 1)
        raise UserError(
            f"out of memory at {scaled.recipe.batch_size} images of {scaled.recipe.crop} px per "
            f"device: set batch_size = {half}, or batch_size = 'auto' for the largest that fits; a "
            "lower precision (bf16) needs less"
        ) from error
