"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mirrored import *
from notebook_cells import failed
from notebook_program import Names, fairness_check, own_names
from program_tests import *
from tensorflow.python.framework import ops

from helpers.frameworks import tensorflow as framework
from helpers.networks import tensorflow as networks

# Compiling takes most of their time; other frameworks take these tests every day.
pytest.mark.slow(test_resnet50_is_the_references)
pytest.mark.slow(test_it_trains_the_recipes_network)
pytest.mark.slow(test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one)

NOTEBOOK = "TensorFlow_MultiGPU"
TWO = framework.list_devices("cpu", 2)


def test_a_run_in_the_same_kernel_takes_no_earlier_ones_all_reduce_for_its_own() -> None:
    for size in (2, 3):
        framework.configure("fp32", "cpu")
        strategy = tf.distribute.MirroredStrategy(TWO)
        for each in strategy.experimental_local_results(strategy.run(summed, (size,))):
            assert each.numpy().tolist() == [2.0] * size


def summed(size: int) -> Any:
    return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(size))


def test_a_training_step_never_waits_for_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads one tensor in an epoch: its loss, when all steps are queued."""
    kind, read = ops._EagerTensorBase, list[str]()
    sound = kind._numpy

    def noted(tensor: Any) -> Any:
        read.append(tensor.device)
        return sound(tensor)

    monkeypatch.setattr(kind, "_numpy", noted)
    names = own_names(NOTEBOOK, tmp_path, devices=2)
    replica = names["make_replica"](names["build_model"]())
    batch = fixed_batch(names)
    names["train_steps"](replica, [batch], 1)
    counts = []
    for steps in (1, 3):
        read.clear()
        names["train_steps"](replica, repeat(batch, steps), steps)
        counts.append(len(read))
    assert counts == [1, 1], "the host waits for an epoch, however many its steps"


def test_the_check_is_passed_in_16_bits(tmp_path: Path) -> None:
    names = own_names(NOTEBOOK, tmp_path, devices=2, precision="bf16")
    assert failed(fairness_check(names).checks) == set()
    assert names["compute"] == tf.bfloat16


def test_float32_is_float32() -> None:
    framework.configure("tf32", "gpu")
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    framework.configure("fp32", "cpu")
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def seen(names: Names, pixels: np.ndarray) -> np.ndarray:
    found: np.ndarray = names["to_network"](tf.constant(pixels)).numpy()
    return found.transpose(0, 3, 1, 2)


ADAPTER = OfPrograms(framework, networks, TWO, notebooks=(NOTEBOOK,), seen=seen)
