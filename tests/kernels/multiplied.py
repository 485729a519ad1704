"""What every framework's tests assert of its matrix product."""

import time
from collections.abc import Callable
from typing import Any


def assert_waited_for(framework: Any, device: Any) -> None:
    """A product of 4096 times as much work takes longer, so its result is waited for.

    So much more that other work on the same cores does not hide it.
    """
    assert shortest(framework.matrix_product(1024, "float32", device)) > 8 * shortest(
        framework.matrix_product(64, "float32", device)
    )


def shortest(multiply: Callable[[int], None]) -> float:
    """The seconds of the fastest of twenty, after one in which things are compiled."""
    multiply(1)
    each = []
    for _ in range(20):
        start = time.perf_counter()
        multiply(1)
        each.append(time.perf_counter() - start)
    return min(each)
