"""The tests of TensorFlow and of Keras, for both train under MirroredStrategy."""

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from framework_tests import OfPrograms
from notebook_program import Names, own_names
from tensorflow.core.framework.dataset_options_pb2 import Options
from tensorflow.python.ops import gen_dataset_ops

from helpers.frameworks import tensorflow_strategies


@pytest.fixture(autouse=True)
def no_strategy_is_left() -> Iterator[None]:
    """A notebook's is that of all variables made after it."""
    yield
    tensorflow_strategies.note([])


def tuned(patch: pytest.MonkeyPatch) -> list[bool]:
    """Whether tf.data tunes it: for each data set that is iterated from now on, our own or not.

    It reads the options that the runtime itself goes by.
    """
    found: list[bool] = []

    def watch(operation: str) -> None:
        begin = getattr(gen_dataset_ops, operation)

        def watched(dataset: tf.Tensor, *rest: Any, **options: Any) -> Any:
            said = tf.raw_ops.GetOptions(input_dataset=dataset).numpy()
            autotune = Options.FromString(said).autotune_options
            found.append(not autotune.HasField("enabled") or autotune.enabled)
            return begin(dataset, *rest, **options)

        patch.setattr(gen_dataset_ops, operation, watched)

    watch("make_iterator")
    watch("multi_device_iterator_init")
    return found


def test_nothing_that_is_iterated_is_tuned(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iterator that ends would wait for the thread that tunes it."""
    names = own_names(request.module.NOTEBOOK, tmp_path, devices=2, batch_size=8)
    found, run = tuned(monkeypatch), names["run"]
    replica = names["make_replica"](names["build_model"]())
    names["train_steps"](replica, names["make_loader"](run.train_split, True), 1)
    trained = len(found)
    names["predict"](replica, names["make_loader"](run.valid_split, False), len(run.valid_split))
    assert 0 < trained < len(found)
    assert not any(found)


@pytest.mark.parametrize(("execution", "devices"), [("compiled", 2), ("eager", 1)])
def test_a_step_trains_the_same_in_other_ways(
    adapter: OfPrograms, tmp_path: Path, execution: str, devices: int
) -> None:
    """As a graph, operation by operation, and compiled by XLA."""
    found = []
    for how in ("default", execution):
        names = own_names(adapter.notebooks[0], tmp_path, execution=how, devices=devices)
        try:
            replica = names["make_replica"](names["build_model"]())
            watch = adapter.framework.watch(replica)
            loss = names["train_steps"](replica, repeat(fixed_batch(names), 2), 2)
            executed = watch.seen().execution.split()[0]
        finally:
            tf.config.run_functions_eagerly(False)
        found.append((loss, adapter.framework.dump_weights(replica.network)))
        assert (executed == execution) == (how == execution)
    (loss, weights), (other_loss, others) = found
    assert other_loss == pytest.approx(loss, rel=1e-4)
    for name, array in weights.items():
        assert np.abs(array - others[name]).max() < 1e-3, name


def fixed_batch(names: Names) -> Any:
    """Two images for each device, as the loader gives them."""
    run, r = names["run"], names["run"].recipe
    count = 2 * len(run.devices)
    pixels = np.random.default_rng(0).integers(0, 256, (count, r.crop, r.crop, 1), dtype=np.uint8)
    targets = np.zeros((count, r.outputs), np.float32)
    return run.framework.as_loaded(pixels, targets, np.arange(count))
