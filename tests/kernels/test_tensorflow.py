"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import own_networks
import pytest
import same_networks
import tensorflow as tf
from examples import assert_examples_deliver
from mirrored import Heard, tuned
from notebook_cells import failed, recipe_of_resnet44
from notebook_program import Names, fairness_check, names_of
from program_tests import *
from program_tests import OfPrograms
from tensorflow.python.framework import ops

from helpers.errors import UserError
from helpers.fairness import reference
from helpers.frameworks import tensorflow as framework
from helpers.networks import tensorflow as networks
from helpers.networks.shapes import NETWORKS
from helpers.networks.tensorflow_optimizers import Adam
from helpers.recipe import RECIPES

# Each of their processes compiles; other frameworks take these tests every day.
pytest.mark.slow(test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one)  # noqa: F405

NOTEBOOK = "TensorFlow_MultiGPU"
TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module")
def heard() -> Iterator[Heard]:
    with pytest.MonkeyPatch.context() as patch:
        yield Heard(patch)


def small(folder: Path, **given: Any) -> Names:
    """The notebook's names with a small custom network, whose check takes no time."""
    recipe = own_networks.recipe_of(folder / "recipe", "tensorflow")
    return names_of(NOTEBOOK, folder, recipe=str(recipe), **given)


def test_nothing_is_said_that_none_asked_for(tmp_path: Path, heard: Heard) -> None:
    """Such as which devices a strategy reduces to, and how slow it is eagerly."""
    names = small(tmp_path, devices=2)
    assert failed(fairness_check(names).checks) == set()
    assert not heard.lines


@pytest.mark.parametrize("network", NETWORKS)
def test_how_every_network_pads(network: str) -> None:
    """By numbers only where a convolution has a stride: for those CPUs have slow kernels, 1.4 to 3
    times in a whole network.

    XLA, by which `execution = "compiled"` takes its steps, refuses to pool with such paddings.
    """
    model = networks.build(network, reference.arrays(network), RECIPES["chexnet"])

    @tf.function(jit_compile=True, autograph=False)
    def gradients(images: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, True))
        return list(tape.gradient(loss, model.trainable_variables))

    images = tf.zeros((1, 32, 32, 3))
    operations = gradients.get_concrete_function(images).graph.get_operations()
    convolutions = [op for op in operations if op.type == "Conv2D"]
    by_numbers = [op for op in convolutions if op.get_attr("padding") == b"EXPLICIT"]
    assert len(by_numbers) < len(convolutions)
    assert all(2 in op.get_attr("strides") for op in by_numbers)
    assert gradients.experimental_get_compiler_ir(images)("hlo").startswith("HloModule")


WRONG_STRIDE = (
    ('self.convolution(x, f"{name}.conv1")', 'self.convolution(x, f"{name}.conv1", stride)'),
    (
        'self.convolution(y, f"{name}.conv2", stride, 1)',
        'self.convolution(y, f"{name}.conv2", 1, 1)',
    ),
)


def test_a_stride_in_the_wrong_convolution_is_caught() -> None:
    """The image is halved in Caffe's convolution, a block's first. The weights fit."""
    broken = same_networks.with_text(networks, *WRONG_STRIDE)
    same_networks.assert_caught(framework, broken, "resnet50", TWO[:1])


def test_adam_is_pytorchs() -> None:
    """Gradients so small that it shows where epsilon is added."""
    gradients = [np.array([1e-7, -3e-8, 0.5], np.float32) * n for n in (1, 2)]
    model = tf.Module()
    model.weight = tf.Variable(np.ones(3, np.float32), name="weight")
    (beta1, beta2), epsilon, rate = (0.9, 0.999), 1e-8, 1e-3
    optimizer = Adam(model, betas=(beta1, beta2), epsilon=epsilon, weight_decay=0.0)
    optimizer.rate.assign(rate)
    weight, first, second = np.ones(3), np.zeros(3), np.zeros(3)
    for step, gradient in enumerate(gradients, start=1):
        optimizer.apply([tf.constant(gradient)])
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient.astype(np.float64) ** 2
        root = np.sqrt(second / (1 - beta2**step)) + epsilon
        weight = weight - rate * first / (1 - beta1**step) / root
    assert np.allclose(model.weight.numpy(), weight, atol=1e-7)


def test_a_run_in_the_same_kernel_takes_no_earlier_ones_all_reduce_for_its_own() -> None:
    for size in (2, 3):
        framework.configure("fp32", "cpu")
        strategy = tf.distribute.MirroredStrategy(TWO)
        for each in strategy.experimental_local_results(strategy.run(summed, (size,))):
            assert each.numpy().tolist() == [2.0] * size


def summed(size: int) -> Any:
    return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(size))


def test_devices_and_versions() -> None:
    assert TWO == ["CPU:0", "CPU:1"]
    assert framework.list_devices("cpu", 1) == ["CPU:0"]
    with pytest.raises(RuntimeError):
        framework.list_devices("cpu", 9)
    assert framework.versions()["tensorflow"] == tf.__version__
    framework.synchronize(TWO)
    assert framework.SKIPPED.get("virtual devices") is None


def test_its_documented_loaders_deliver_what_the_benchmark_times(tmp_path: Path) -> None:
    assert_examples_deliver("tensorflow", tmp_path)


def test_every_image_is_evaluated_once(tmp_path: Path) -> None:
    """In batches of one shape, so that nothing is traced again."""
    names = small(tmp_path, devices=2)
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
    names = small(tmp_path, devices=2)
    replica = names["make_replica"](names["build_model"]())
    batch = fixed_batch(names)
    names["train_steps"](replica, [batch], 1)
    counts = []
    for steps in (1, 3):
        read.clear()
        names["train_steps"](replica, repeat(batch, steps), steps)
        counts.append(len(read))
    assert counts == [1, 1], "the host waits for an epoch, however many its steps"


def fixed_batch(names: Names) -> Any:
    """Two images for each device, as the loader gives them."""
    run, r = names["run"], names["run"].recipe
    count = 2 * len(run.devices)
    pixels = np.random.default_rng(0).integers(0, 256, (count, r.crop, r.crop, 1), dtype=np.uint8)
    targets = np.zeros((count, r.outputs), np.float32)
    return framework.as_loaded(pixels, targets, np.arange(count))


@pytest.mark.parametrize("execution", ["eager", "compiled"])
def test_a_step_trains_the_same_in_other_ways(tmp_path: Path, execution: str) -> None:
    """As a graph, operation by operation, and compiled by XLA."""
    found = []
    for how in ("default", execution):
        recipe = recipe_of_resnet44(tmp_path)
        names = names_of(NOTEBOOK, tmp_path, recipe=recipe, execution=how)
        try:
            replica = names["make_replica"](names["build_model"]())
            watch = framework.watch(replica)
            loss = names["train_steps"](replica, repeat(fixed_batch(names), 2), 2)
            executed = watch.seen().execution.split()[0]
        finally:
            tf.config.run_functions_eagerly(False)
        found.append((loss, framework.dump_weights(replica.network)["fc.weight"]))
        assert how in ("default", executed)
    (loss, weight), (other_loss, other) = found
    assert other_loss == pytest.approx(loss, rel=1e-4)
    assert np.abs(weight - other).max() < 1e-3


def test_the_check_is_passed_in_16_bits(tmp_path: Path) -> None:
    names = small(tmp_path, devices=2, precision="bf16")
    found = fairness_check(names)
    assert failed(found.checks) == set() and names["compute"] == tf.bfloat16


def test_adam_is_where_it_was(tmp_path: Path) -> None:
    names = names_of(NOTEBOOK, tmp_path, devices=2)
    arrays, run = reference.shallow_arrays(), names["run"]
    names["build_model"]()
    network = framework.shallow(arrays, run.devices)
    replica = names["make_replica"](network)
    framework.load_optimizer(network, replica.optimizer, {})
    names["train_steps"](replica, repeat(fixed_batch(names), 2), 2)
    state = framework.dump_optimizer(network, replica.optimizer)
    assert state["step"] == 2 and len(state) == 1 + 2 * len(network.trainable_variables)
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again = names["make_replica"](framework.shallow(arrays, run.devices))
    framework.load_optimizer(again.network, again.optimizer, state)
    found = framework.dump_optimizer(again.network, again.optimizer)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0


def test_nothing_that_is_iterated_is_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An iterator that ends would wait for the thread that tunes it."""
    names, found = small(tmp_path, devices=2), tuned(monkeypatch)
    run = names["run"]
    next(iter(names["make_loader"](run.train_part, True)))
    for _ in names["make_loader"](run.valid_part, False):
        pass
    assert found and not any(found)


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    with pytest.raises(UserError, match="tensor cores"):
        framework.configure("tf32", "cpu")
    with pytest.raises(UserError, match="only PyTorch's notebooks scale the loss"):
        framework.configure("fp16", "gpu")


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
    launchers={NOTEBOOK: (sys.executable,)},
    seen=seen,
)
