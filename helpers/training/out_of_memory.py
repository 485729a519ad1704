"""Advise when a batch does not fit into a device's memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from helpers.errors import UserError
from helpers.recipe import Recipe

RAN_OUT = (
    *("out of memory", "OUT_OF_MEMORY", "OutOfMemory", "STATUS_ALLOC_FAILED"),
    *("RESOURCE_EXHAUSTED", "MemoryError", "OOM when allocating", "can't allocate memory"),
    *("failed to allocate", "Failed to allocate", "Dst tensor is not initialized"),
)
"""How CUDA and its libraries say that memory ran out, and how frameworks do."""


@contextmanager
def explained(recipe: Recipe) -> Iterator[None]:
    """An out-of-memory error inside names the batch and the way out.

    Raises:
        UserError: in place of the framework's own error, which is its cause.
    """
    try:
        yield
    except Exception as error:
        said = str(error)
        if not isinstance(error, MemoryError) and not any(words in said for words in RAN_OUT):
            raise
        raise UserError(
            f"out of memory at {recipe.batch_size} images of {recipe.crop} px per device: set "
            f"batch_size = {max(recipe.batch_size // 2, 1)}; a lower precision (bf16) needs less"
        ) from error
