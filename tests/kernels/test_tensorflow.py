"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

import threading
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import copied
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
from coverage_checks import failed_in_data_coverage
from examples import assert_examples_deliver
from mirrored import Heard, crops, noise, shallow_replica, tuned, world
from notebook_cells import (
    CHECKED,
    SIDE,
    adam,
    failed,
    failed_in_training_loop,
    namespace_of,
)

from helpers.errors import UserError
from helpers.fairness import process_checks, reference
from helpers.frameworks import tensorflow as framework
from helpers.networks import tensorflow as networks
from helpers.networks import weights
from helpers.networks.shapes import NETWORKS
from helpers.recipe import RECIPES, Rule
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
    return namespace_of("TensorFlow_MultiGPU", folder, devices=2, until=CHECKED)


def test_weights_come_back_bit_for_bit(cells: dict[str, Any]) -> None:
    initial = weights.canonical("random", seed=0)
    assert weights.digest(framework.dump_weights(cells["model"])) == initial.sha256


def test_faults_in_the_world_are_caught(cells: dict[str, Any]) -> None:
    """No reshuffle, and an evaluation whose loss counts what fills up the last batch."""
    fixed = "[scaled.recipe.seed, number]", "[scaled.recipe.seed]"
    assert failed_in_data_coverage(cells, "TensorFlow_MultiGPU", *fixed) == {process_checks.ORDER}
    cut = "(exchange.in_order(np.concatenate(part), total) for part in parts)\n    return output,"
    padded = "(np.concatenate(part) for part in parts)\n    return output[:total],"
    found = failed_in_data_coverage(cells, "TensorFlow_MultiGPU", cut, padded)
    assert found == {process_checks.LOSS}


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


def test_a_sum_in_place_of_a_mean_is_caught(cells: dict[str, Any]) -> None:
    divided = "loss / strategy.num_replicas_in_sync"
    found = failed_in_training_loop(cells, "TensorFlow_MultiGPU", divided, "loss")
    assert "weight change after 5 SGD steps" in found


def test_a_validation_with_every_replicas_own_statistics_is_caught(
    cells: dict[str, Any],
) -> None:
    shared, kept = "    share_statistics(replica)\n    return", "    return"
    found = failed_in_training_loop(cells, "TensorFlow_MultiGPU", shared, kept)
    assert found == {"validated with the statistics that are saved"}


def test_the_notebooks_adam_is_pytorchs(cells: dict[str, Any]) -> None:
    """Gradients so small that it shows where epsilon is added."""
    strategy = cells["strategy"]
    model, gradients = tf.Module(), [np.array([1e-7, -3e-8, 0.5], np.float32) * n for n in (1, 2)]
    with strategy.scope():
        model.weight = tf.Variable(np.ones(3, np.float32), name="weight")
    optimizer = cells["make_optimizer"](model, Rule("adam"))
    optimizer.learning_rate.assign(cells["scaled"].learning_rate)
    for gradient in gradients:
        strategy.run(optimizer, args=([tf.constant(gradient)],))
    assert np.allclose(model.weight.numpy(), adam(gradients, cells["scaled"]), atol=1e-7)


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
    assert_examples_deliver("tensorflow", tmp_path)


def test_half_of_the_images_are_flipped(cells: dict[str, Any]) -> None:
    lots = np.random.default_rng(0).random((200, 3), np.float32)
    grey = ramp(cells["crop"])
    assert_half_are_flipped(cells["train_transform"](grey, lot) for lot in lots)


def test_closed_batches_leave_no_worker(cells: dict[str, Any]) -> None:
    before = threads()
    stream = (batch for batch in cells["make_train_loader"](world(cells), 0, 2))
    assert len(joined(cells, next(stream))[0]) == cells["scaled"].global_batch_size
    assert threads() > before
    stream.close()
    assert threads() == before


def test_every_image_is_evaluated_once(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = cells["images"].train.iloc[:130]  # two images into a second batch of 128
    numbered = np.arange(len(part), dtype=np.float32)[:, None].repeat(14, axis=1)
    monkeypatch.setattr(image_data.Data, "targets", lambda images, part: numbered)
    replica = shallow_replica(cells)
    loader = cells["make_evaluation_loader"](world(cells), part, 2)
    found = []
    for batch in loader:
        for share in cells["on_each"](batch[1]):
            assert len(share) == 64  # a fixed shape: one trace
            found.append(share.numpy())
    assert np.array_equal(np.concatenate(found)[: len(part)], numbered)
    logits, loss = cells["predict"](replica, iter(loader), len(part))
    assert logits.shape == (len(part), 14)
    expected = tf.nn.sigmoid_cross_entropy_with_logits(numbered, logits).numpy().mean()
    assert loss == pytest.approx(expected, rel=1e-5), "what fills the last batch does not count"


def test_an_evaluation_is_read_before_it_is_asked_for(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``iter`` of its loader does not wait, and begins."""
    asked, may_continue = threading.Event(), threading.Event()

    def slow(image: tf.Tensor) -> tf.Tensor:
        def read(number: np.ndarray) -> np.ndarray:
            asked.set()
            assert may_continue.wait(60)
            return np.zeros((SIDE, SIDE, 1), np.uint8)

        return tf.ensure_shape(tf.numpy_function(read, [image], tf.uint8), (SIDE, SIDE, 1))

    monkeypatch.setitem(cells, "reader", lambda part: slow)
    part = cells["images"].valid
    batches = iter(cells["make_evaluation_loader"](world(cells), part, 2))
    assert asked.wait(60)
    may_continue.set()
    assert len(list(batches)) == -(-len(part) // cells["scaled"].global_batch_size)


@pytest.fixture(params=[pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def lower(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The notebook's names before it trains, in a precision of 16 bits."""
    return namespace_of(
        "TensorFlow_MultiGPU",
        tmp_path,
        devices=2,
        until=CHECKED,
        checked=False,
        precision=request.param,
    )


def test_the_training_loop_check_is_passed_in_16_bits(lower: dict[str, Any]) -> None:
    """The training-loop check alone: no row before it is computed in the run's precision."""
    run = lower["this_run"]
    run.check_training_loop(**vars(run.functions))
    assert run.fairness_check.checks and failed(run.fairness_check.checks) == set()
    shallow = framework.shallow(reference.shallow_arrays(), TWO)
    output = shallow(tf.zeros((2, 32, 32, 3), lower["compute"]), training=True)
    assert output.dtype == tf.float32 and lower["compute"].size == 2


def test_a_step_that_overflows_is_left_out(tmp_path: Path) -> None:
    names = namespace_of(
        "TensorFlow_MultiGPU",
        tmp_path,
        devices=2,
        until=CHECKED,
        checked=False,
        precision="fp16",
    )
    replica = shallow_replica(names)
    replica.optimizer.loss_scale.assign(2.0**120)
    before = framework.dump_weights(replica.network)
    replica.train_step(*next(noise(names)))
    assert float(replica.optimizer.loss_scale.numpy()) == 2.0**119
    assert framework.dump_optimizer(replica.network, replica.optimizer)["step"] == 0
    after = framework.dump_weights(replica.network)
    assert np.array_equal(after["classifier.weight"], before["classifier.weight"])


def test_adam_is_where_it_was(cells: dict[str, Any]) -> None:
    replica = shallow_replica(cells)
    network, optimizer = replica.network, replica.optimizer
    framework.load_optimizer(network, optimizer, {})
    with StepClock(framework.completion) as clock:
        cells["train_epoch"](replica, noise(cells), 2, clock)
    optimizer.loss_scale.assign(8.0)
    state = framework.dump_optimizer(network, optimizer)
    assert state["step"] == 2 and state["scale"] == 8
    assert len(state) == 2 + 2 * len(network.trainable_variables)
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again = shallow_replica(cells)
    framework.load_optimizer(again.network, again.optimizer, state)
    found = framework.dump_optimizer(again.network, again.optimizer)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0


def test_nothing_that_is_iterated_is_tuned(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iterator that ends would wait for the thread that tunes it."""
    found = tuned(monkeypatch)
    next(cells["make_train_loader"](world(cells), 0, 2))
    for _ in cells["make_evaluation_loader"](world(cells), cells["images"].valid, 2):
        pass
    assert found == [False] * 2 * (1 + len(TWO)), "each loader, and what it has on each device"


def test_nothing_is_said_that_none_asked_for(cells: dict[str, Any], heard: Heard) -> None:
    """Such as which devices a strategy reduces to, and how slow it is eagerly."""
    replica = shallow_replica(cells)
    next(cells["make_train_loader"](world(cells), 0, 2))
    with StepClock(framework.completion) as clock:
        cells["train_epoch"](replica, noise(cells), 2, clock)
    cells["all_reduce_alone"](replica, 2, clock)
    assert not heard.lines, "in the check of fairness, the training-loop check, or here"


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    with pytest.raises(UserError, match="tensor cores"):
        framework.configure("tf32", "cpu")


def test_float32_is_float32() -> None:
    framework.configure("tf32", "gpu")
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    framework.configure("fp32", "cpu")
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def batches(
    cells: dict[str, Any], count: int, *, epoch: int = 0, workers: int = 2
) -> list[tuple[np.ndarray, ...]]:
    """The first training batches of a loader that begins with an epoch."""
    loader = cells["make_train_loader"](world(cells), epoch, workers)
    return [joined(cells, batch) for batch in islice(loader, count)]


def evaluated(cells: dict[str, Any], part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and targets of all images of a part."""
    loader = cells["make_evaluation_loader"](world(cells), part, 2)
    found = [joined(cells, batch) for batch in loader]
    pixels, targets = (np.concatenate(piece)[: len(part)] for piece in zip(*found, strict=True))
    return pixels, targets


def first_batch(cells: dict[str, Any]) -> tuple[np.ndarray, ...]:
    return batches(cells, 1)[0]


def joined(cells: dict[str, Any], batch: Any) -> tuple[np.ndarray, ...]:
    """A batch that is spread over the devices."""
    on_each = cells["on_each"]
    return tuple(np.concatenate([share.numpy() for share in on_each(part)]) for part in batch)


def threads() -> int:
    """Threads of this process, TensorFlow's among them."""
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.slow  # the loss of findings is caught every day
def test_a_wrong_loss_of_classes_is_caught(tmp_path: Path) -> None:
    def one_hot_sigmoids(sound: Any) -> Any:
        def criterion(output: Any, targets: Any) -> Any:
            each = tf.nn.sigmoid_cross_entropy_with_logits(tf.one_hot(targets, 14), output)
            return tf.reduce_mean(each, axis=1)

        return criterion

    rules.assert_wrong_losses_of_classes_are_caught(
        "TensorFlow_MultiGPU",
        tmp_path,
        sigmoids=one_hot_sigmoids,
        a_sum=lambda sound: lambda output, targets: tf.reduce_sum(sound(output, targets))[None],
    )


ADAPTER = Adapter(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: tf.constant(number),
    evaluated=evaluated,
    first_batch=first_batch,
    grey={"TensorFlow_MultiGPU": "10971c16b40c81f3"},
    colour={"TensorFlow_MultiGPU": "d97fcb2c8de0c9ee"},
    probe_apart=True,
)


def test_its_cells_train_in_another_project(tmp_path: Path) -> None:
    copied.assert_trains("TensorFlow_MultiGPU", tmp_path / "other")
