"""Training's FLOP/s beside a matrix product's: how it is timed, counted, recorded and told."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from helpers import record
from helpers.training import arithmetic


def framework(
    seconds: float,
    made: list[Any],
    running: list[int] | None = None,
    waited: list[int] | None = None,
) -> Any:
    """A framework whose products take so long, and each device's first half a second more.

    ``running`` notes how many devices work at a time, ``waited`` how many products a device was
    waited for.
    """
    lock, now = threading.Lock(), [0]

    def matrix_product(size: int, dtype: str, device: str) -> Callable[[int], None]:
        made.append((size, dtype, device))
        compiling = [0.5]

        def multiply(times: int) -> None:
            if waited is not None:
                waited.append(times)
            with lock:
                now[0] += 1
                if running is not None:
                    running.append(now[0])
            time.sleep(times * seconds + (compiling.pop() if compiling else 0))
            with lock:
                now[0] -= 1

        return multiply

    return SimpleNamespace(matrix_product=matrix_product)


def test_a_slower_product_takes_longer() -> None:
    """The first product, in which things are compiled, is not counted."""
    each = [
        arithmetic.seconds_a_product(("one", "two"), "cpu", framework(seconds, []), "fp32")
        for seconds in (0.02, 0.15)
    ]
    assert 0.02 <= each[0] < 0.15 <= each[1] < 0.5


def test_short_products_are_queued_and_waited_for_once() -> None:
    """Else the wait would be a part of every product, and more so in one framework than another."""
    waited: list[int] = []
    short = framework(0.005, [], waited=waited)
    arithmetic.seconds_a_product(("one",), "gpu", short, "fp32")
    assert waited[:2] == [1, 1] and len(waited) == 3 and 1 < waited[2] <= 20


def test_all_devices_multiply_at_the_same_time() -> None:
    made: list[Any] = []
    running: list[int] = []
    arithmetic.seconds_a_product("abc", "gpu", framework(0.05, made, running), "bf16")
    assert made == [(arithmetic.SIZES["gpu"], "bfloat16", device) for device in "abc"]
    assert max(running) == 3


def test_flops_of_a_product_and_of_training() -> None:
    assert arithmetic.flops_of_product("cpu", 2) == 2 * 2 * 1024**3
    # 2.83 billion multiply-adds, two FLOPs each, three times
    trained = arithmetic.flops_of_training("densenet121", 14, 224)
    assert trained == pytest.approx(17.0e9, rel=0.005)
    assert arithmetic.flops_of_training("own", 14, 224) is None


def of(product: list[float], flops: int | None = 10**8) -> dict[str, Any]:
    files = {"rounds": [100.0, 50.0, 50.0]}
    measured = {"files": files, "synthetic": {"rounds": [200.0, 100.0, 90.0]}}
    return record.arithmetic(
        product, size=1024, dtype="float32", flops_per_image=flops, measured=measured
    )


def test_a_share_is_of_the_product_in_the_same_round() -> None:
    """A slow minute of the machine falls on both, so that their share keeps."""
    found = of([40e9, 20e9, 20e9])
    assert found["product"] == {
        "flops_per_second": 20e9,
        "low": 20e9,
        "high": 40e9,
        "rounds": [40e9, 20e9, 20e9],
    }
    assert found["files"] == {"flops_per_second": 5e9, "share": 0.25, "low": 0.25, "high": 0.25}
    assert found["synthetic"]["flops_per_second"] == 10e9
    assert (found["synthetic"]["low"], found["synthetic"]["high"]) == (0.45, 0.5)
    assert of([20e9, 10e9, 10e9])["files"]["share"] == 0.5, "of a slower product it is more"
