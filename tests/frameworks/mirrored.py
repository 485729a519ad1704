"""What the tests of TensorFlow and of Keras share, for both train under MirroredStrategy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf
from agreed import assert_warms_up, steps_of
from cells import CERTIFIED, cell_with
from tensorflow.core.framework.dataset_options_pb2 import Options
from tensorflow.python.ops import gen_dataset_ops

from helpers.clock import StepClock


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


def assert_climbs(
    notebook: str,
    small: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    rate: Callable[[], Any],
) -> None:
    """The rate that the optimiser has in each step of the notebook's own training.

    ``small`` are its names with a small net; ``rate`` gives the optimiser's variable.
    """
    small["scaled"] = replace(small["scaled"], global_batch=40)  # of 140 images: 3 steps an epoch
    queued = StepClock.queued
    rates: list[float] = []

    def noted(clock: StepClock, result: Any) -> None:
        rates.append(float(rate().numpy()))
        queued(clock, result)

    monkeypatch.setattr(StepClock, "queued", noted)

    def rates_used(done: int) -> list[float]:
        rates.clear()
        if done:
            begun = replace(small["begin"], history=small["history"][:done])
            small["train"](begun)
        else:
            exec(cell_with(notebook, CERTIFIED), small)
            small["monitor"].stop()
            assert small["history"][0]["learning_rate"] == rates[steps_of(small) - 1]
        return list(rates)

    assert_warms_up(small, monkeypatch, rates_used)
