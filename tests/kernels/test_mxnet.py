"""Runs in the mxnet environment: ``.venvs/mxnet/bin/python -m pytest`` with this file."""

import multiprocessing
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import copied
import mxnet as mx
import numpy as np
import pytest
import rules
import same_networks
from adapter import *
from adapter import Adapter
from agreed import (
    assert_float32_is_float32,
    assert_half_are_flipped,
    assert_refused,
    equal,
    ramp,
    steps_of,
)
from coverage_checks import failed_after_training, failed_in_data_coverage, world_of
from examples import assert_examples_deliver
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.data import BatchSampler, SequentialSampler
from mxnet.gluon.model_zoo.vision import densenet121
from notebook_cells import (
    CHECKED,
    EPSILON_FIRST,
    adam,
    failed_in_training_loop,
    namespace_of,
)

from helpers import paths
from helpers.fairness import process_checks, reference
from helpers.frameworks import mxnet as framework
from helpers.networks import mxnet as networks
from helpers.networks import weights
from helpers.recipe import Rule
from helpers.training import mxnet_batches
from helpers.training.step_clock import StepClock
from helpers.training.train_loop import take_steps
from helpers.training.world import World

NOTEBOOK = "MXNet_Gluon_MultiGPU"
TWO = framework.list_devices("cpu", 2)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands


def build(dtype: str, devices: list[framework.Device]) -> framework.Model:
    model = densenet121(classes=14)
    features = model.features[:-2]
    features.add(nn.GlobalAvgPool2D(), nn.Flatten())
    model.features = features
    model.initialize(ctx=devices)
    model.cast(dtype)
    return model


@pytest.fixture(scope="module")
def model() -> framework.Model:
    model = build("float64", TWO)
    framework.load_weights(model, weights.canonical("random").arrays)
    model.hybridize(static_alloc=True)
    return model


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebook's names on two virtual devices, before it trains."""
    return namespace_of(NOTEBOOK, tmp_path_factory.mktemp("run"), devices=2, until=CHECKED)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_weights_come_back_bit_for_bit(devices: int) -> None:
    model = build("float32", framework.list_devices("cpu", devices))
    initial = weights.canonical("random", seed=5)
    # Values whose mean over three devices rounds, as those of a trained model would.
    arrays = {
        name: array + np.float32(0.1) if "running" in name else array
        for name, array in initial.arrays.items()
    }
    framework.load_weights(model, arrays)
    assert weights.digest(framework.dump_weights(model)) == weights.digest(arrays)


def test_statistics_that_survive_are_the_devices_mean(model: framework.Model) -> None:
    held = framework.dump_weights(model)
    parameter = next(p for n, p in model.collect_params().items() if n.endswith("running_mean"))
    for value, copy in enumerate(parameter.list_data(), start=1):
        copy[:] = value
    assert (framework.dump_weights(model)["features.norm0.running_mean"] == 1.5).all()
    framework.load_weights(model, held)


def test_faults_in_the_world_are_caught(tmp_path: Path) -> None:
    """The faults of one process: no reshuffle, and devices that each keep their gradients."""
    names = world_of(NOTEBOOK, tmp_path)
    order = "random.permutation(len(images.train))"
    found = failed_in_data_coverage(names, NOTEBOOK, order, "np.arange(len(images.train))")
    assert found == {process_checks.ORDER}
    found = failed_after_training(names, NOTEBOOK, "if replica.communicate:", "if False:")
    assert found == {process_checks.REPLICAS}


def test_a_stride_in_the_wrong_convolution_is_caught() -> None:
    """The image is halved in Caffe's convolution, a block's first. The weights fit."""

    def spoil(model: framework.Model) -> None:
        blocks = [each for each in model._children.values() if isinstance(each, networks.Block)]
        layers = blocks[3].branch._children.values()
        convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2D)]
        for convolution, stride in zip(convolutions, (2, 1, 1), strict=True):
            convolution._kwargs["stride"] = (stride, stride)

    same_networks.assert_caught(framework, networks, "resnet50", TWO[:1], spoil=spoil)


def test_a_step_for_the_images_of_one_device_is_caught(cells: dict[str, Any]) -> None:
    all_images, of_one = "sum(len(pixels) for pixels, _ in parts)", "len(parts[0][0])"
    assert "weight change after 5 SGD steps" in failed_in_training_loop(
        cells, NOTEBOOK, all_images, of_one
    )


def test_a_validation_with_every_devices_own_statistics_is_caught(cells: dict[str, Any]) -> None:
    """What is saved is their average, whether the devices share it or not."""
    shared, kept = "    share_statistics(replica)\n    return", "    return"
    found = failed_in_training_loop(cells, NOTEBOOK, shared, kept)
    assert found == {"validated with the statistics that are saved"}


def test_devices_and_versions() -> None:
    assert [str(device) for device in TWO] == ["cpu(0)", "cpu(1)"]
    assert [str(device) for device in framework.list_devices("gpu", 2)] == ["gpu(0)", "gpu(1)"]
    assert framework.versions()["mxnet"] == mx.__version__
    assert framework.SKIPPED.get("virtual devices") is None
    assert "biased" in str(framework.SKIPPED.get("unbiased running variance on CPUs"))


def test_no_two_workers_draw_the_same_crops(cells: dict[str, Any]) -> None:
    """The notebook's own loader on images whose every crop is different."""
    (first,) = corners(cells)
    assert len(np.unique(first, axis=0)) > 0.6 * len(first)
    assert np.array_equal(first, corners(cells)[0]), "the same seed must give the same run"
    assert not np.array_equal(first, corners(cells, seed=1)[0])


def test_a_run_that_begins_with_a_later_epoch_sees_the_same(cells: dict[str, Any]) -> None:
    assert steps_of(cells) == 1
    first, second, third = corners(cells, epochs=3)
    assert not np.array_equal(first, second), "every epoch draws anew"
    for workers in (0, 1, 3):
        begun = corners(cells, epoch=1, epochs=2, workers=workers)
        assert np.array_equal(begun, [second, third])


def one_world(*devices: framework.Device) -> World:
    """One process that drives these devices."""
    return World(0, len(devices), devices, "cpu")


def corners(
    cells: dict[str, Any], *, epoch: int = 0, epochs: int = 1, seed: int = 0, workers: int = 2
) -> list[np.ndarray]:
    """Corner pixels of the crops in each epoch's one batch, drawn from one repeated image."""
    scaled = cells["scaled"]
    cells["scaled"] = replace(scaled, recipe=replace(scaled.recipe, seed=seed))
    try:
        loader = cells["make_train_loader"](one_world(*TWO), epoch, workers)
        return [joined(parts)[0][:, 0, :4, 0] for parts in islice(loader, epochs)]
    finally:
        cells["scaled"] = scaled


def evaluated(cells: dict[str, Any], part: Any) -> list[np.ndarray]:
    (parts,) = cells["make_evaluation_loader"](one_world(*TWO), part, 2)
    return joined(parts)


def first_batch(cells: dict[str, Any]) -> list[np.ndarray]:
    return joined(next(cells["make_train_loader"](one_world(*TWO), 0, 2)))


def joined(parts: list[Any]) -> list[np.ndarray]:
    """A batch that is spread over the devices, pixels and targets."""
    both = zip(*parts, strict=True)
    return [np.concatenate([array.asnumpy() for array in arrays]) for arrays in both]


def test_closed_batches_leave_no_worker(cells: dict[str, Any]) -> None:
    before = set(multiprocessing.active_children())
    batches = (batch for batch in cells["make_train_loader"](one_world(*TWO), 0, 2))
    assert sum(len(grey) for grey, _ in next(batches)) == cells["scaled"].global_batch_size
    assert len(set(multiprocessing.active_children()) - before) == 2
    batches.close()
    for worker in set(multiprocessing.active_children()) - before:
        worker.join(5)
        assert not worker.is_alive()


class Numbers:
    """Images that are filled with their number."""

    def __len__(self) -> int:
        return 95

    def write(self, numbers: list[int], pixels: np.ndarray) -> np.ndarray:
        for at, number in enumerate(numbers):
            pixels[at] = number
        return np.array(numbers, np.float32)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kept", [1, 100])
def test_batches_stay_as_they_came_though_their_memory_is_written_again(
    workers: int, kept: int
) -> None:
    """So many are held at a time, by a view; the first pass is broken off."""
    order = BatchSampler(SequentialSampler(95), 4, "keep")
    loader = mxnet_batches.Loader(
        Numbers(), 4, (2, 3, 1), order, num_workers=workers, pin_memory=False
    )
    for left_at in (2, 100, 100):
        held: deque[Any] = deque(maxlen=kept)
        seen: list[float] = []
        for batch in islice(loader, left_at):
            held.append([part[:] for part in batch])
            seen += batch[1].asnumpy().tolist()
            del batch
            time.sleep(0.01)
            for pixels, targets in held:
                assert (pixels.asnumpy() == targets.asnumpy()[:, None, None, None]).all()
        assert seen == list(range(95))[: 4 * left_at]


def test_its_documented_loaders_deliver_what_the_benchmark_times(tmp_path: Path) -> None:
    assert_examples_deliver("mxnet", tmp_path)


def test_half_of_the_images_are_flipped(cells: dict[str, Any]) -> None:
    grey, draws = ramp(cells["scaled"].recipe.crop), range(400)
    assert_half_are_flipped(
        cells["train_transform"](grey, np.random.default_rng([0, draw])) for draw in draws
    )


def test_every_evaluation_image_is_seen_once_on_all_devices(cells: dict[str, Any]) -> None:
    part = cells["images"].train.iloc[:129]  # with two devices, one image is left over
    parts = list(cells["make_evaluation_loader"](one_world(*TWO), part, 2))
    assert [[len(grey) for grey, _ in batch] for batch in parts] == [[64, 64], [1]]
    assert [targets.context for _, targets in parts[0]] == TWO
    seen = np.concatenate([targets.asnumpy() for batch in parts for _, targets in batch])
    assert np.array_equal(seen, cells["images"].targets(part))


def test_a_step_takes_the_mean_over_the_global_batch(cells: dict[str, Any]) -> None:
    """Where all logits are one constant, the classifier's bias has a gradient known by hand.

    Not zero: at exactly zero gluon's loss gives -y instead of 1/2 - y.
    """
    model = cells["model"]
    arrays = dict(cells["initial"].arrays)
    arrays["classifier.weight"] = np.zeros_like(arrays["classifier.weight"])
    arrays["classifier.bias"] = np.full(14, 0.25, np.float32)
    framework.load_weights(model, arrays)
    recorder = framework._Recorder()
    trainer = gluon.Trainer(model.collect_params(), recorder, update_on_kvstore=False)
    random = np.random.default_rng(0)
    batch = cells["scaled"].global_batch_size
    grey = random.integers(0, 256, (batch, 32, 32, 1)).astype(np.uint8)
    targets = (random.random((batch, 14)) < 0.3).astype(np.float32)
    host = (mx.nd.array(grey, dtype="uint8"), mx.nd.array(targets))
    replica = cells["Replica"](model, trainer, one_world(*TWO), Rule("sgd"), repeat(1e-3))
    loader = iter([cells["split"](replica.world, host)])
    with StepClock(framework.completion) as clock:
        loss = cells["train_epoch"](replica, loader, 1, clock)
    bias = next(g for name, g in recorder.gradients.items() if name.endswith("dense0_bias"))
    probability = 1 / (1 + np.exp(-0.25))
    assert bias == pytest.approx((probability - targets.mean(axis=0)) / 14, abs=1e-7)
    each = targets * np.log(probability) + (1 - targets) * np.log(1 - probability)
    assert loss == pytest.approx(-each.mean(), abs=1e-6)
    framework.load_weights(model, cells["initial"].arrays)


def test_nothing_in_the_loop_pulls_values_to_the_host(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `wait_to_read` may be called in the loop, and never on the newest batches."""

    class Array:
        """The first layer's weights and their copy."""

        waits = 0

        def list_data(self) -> list["Array"]:
            return [Array(), Array()]

        def copy(self) -> "Array":
            return self

        def wait_to_read(self) -> None:
            Array.waits += threading.current_thread() is threading.main_thread()

    class Network:
        def collect_params(self) -> dict[str, Array]:
            return {"weight": Array()}

    def refuse(self: Any) -> None:
        raise AssertionError("a value was pulled to the host inside the loop")

    steps, allowed = 10, cells["batches_in_flight"]

    class Losses:
        def __init__(self, devices: Any) -> None: ...

        def mean(self) -> float:
            return 0.0

    monkeypatch.setitem(cells, "train_step", lambda *_: [])
    monkeypatch.setitem(cells, "share_statistics", lambda replica: None)
    monkeypatch.setattr(framework, "DeviceLosses", Losses)
    replica = cells["Replica"](Network(), None, one_world(*TWO), Rule("sgd"), repeat(1e-3))
    with StepClock(framework.completion) as clock:
        cells["train_epoch"](replica, iter([[]] * steps), steps, clock)
    assert Array.waits == 2 * (steps - allowed)
    assert len(clock.step_seconds) == steps - 1
    monkeypatch.undo()

    losses = framework.DeviceLosses(TWO)
    monkeypatch.setattr(mx.nd.NDArray, "asnumpy", refuse)
    monkeypatch.setattr(mx.nd.NDArray, "wait_to_read", refuse)
    losses.add(0, mx.nd.ones(1, TWO[0]), 2)


def test_adam_adds_epsilon_before_the_bias_correction(cells: dict[str, Any]) -> None:
    """As the notebook says; gradients so small that it shows. On two devices."""
    parameter = gluon.Parameter("weight", shape=(3,))
    parameter.initialize(mx.init.Zero(), ctx=TWO)

    class One:
        @staticmethod
        def collect_params() -> dict[str, gluon.Parameter]:
            return {parameter.name: parameter}

    optimizer = cells["make_optimizer"](One(), Rule("adam"))
    optimizer.set_learning_rate(cells["scaled"].learning_rate)
    gradient = np.array([1e-9, 1e-8, 1.0])
    for _ in range(5):
        with autograd.record():  # the sum over the two devices is the gradient
            halves = [
                (parameter.data(device) * mx.nd.array(gradient / 2, device)).sum() for device in TWO
            ]
        autograd.backward(halves)
        optimizer.step(1)
    expected = adam([gradient] * 5, cells["scaled"], epsilon_first=True, start=0.0)
    for copy in parameter.list_data():
        assert copy.asnumpy() == pytest.approx(expected, rel=1e-4)


def test_adam_is_where_it_was(cells: dict[str, Any]) -> None:
    """The state comes back bit for bit, and the next step is the one that would have come."""
    run = cells["this_run"]
    world = run.world
    batch = run.functions.make_fixed_loader(world, run.work().noise(world, 2))

    def begun(weights: Any, state: Any) -> Any:
        replica = run.functions.start(world, framework.shallow(weights, TWO))
        framework.load_optimizer(replica.network, replica.optimizer, state)
        return replica

    def states(replica: Any) -> dict[str, np.ndarray]:
        return framework.dump_optimizer(replica.network, replica.optimizer)

    replica = begun(reference.shallow_arrays(), {})
    take_steps(run.work(), replica, batch, 2)
    state, middle = states(replica), framework.dump_weights(replica.network)
    assert state["step"] == 2 and len(state) == 1 + 2 * 5
    assert np.abs(state["second/features.conv0.weight"]).max() > 0
    again = begun(middle, state)
    assert equal(states(again), state)
    for either in (replica, again):
        take_steps(run.work(), either, batch, 1)
    after = states(replica)
    assert after["step"] == 3 and equal(states(again), after)
    assert equal(framework.dump_weights(again.network), framework.dump_weights(replica.network))


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_same_seed_gives_the_same_bits(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The notebook's own loader and loop twice, with batches in flight."""
    run, world = cells["this_run"], one_world(*TWO[:count])
    recipe = replace(cells["scaled"].recipe, batch_size=2)
    monkeypatch.setitem(cells, "scaled", recipe.on(count))
    monkeypatch.setattr(run, "devices", world.devices)
    found = []
    for _ in range(2):
        network = run.functions.build_model(cells["initial"].arrays)
        replica = run.functions.start(world, network)
        batches = run.functions.make_train_loader(world, 0, 2)
        loss, _ = take_steps(run.work(), replica, batches, 6)
        scores, _ = run.functions.predict(replica, islice(batches, 1), 2 * count)
        found.append(framework.dump_weights(network) | {"loss": loss, "scores": scores})
    assert equal(*found)


def test_without_all_reduce_every_device_goes_its_own_way(cells: dict[str, Any]) -> None:
    run = cells["this_run"]
    world = run.world
    replica = run.functions.start(world, framework.shallow(reference.shallow_arrays(), TWO))
    weight = next(iter(replica.network.collect_params().values()))
    grey, targets = run.work().noise(world, 2)[0]
    loader = run.functions.make_fixed_loader(world, [(grey, targets), (255 - grey, targets)])
    for train, communicate in (
        (run.functions.train_epoch, True),
        (run.functions.without_all_reduce, False),
    ):
        with StepClock(framework.completion) as clock:
            train(replica, loader, 1, clock)
        first, second = (copy.asnumpy() for copy in weight.list_data())
        assert np.array_equal(first, second) == communicate


def test_an_error_that_only_the_clock_has_seen_ends_the_loop() -> None:
    """MXNet tells an error to the first thread that waits, and to no other."""
    with (
        pytest.raises(mx.MXNetError, match="scale parameter"),
        StepClock(framework.completion) as clock,
    ):
        wrong = mx.nd.random.normal(0, -1, (2, 2))
        clock.queued([wrong + 1])


@pytest.mark.parametrize(
    ("precision", "kind", "reason"),
    [
        ("tf32", "cpu", "tensor cores"),
        ("bf16", "cpu", "float64"),
        ("bf16", "gpu", "float64"),
        ("fp16", "gpu", "loss scaling"),
    ],
)
def test_precisions_are_refused_with_a_reason(precision: str, kind: str, reason: str) -> None:
    assert_refused(framework.configure, precision, kind, reason)


def test_float32_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_float32_is_float32(framework.configure, monkeypatch)


def test_compiled_statistics_are_those_of_plain_python(cells: dict[str, Any]) -> None:
    """`static_shape=True` fails here: MXNet spoils the running statistics on two devices."""
    random = np.random.default_rng(0)
    host = [
        (
            mx.nd.array(random.integers(0, 256, (16, 32, 32, 1)), dtype="uint8"),
            mx.nd.array(random.random((16, 14)) < 0.3),
        )
        for _ in range(2)
    ]
    world, found = one_world(*TWO), []
    for compiled in (True, False):
        model = cells["build_model"](cells["initial"].arrays)
        if not compiled:
            model.hybridize(False)
        replica = cells["start"](world, model)
        for batch in host:
            cells["train_step"](replica, cells["split"](world, batch))
        found.append(framework.dump_weights(model))
    for name, expected in found[1].items():
        if "running" in name:
            np.testing.assert_allclose(found[0][name], expected, rtol=1e-3, atol=1e-5, err_msg=name)


def test_devices_share_their_statistics(cells: dict[str, Any]) -> None:
    model = cells["model"]
    parameter = next(p for n, p in model.collect_params().items() if n.endswith("running_var"))
    for value, copy in enumerate(parameter.list_data(), start=1):
        copy[:] = value
    replica = cells["Replica"](model, None, one_world(*TWO), Rule("sgd"), repeat(1e-3))
    cells["share_statistics"](replica)
    assert all((copy.asnumpy() == 1.5).all() for copy in parameter.list_data())
    framework.load_weights(model, cells["initial"].arrays)


@pytest.fixture(autouse=True)
def nothing_left_in_the_queue() -> Iterator[None]:
    yield
    mx.nd.waitall()


@pytest.mark.slow  # the loss of findings is caught every day
def test_a_wrong_loss_of_classes_is_caught(tmp_path: Path) -> None:
    def one_hot_sigmoids(sound: Any) -> Any:
        sigmoids = mx.gluon.loss.SigmoidBinaryCrossEntropyLoss()
        return lambda output, targets: sigmoids(output, mx.nd.one_hot(targets, 14))

    rules.assert_wrong_losses_of_classes_are_caught(
        NOTEBOOK,
        tmp_path,
        sigmoids=one_hot_sigmoids,
        a_sum=lambda sound: lambda output, targets: len(targets) * sound(output, targets),
    )


DROPPED = """
import numpy as np
from helpers.training.mxnet_batches import Loader

class Large:
    def write(self, numbers, pixels):
        return np.zeros((len(numbers), 2_000_000))  # workers are most of the time handing on

for _ in range(3):
    batches = iter(Loader(Large(), 1, (1, 1, 1), [[0]] * 8, num_workers=2, pin_memory=False))
    next(batches)
    del batches
left = iter(Loader(Large(), 1, (1, 1, 1), [[0]] * 8, num_workers=2, pin_memory=False))
next(left)
print("ends", flush=True)
"""


def test_a_loader_ends_while_workers_hand_on_batches() -> None:
    """Gluon's kills them, and one with a lock in its hands made the run hang."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DROPPED],
        cwd=paths.ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_its_cells_train_in_another_project(tmp_path: Path) -> None:
    copied.assert_trains(NOTEBOOK, tmp_path / "other")


ADAPTER = Adapter(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: mx.nd.array([number], device),
    evaluated=evaluated,
    first_batch=first_batch,
    grey={NOTEBOOK: "1ba09741657ba0a1"},
    colour={NOTEBOOK: "4a83df857506f929"},
    known=frozenset(
        {"running variance after a step", "running variance after 5 SGD steps", EPSILON_FIRST}
    ),
    survivors="the average of all replicas'",
    bits=False,
)
