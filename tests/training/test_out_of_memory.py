"""Running out of memory names the batch and the way out, whatever framework says it."""

from types import SimpleNamespace
from typing import Any

import pytest

from helpers.errors import UserError
from helpers.recipe import lookup
from helpers.training import launching

RUN: Any = SimpleNamespace(recipe=lookup("chexnet"), monitor=None)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("replica 1 failed: torch.OutOfMemoryError: CUDA out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("NCCL error: unhandled cuda error, Cuda failure 'out of memory'"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1125899906842624 bytes."),
        RuntimeError("OOM when allocating tensor with shape[64,256]"),
        RuntimeError("Dst tensor is not initialized."),
        RuntimeError("failed call to cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"),
        RuntimeError("Failed to allocate CPU Memory"),
        RuntimeError("replica 0: cupy.cuda.memory.OutOfMemoryError: Out of memory"),
    ],
    ids=str,
)
def test_it_names_the_batch_and_the_way_out(error: Exception) -> None:
    said = r"^out of memory at 64 images of 224 px per device: set batch_size = 32; a"
    with pytest.raises(UserError, match=said), launching.explained(RUN):
        raise error


def test_another_error_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="shape"), launching.explained(RUN):
        raise RuntimeError("shape mismatch")
