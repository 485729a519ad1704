"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mirrored import *
from mirrored import fixed_batch
from notebook_cells import failed
from notebook_program import Names, fairness_check, own_names
from program_tests import *
from program_tests import OfPrograms
from tensorflow.python.framework import ops

from helpers.frameworks import tensorflow as framework
from helpers.networks import tensorflow as networks

# Compiling takes most of their time; other frameworks take these tests every day.
pytest.mark.slow(test_resnet50_is_the_references)  # noqa: F405
pytest.mark.slow(test_it_trains_the_recipes_network)  # noqa: F405
pytest.mark.slow(test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one)  # noqa: F405

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


def test_every_image_is_evaluated_once(tmp_path: Path) -> None:
    """In batches of one shape, so that nothing is traced again."""
    names = own_names(NOTEBOOK, tmp_path, devices=2)
    run = names["run"]
    targets = np.zeros((130, len(run.images.classes)), np.float32)
    part = replace(run.train_part, rows=run.train_part.rows[:130], targets=targets)
    replica = names["make_replica"](names["build_model"]())
    loader, numbers = names["make_loader"](part, False), []
    for batch in loader:
        shares = names["strategy"].experimental_local_results(batch[2])
        assert [len(share) for share in shares] == [run.recipe.batch_size] * 2
        numbers += [number for share in shares for number in share.numpy().tolist()]
    assert numbers[:130] == list(range(130)) and set(numbers[130:]) <= {-1}
    scores = names["predict"](replica, loader, len(part))
    assert scores.shape == (130, run.recipe.outputs) and (np.abs(scores).sum(axis=1) > 0).all()
    assert len(replica.evaluate._list_all_concrete_functions()) == 1


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


@pytest.mark.parametrize(
    "how", [{"precision": "bf16"}, {"execution": "compiled"}], ids=["bf16", "compiled"]
)
def test_the_check_is_passed_in_16_bits_and_compiled(tmp_path: Path, how: dict[str, str]) -> None:
    names = own_names(NOTEBOOK, tmp_path, devices=2, **how)
    found = fairness_check(names)
    assert failed(found.checks) == set()
    assert (names["compute"] == tf.bfloat16) == ("precision" in how)


def test_float32_is_float32() -> None:
    framework.configure("tf32", "gpu")
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    framework.configure("fp32", "cpu")
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def seen(names: Names, pixels: np.ndarray) -> np.ndarray:
    found: np.ndarray = names["to_network"](tf.constant(pixels)).numpy()
    return found.transpose(0, 3, 1, 2)


ADAPTER = OfPrograms(
    framework,
    networks,
    TWO,
    notebooks=(NOTEBOOK,),
    seen=seen,
)
