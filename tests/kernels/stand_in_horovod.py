"""What a rank computes under Horovod, without Horovod, for tests in TensorFlow's environment.

Its tape is stood in for by threads that wait for each other and take the mean. That Horovod's own
does so is tested in its environment.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, local
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.fairness import reference
from helpers.frameworks import tensorflow as alone

# isort: split
import tensorflow as tf

here = local()
MODULES = ("horovod_ranks", "tensorflow_horovod", "keras_horovod")


class World:
    """So many ranks, each of which is a thread."""

    def __init__(self, ranks: int, combined: Callable[[Any], Any]) -> None:
        self.ranks, self.combined = ranks, combined
        self.barrier, self.given = Barrier(ranks, timeout=60), [None] * ranks

    def reduced(self, value: Any) -> Any:
        self.given[here.rank] = value
        self.barrier.wait()
        found = self.combined(list(self.given))
        self.barrier.wait()
        return found

    def call(self, function: Callable[[], Any]) -> list[Any]:
        def rank(number: int) -> Any:
            here.rank = number
            return function()

        with ThreadPoolExecutor(self.ranks) as pool:
            return list(pool.map(rank, range(self.ranks)))


def mean(values: list[Any]) -> Any:
    return tf.add_n(values) / len(values)


@contextmanager
def horovod(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module in Horovod's place, whose ``world`` a test sets."""
    package, module = ModuleType("horovod"), ModuleType("horovod.tensorflow")
    found: Any = module

    class Tape:
        def __init__(self, tape: Any) -> None:
            self.tape = tape

        def gradient(self, loss: Any, variables: Any) -> list[Any]:
            return [found.world.reduced(each) for each in self.tape.gradient(loss, variables)]

    found.DistributedGradientTape = Tape
    found.rank, found.size = lambda: here.rank, lambda: found.world.ranks
    found.is_initialized = lambda: True
    found.init = lambda: None
    found.broadcast_variables = lambda variables, root_rank: None  # of one rank
    found.allgather = lambda value: value
    found.allreduce = lambda value: found.world.reduced(value)
    vars(package)["tensorflow"] = module
    monkeypatch.setitem(sys.modules, "horovod", package)
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", module)
    yield found
    import helpers.frameworks as frameworks

    for name in MODULES:  # which have the stand-in
        sys.modules.pop(f"helpers.frameworks.{name}", None)
        vars(frameworks).pop(name, None)


def gradients(hvd: Any, ranks: int, images: int, combined: Callable[[Any], Any] = mean) -> Any:
    """Each rank's gradients of so many images, and one device's."""
    from helpers.frameworks import tensorflow_horovod

    grey, targets = reference.batch()
    pixels, targets = reference.network_input(grey)[:images], targets[:images]
    arrays = {name: array.astype(np.float64) for name, array in reference.shallow_arrays().items()}
    network, devices = alone.shallow(arrays, ["CPU:0"]), ["CPU:0"]
    one = alone.gradients(network, pixels, targets, devices)
    hvd.world = World(ranks, combined)
    given = (network, pixels, targets, devices)
    return hvd.world.call(lambda: tensorflow_horovod.rank_gradients(*given)), one
