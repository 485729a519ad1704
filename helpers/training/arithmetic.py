"""Compare the FLOP/s of training with those of a matrix product on the same devices.

The product is measured in the same rounds, by the framework itself, on all devices at the same time
and in the run's precision. It is a measured reference, not the hardware's limit.

FLOPs are counted in convolutions and the last layer: two for a multiply-add, and three times those
of the forward pass, since the backward pass has a product for the weights and one for the input.
"""

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

from helpers.frameworks.precisions import DTYPES
from helpers.networks import shapes

SIZES = {"cpu": 1024, "gpu": 8192}
"""Rows and columns of the matrices, by the kind of device."""
TURN_SECONDS = 0.1
"""How long the products take that are queued at once; one that takes longer is alone."""


def seconds_a_product(
    devices: Sequence[Any], kind: str, framework: ModuleType, precision: str
) -> float:
    """The mean seconds of a product on each of these devices at the same time.

    Two products are not counted: the first, and one that tells how many to queue before the devices
    are waited for. The matrices are released afterwards, because training needs the memory.
    """
    dtype, size = DTYPES[precision], SIZES[kind]
    calls = [framework.matrix_product(size, dtype, one) for one in devices]
    # The first device is this thread's, so that a single one computes with the threads of training.
    first, *others = calls
    with ThreadPoolExecutor(len(calls)) as threads:

        def seconds_of(times: int) -> float:
            start = time.perf_counter()
            queued = [threads.submit(call, times) for call in others]
            first(times)
            for call in queued:
                call.result()
            return time.perf_counter() - start

        seconds_of(1)
        times = math.ceil(TURN_SECONDS / seconds_of(1))
        return seconds_of(times) / times


def flops_of_product(kind: str, devices: int) -> int:
    """FLOPs of a product on each of so many devices of a kind."""
    return devices * 2 * SIZES[kind] ** 3


def flops_of_training(network: str, outputs: int, crop: int) -> int | None:
    """FLOPs of training on one image; None of a user's own network."""
    if network == "own":
        return None
    return 3 * 2 * shapes.multiply_adds(network, outputs, crop)


def in_words(found: Mapping[str, Any]) -> str:
    """A record's section ``arithmetic`` in a sentence or two."""
    product = f"a matrix product of {found['size']} x {found['size']} {found['dtype']}"
    reached = f"{giga(found['product']['flops_per_second'])} GFLOP/s"
    if found["flops_per_image"] is None:
        return f"In the same rounds, {product} reached {reached}. No share: {found['reason']}."
    training = found["synthetic"]
    return (
        f"Training on synthetic data computes {giga(training['flops_per_second'])} GFLOP/s: "
        f"{percent(training)} of {product} in the same rounds ({reached})."
    )


def giga(value: float) -> str:
    """FLOP/s as GFLOP/s: ``1,234`` or ``12.3``."""
    return f"{value / 1e9:,.0f}" if value >= 1e11 else f"{value / 1e9:.1f}"


def percent(found: Mapping[str, Any]) -> str:
    """The share of the product with the minimum and maximum of its rounds: ``21 % (19 to 23)``."""
    share, low, high = (round(100 * found[name]) for name in ("share", "low", "high"))
    return f"{share} % ({low} to {high})"
