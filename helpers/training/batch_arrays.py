"""The arrays of a batch, in whatever containers its framework keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np


def own_length(part: Any) -> int:
    """How many images of an array this process has; no device is waited for."""
    if isinstance(values := getattr(part, "values", None), tuple):  # TensorFlow's, of all replicas
        return sum(map(len, values))
    shards = getattr(part, "addressable_shards", None)  # of JAX's arrays a process has some
    return len(part) if shards is None else sum(len(shard.data) for shard in shards)


def kept(part: Any) -> Any:
    """Keep such an array as it is now, without waiting for a device.

    A copy, because its loader may fill it again; but JAX's and TensorFlow's arrays never change.
    """
    changes = isinstance(part, np.ndarray) or hasattr(part, "asnumpy") or hasattr(part, "is_cuda")
    return np.array(in_memory(part)) if changes else part


def in_memory(part: Any) -> np.ndarray:
    """Such an array as NumPy's, for which its device is waited for."""
    if hasattr(part, "asnumpy"):  # MXNet's
        return np.asarray(part.asnumpy())
    if isinstance(values := getattr(part, "values", None), tuple):  # TensorFlow's, of all replicas
        return np.concatenate([in_memory(each) for each in values])
    if hasattr(part, "addressable_shards"):  # of JAX's arrays a process has some
        return np.concatenate([np.asarray(shard.data) for shard in part.addressable_shards])
    return np.asarray(part.cpu() if hasattr(part, "is_cuda") else part)
