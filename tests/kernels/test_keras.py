"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import copied
import keras
import numpy as np
import pytest
import rules
import same_networks
import tensorflow as tf
from adapter import *
from adapter import Adapter
from agreed import (
    assert_half_are_flipped,
    assert_later_epochs_are_the_same,
    ramp,
)
from examples import assert_examples_deliver
from mirrored import Heard, crops, noise, shallow_replica, tuned, world
from notebook_cells import (
    CHECKED,
    EPSILON_FIRST,
    SIDE,
    adam,
    failed_in_training_loop,
    namespace_of,
    recipe_of_resnet44,
)

from helpers.errors import UserError
from helpers.frameworks import keras as framework
from helpers.networks import keras as networks
from helpers.networks import weights
from helpers.recipe import Rule
from helpers.training import image_data
from helpers.training.step_clock import StepClock

TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module")
def heard() -> Iterator[Heard]:
    with pytest.MonkeyPatch.context() as patch:
        yield Heard(patch)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, heard: Heard) -> dict[str, Any]:
    """The notebook's names on two virtual devices, before it trains."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of("Keras_MultiGPU", folder, devices=2, until=CHECKED)


def test_weights_come_back_bit_for_bit(cells: dict[str, Any]) -> None:
    initial = weights.canonical("random", seed=0)
    assert weights.digest(framework.dump_weights(cells["model"])) == initial.sha256


KNOWN = {"running variance after a step", "gradients, uneven batch, n devices / one"}
"""Known differences of a network."""


WRONG_STRIDE = (
    ('width, 1, f"{name}.conv1")', 'width, 1, f"{name}.conv1", stride)'),
    ('f"{name}.conv2", stride)', 'f"{name}.conv2")'),
)


def test_a_stride_in_the_wrong_convolution_is_caught() -> None:
    """The image is halved in Caffe's convolution, a block's first. The weights fit."""
    broken = same_networks.with_text(networks, *WRONG_STRIDE)
    same_networks.assert_caught(framework, broken, "resnet50", TWO[:1])


def test_another_momentum_is_caught(cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    same_networks.assert_another_momentum_is_caught(cells, monkeypatch)


def test_a_validation_with_every_replicas_own_statistics_is_caught(
    cells: dict[str, Any],
) -> None:
    shared, kept = "    share_statistics(replica)\n    return", "    return"
    found = failed_in_training_loop(cells, "Keras_MultiGPU", shared, kept)
    assert found == {"validated with the statistics that are saved"}


def test_adam_adds_epsilon_before_the_bias_correction(cells: dict[str, Any]) -> None:
    """As the notebook says; gradients so small that it shows."""
    strategy = cells["strategy"]
    gradients = [np.array([1e-7, -3e-8, 0.5], np.float32) * n for n in (1, 2)]
    with strategy.scope():
        weight = keras.Variable(np.ones(3, np.float32))
        network = SimpleNamespace(trainable_variables=[weight])
        optimizer = cells["make_optimizer"](network, Rule("adam"))
        optimizer.learning_rate = cells["scaled"].learning_rate
    for gradient in gradients:
        half = gradient / 2  # Keras adds the gradients of its two replicas up
        strategy.run(lambda g=half: optimizer.apply([tf.constant(g)], [weight]))
    expected = adam(gradients, cells["scaled"], epsilon_first=True)
    assert np.allclose(weight.numpy(), expected, atol=1e-7)


def test_devices_and_versions() -> None:
    assert TWO == ["CPU:0", "CPU:1"]
    assert framework.list_devices("cpu", 1) == ["CPU:0"]
    with pytest.raises(RuntimeError):
        framework.list_devices("cpu", 9)
    assert framework.versions()["keras"] == keras.__version__
    framework.synchronize(TWO)
    assert framework.SKIPPED.get("virtual devices") is None


def test_no_two_images_draw_the_same_crop(cells: dict[str, Any]) -> None:
    """The notebook's own loader on equal images, of which every crop is different."""
    first = crops(cells, batches, seed=0)
    assert np.array_equal(first, crops(cells, batches, seed=0)), (
        "the same seed must give the same run"
    )
    assert not np.array_equal(first, crops(cells, batches, seed=1))
    assert len(np.unique(first, axis=0)) > 0.6 * len(first)


def test_a_run_that_begins_with_a_later_epoch_sees_the_same(cells: dict[str, Any]) -> None:
    assert_later_epochs_are_the_same(cells, partial(batches, cells))


def test_its_documented_loaders_deliver_what_the_benchmark_times(tmp_path: Path) -> None:
    assert_examples_deliver("keras", tmp_path)


def test_half_of_the_images_are_flipped(cells: dict[str, Any]) -> None:
    lots = np.random.default_rng(0).random((200, 3), np.float32)
    grey = ramp(cells["crop"])
    assert_half_are_flipped(cells["train_transform"](grey, lot) for lot in lots)


def test_closed_batches_leave_no_worker(cells: dict[str, Any]) -> None:
    before = threading.active_count()
    stream = (batch for batch in cells["make_train_loader"](world(cells), 0, 2))
    assert len(next(stream)[0]) == cells["scaled"].global_batch_size
    stream.close()
    assert threading.active_count() == before


def test_every_image_is_evaluated_once(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = cells["images"].train.iloc[:130]  # two images into a second batch of 128
    numbered = np.arange(len(part), dtype=np.float32)[:, None].repeat(14, axis=1)
    monkeypatch.setattr(image_data.Data, "targets", lambda images, part: numbered)
    loader = cells["make_evaluation_loader"](world(cells), part, 2)
    found = list(loader)
    assert {len(grey) for grey, _ in found} == {128}  # a fixed shape: one trace
    assert np.array_equal(np.concatenate([t for _, t in found])[: len(part)], numbered)
    replica = shallow_replica(cells)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # not that the input ran out of data
        logits, loss = cells["predict"](replica, iter(loader), len(part))
    assert logits.shape == (len(part), 14)
    expected = tf.nn.sigmoid_cross_entropy_with_logits(numbered, logits).numpy().mean()
    assert loss == pytest.approx(expected, rel=1e-5), "what fills the last batch does not count"


def test_images_are_evaluated_in_order(cells: dict[str, Any]) -> None:
    """Through `predict`, over the devices: each image's own number comes back."""
    part = cells["images"].train.iloc[:130]
    loader = iter(cells["make_evaluation_loader"](world(cells), part, 2))
    numbers = iter(np.arange(2 * 128, dtype=np.float32))

    def numbered() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for grey, targets in loader:
            yield np.stack([np.full_like(one, next(numbers), np.float32) for one in grey]), targets

    found, _ = cells["predict"](corners(cells), numbered(), len(part))
    assert np.array_equal(found[:, 0], np.arange(len(part)))


def test_an_evaluation_is_read_before_it_is_asked_for(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``iter`` of its loader does not wait, and begins."""
    asked, may_continue = threading.Event(), threading.Event()

    def slow(images: image_data.Data, row: int) -> np.ndarray:
        asked.set()
        assert may_continue.wait(60)
        return np.zeros((SIDE, SIDE, 1), np.uint8)

    monkeypatch.setattr(image_data.Data, "read", slow)
    part = cells["images"].valid
    batches = iter(cells["make_evaluation_loader"](world(cells), part, 2))
    assert asked.wait(60)
    may_continue.set()
    assert len(list(batches)) == -(-len(part) // cells["scaled"].global_batch_size)


@pytest.fixture(params=[pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def lower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The notebook's names before it trains, in a precision of 16 bits, with a smaller network."""
    given = {"recipe": recipe_of_resnet44(tmp_path), "precision": request.param}
    yield namespace_of("Keras_MultiGPU", tmp_path, devices=2, until=CHECKED, **given)
    keras.config.set_dtype_policy("float32")


def test_the_training_loop_check_is_passed_in_16_bits(lower: dict[str, Any]) -> None:
    assert lower["this_run"].fairness_check.comparable
    policies = {layer.dtype_policy.name for layer in lower["model"].layers}
    assert policies == {"float32", lower["policies"][lower["scaled"].recipe.precision]}
    assert lower["model"].layers[-1].dtype_policy.name == "float32"
    assert {variable.dtype for variable in lower["model"].variables} == {"float32"}
    replica = lower["start"](world(lower), lower["model"])
    assert replica.dtype_policy.name == "float32", "it is for the network alone"
    assert lower["criterion"].dtype == "float32"
    state = framework.dump_optimizer(replica.network, replica.optimizer)
    assert ("scale" in state) == (lower["scaled"].recipe.precision == "fp16")
    if "scale" in state:
        state["scale"] = np.array(8.0)
        framework.load_optimizer(replica.network, replica.optimizer, state)
        assert framework.dump_optimizer(replica.network, replica.optimizer)["scale"] == 8


def test_adam_is_where_it_was(cells: dict[str, Any]) -> None:
    replica = shallow_replica(cells)
    network = replica.network
    framework.load_optimizer(network, replica.optimizer, {})
    train(cells, replica, noise(cells), 2)
    state = framework.dump_optimizer(network, replica.optimizer)
    assert state["step"] == 2 and len(state) == 1 + 2 * len(network.trainable_variables)
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again = shallow_replica(cells)
    framework.load_optimizer(again.network, again.optimizer, state)
    found = framework.dump_optimizer(again.network, again.optimizer)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0


def test_fit_takes_every_batch_once_and_in_order(cells: dict[str, Any]) -> None:
    """Epoch after epoch; Keras would draw some more batches to build the model by."""
    grey, targets = next(noise(cells))
    given = ((np.full_like(grey, number), targets) for number in range(20))
    replica, taken = shallow_replica(cells), []

    class Noting(StepClock):
        def batches(self, loader: Any) -> Iterator[Any]:
            for batch in super().batches(loader):
                shares = cells["strategy"].experimental_local_results(batch[0])
                taken.append({int(share.numpy().mean()) for share in shares})
                yield batch

    for steps in (3, 3, 2):
        with Noting(framework.completion) as clock, warnings.catch_warnings():
            warnings.simplefilter("error")
            cells["train_epoch"](replica, given, steps, clock)
    assert taken == [{number} for number in range(8)]
    assert next(given)[0].mean() == 8, "what comes next was not read ahead by fit"


def test_the_clock_sees_what_fit_waits_for(cells: dict[str, Any]) -> None:
    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(0.5)  # longer than a step of this network on any machine
            yield batch

    replica, waited = shallow_replica(cells), []
    for loader in (noise(cells), slowly(noise(cells))):
        loss, clock = train(cells, replica, loader, 6)
        assert len(clock.step_seconds) == 5 and loss > 0
        waited.append(clock.data_seconds)
    assert waited[1] > waited[0] + 0.5


def test_nothing_that_is_iterated_is_tuned(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iterator that ends would wait for the thread that tunes it."""
    found, replica = tuned(monkeypatch), shallow_replica(cells)
    train(cells, replica, cells["make_train_loader"](world(cells), 0, 2), 1)
    fitted, part = len(found), cells["images"].valid
    loader = cells["make_evaluation_loader"](world(cells), part, 2)
    cells["predict"](replica, iter(loader), len(part))
    assert 1 + len(TWO) <= fitted < len(found), "what Keras makes, and what it has on each device"
    assert not any(found)


def test_nothing_is_said_that_none_asked_for(cells: dict[str, Any], heard: Heard) -> None:
    """Such as which devices a strategy reduces to, and how slow it is eagerly."""
    replica = shallow_replica(cells)
    next(cells["make_train_loader"](world(cells), 0, 2))
    _, clock = train(cells, replica, noise(cells), 2)
    cells["all_reduce_alone"](replica, 2, clock)
    assert not heard.lines, "in the check of fairness, the training-loop check, or here"


def test_the_import_says_nothing() -> None:
    """That of TensorFlow, which comes first, is quiet too."""
    code = "from helpers.frameworks import keras"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    with pytest.raises(UserError, match="tensor cores"):
        framework.configure("tf32", "cpu")


def train(
    cells: dict[str, Any], replica: Any, loader: Iterator[Any], steps: int
) -> tuple[float, StepClock]:
    with StepClock(framework.completion) as clock:
        loss = cells["train_epoch"](replica, loader, steps, clock)
    return loss, clock


def corners(cells: dict[str, Any]) -> keras.Model:
    """A model, on the notebook's devices, that gives back each image's first pixel, 14 times."""
    with cells["scope"]():
        grey = keras.Input((cells["crop"], cells["crop"], 1))
        return keras.Model(grey, keras.ops.repeat(grey[:, 0, :1, 0], 14, axis=1))


def batches(
    cells: dict[str, Any], count: int, *, epoch: int = 0, workers: int = 2
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first training batches of a loader that begins with an epoch."""
    return list(islice(cells["make_train_loader"](world(cells), epoch, workers), count))


def evaluated(cells: dict[str, Any], part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and targets of all images of a part."""
    found = list(cells["make_evaluation_loader"](world(cells), part, 2))
    pixels, targets = (np.concatenate(piece)[: len(part)] for piece in zip(*found, strict=True))
    return pixels, targets


def first_batch(cells: dict[str, Any]) -> tuple[np.ndarray, ...]:
    return batches(cells, 1)[0]


@pytest.mark.slow  # the loss of findings is caught every day
def test_a_wrong_loss_of_classes_is_caught(tmp_path: Path) -> None:
    def one_hot_sigmoids(sound: Any) -> Any:
        def criterion(targets: Any, output: Any) -> Any:
            one_hot = keras.ops.one_hot(keras.ops.reshape(targets, (-1,)), 14)
            return keras.losses.BinaryCrossentropy(from_logits=True)(one_hot, output)

        return criterion

    rules.assert_wrong_losses_of_classes_are_caught(
        "Keras_MultiGPU",
        tmp_path,
        sigmoids=one_hot_sigmoids,
        a_sum=lambda sound: keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="sum"
        ),
    )


def test_its_cells_train_in_another_project(tmp_path: Path) -> None:
    copied.assert_trains("Keras_MultiGPU", tmp_path / "other")


ADAPTER = Adapter(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: tf.constant(number),
    evaluated=evaluated,
    first_batch=first_batch,
    grey={"Keras_MultiGPU": "10971c16b40c81f3"},
    colour={"Keras_MultiGPU": "d97fcb2c8de0c9ee"},
    known=frozenset({*KNOWN, "running variance after 5 SGD steps", EPSILON_FIRST}),
    probe_apart=True,
)
