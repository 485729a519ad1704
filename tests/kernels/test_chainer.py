"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file.

The network, the loader, the updater and the optimiser are the notebook's own, taken from its cells.
"""

import multiprocessing
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import copied
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
from chainer.dataset import concat_examples
from examples import assert_examples_deliver
from notebook_cells import (
    CHECKED,
    failed,
    failed_in_training_loop,
    namespace_of,
    other_norms,
    planted,
)
from page_faults import GIVEN_BACK, KEPT, of_filling_again, only_glibc

from helpers.fairness import reference, reference_checks
from helpers.frameworks import chainer as framework
from helpers.networks import chainer as networks
from helpers.networks import weights
from helpers.recipe import Rule
from helpers.training import chainer_batches, image_data
from helpers.training import chainer_parallel as parallel
from helpers.training.step_clock import StepClock
from helpers.training.world import World

NOTEBOOK = "Chainer_MultiGPU"
TWO = framework.list_devices("cpu", 2)
WORLD = World(0, 2, tuple(TWO), "cpu")


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebook's names for two virtual devices, before it trains."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of(NOTEBOOK, folder, devices=2, until=CHECKED)


class Tiny(chainer.Chain):
    """Small enough to be quick, with BatchNorm and 14 outputs."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 3, nobias=True)
            self.norm = L.BatchNormalization(4)
            self.classifier = L.Linear(4, 14)

    def forward(self, x: Any) -> chainer.Variable:
        return self.classifier(F.mean(F.relu(self.norm(self.conv(x))), axis=(2, 3)))


@pytest.fixture
def tiny() -> Tiny:
    np.random.seed(0)  # noqa: NPY002 (Chainer draws from it)
    with chainer.using_config("dtype", np.float64):
        return Tiny()


def test_weights_come_back_bit_for_bit(cells: dict[str, Any]) -> None:
    initial = weights.canonical("random", seed=5)
    model = cells["build_model"](initial.arrays)
    assert weights.digest(framework.dump_weights(model)) == initial.sha256


def test_another_epsilon_is_caught(cells: dict[str, Any]) -> None:
    with other_norms(cells, bn_epsilon=2e-5):  # Chainer's default
        network = framework.exact(cells["build_model"], reference.arrays())
        checks = reference_checks.same_network(framework, network, TWO[:1])
        checks += reference_checks.same_in_training(framework, cells["build_model"], network)
    assert {"logits, evaluation", "logits, training", "loss"} <= failed(checks)


WRONG_STRIDE = (
    ("convolution(channels, width, 1)", "convolution(channels, width, 1, stride)"),
    ("convolution(width, width, 3, stride)", "convolution(width, width, 3)"),
)


def test_a_stride_in_the_wrong_convolution_is_caught() -> None:
    """The image is halved in Caffe's convolution, a block's first. The weights fit."""
    broken = same_networks.with_text(networks, *WRONG_STRIDE)
    same_networks.assert_caught(framework, broken, "resnet50", TWO[:1])


def test_a_sum_in_place_of_a_mean_is_caught(cells: dict[str, Any]) -> None:
    """What Chainer's updaters do to a loss that is not divided."""
    divided = "return loss / self.devices"
    assert "weight change after 5 SGD steps" in failed_in_training_loop(
        cells, NOTEBOOK, divided, "return loss"
    )


def test_a_validation_with_every_devices_own_statistics_is_caught(cells: dict[str, Any]) -> None:
    """With an updater that sends no statistics, as MultiprocessParallelUpdater on GPUs."""
    begin = '    """The network and its loss on one device."""\n'
    parameters_only = """
    def copyparams(self, link, copy_persistent=True):
        super().copyparams(link, copy_persistent=False)
"""
    own = "other.copyparams(replica.copies[0])"
    shared = "chainer.Chain.copyparams(other, replica.copies[0])"
    with planted(cells, NOTEBOOK, begin, begin + parameters_only):
        assert failed_in_training_loop(cells, NOTEBOOK, own, shared) == set()
        found = failed_in_training_loop(cells, NOTEBOOK, "    share_statistics(replica)\n", "")
    assert found == {"validated with the statistics that are saved"}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_split_gives_the_same_gradients(tiny: Tiny, count: int) -> None:
    grey, targets = reference.batch()  # 4 images: uneven on 3 devices
    images = reference.network_input(grey)
    before = framework.dump_weights(tiny)
    one_loss, one = framework.gradients(tiny, images, targets, TWO[:1])
    loss, found = framework.gradients(tiny, images, targets, TWO[:1] * count)
    assert loss == pytest.approx(one_loss, abs=1e-12)
    assert found.keys() == one.keys()
    for name, expected in one.items():
        assert np.abs(found[name] - expected).max() < 1e-12, name
    after = framework.dump_weights(tiny)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_notebooks_updater_steps_as_chainers_own(cells: dict[str, Any]) -> None:
    """ThreadedUpdater adds threads to ParallelUpdater, and nothing else."""

    def step(make: Callable[..., Any]) -> dict[str, np.ndarray]:
        np.random.seed(0)  # noqa: NPY002 (Chainer draws from it)
        copies = [cells["WithLoss"](Tiny(), number, 2) for number in range(2)]
        copies[1].copyparams(copies[0])
        random = np.random.default_rng(0)
        batch = [(random.integers(0, 256, (8, 8, 1), np.uint8), np.eye(14, dtype=np.int32)[i % 14])
                 for i in range(16)]  # fmt: skip
        iterator = chainer.iterators.SerialIterator(batch, 16, shuffle=False)
        optimizer = cells["make_optimizer"](copies[0], Rule("adam"), repeat(1e-3))
        updater = make(iterator, optimizer, copies)
        for _ in range(3):
            updater.update()
        assert all(
            np.array_equal(array, framework.dump_weights(copies[1])[name])
            for name, array in framework.dump_weights(copies[0]).items()
        )
        return framework.dump_weights(copies[0])

    def ours(iterator: Any, optimizer: Any, copies: Any) -> Any:
        return parallel.ThreadedUpdater(iterator, optimizer, concat_examples, copies, TWO)

    def chainers(iterator: Any, optimizer: Any, copies: Any) -> Any:
        models = {"main": copies[0], "other": copies[1]}
        devices = {"main": TWO[0], "other": TWO[1]}
        return chainer.training.ParallelUpdater(iterator, optimizer, models=models, devices=devices)

    found, expected = step(ours), step(chainers)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_adam_is_pytorchs(cells: dict[str, Any], tiny: Tiny) -> None:
    """Epsilon after the bias correction, at gradients small enough that epsilon counts."""
    rate = cells["scaled"].learning_rate
    optimizer = cells["make_optimizer"](tiny, Rule("adam"), repeat(rate))
    parameter, gradient = tiny.classifier.b, np.full(14, 1e-8)
    expected = parameter.array.copy()
    m, v = np.zeros(14), np.zeros(14)
    for step in range(1, 4):
        tiny.cleargrads()
        parameter.grad = gradient.copy()
        optimizer.update()
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        corrected = np.sqrt(v / (1 - 0.999**step)) + 1e-8
        expected -= rate * m / (1 - 0.9**step) / corrected
        assert np.abs(parameter.array - expected).max() < 1e-12
    assert np.abs(expected).max() > 1e-4


def test_adam_is_where_it_was(cells: dict[str, Any]) -> None:
    """The state comes back bit for bit, and the next step is the one that would have come."""

    def end(replica: Any) -> tuple[Any, Any]:
        found = framework.dump_optimizer(replica.network, replica.optimizer)
        return framework.dump_weights(replica.network), found

    one, loader = begun(cells)
    train(cells, one, loader, 2)
    middle, state = end(one)
    assert state["step"] == 2 and len(state) == 1 + 2 * 5
    assert np.abs(state["second/features.conv0.weight"]).max() > 0
    again, other = begun(cells, middle, state)
    assert equal(end(again)[1], state)
    train(cells, one, loader, 1)
    train(cells, again, other, 1)
    for found, expected in zip(end(again), end(one), strict=True):
        assert equal(found, expected)
    assert end(one)[1]["step"] == 3


def begun(
    cells: dict[str, Any], arrays: Any = None, state: Any = None, devices: int = 2
) -> tuple[Any, Any]:
    """A replica of the shallow net, ready to train on noise, and the loader of that."""
    world = World(0, devices, tuple(TWO[:devices]), "cpu")
    network = framework.shallow(arrays or reference.shallow_arrays(), world.devices)
    replica = cells["start"](world, network)
    framework.load_optimizer(replica.network, replica.optimizer, state or {})
    loader = cells["make_fixed_loader"](world, noise(devices))
    cells["ready"](replica, [loader])
    return replica, loader


def noise(devices: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two images for each device, no two alike."""
    random = np.random.default_rng(0)
    return [
        (random.integers(0, 256, (2, 32, 32, 1), np.uint8), np.zeros((2, 14), np.float32))
        for _ in range(devices)
    ]


def train(cells: dict[str, Any], replica: Any, loader: Any, steps: int) -> tuple[float, StepClock]:
    with StepClock(framework.completion) as clock:
        return cells["train_epoch"](replica, loader, steps, clock), clock


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_same_seed_gives_the_same_bits(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The notebook's own loader, updater and network twice."""
    recipe = replace(cells["scaled"].recipe, batch_size=2)
    monkeypatch.setitem(cells, "scaled", recipe.on(count))
    world = World(0, count, tuple(TWO[:count]), "cpu")
    found: list[Any] = []
    for _ in range(2):
        replica = cells["start"](world, cells["build_model"](cells["initial"].arrays))
        loader = cells["make_train_loader"](world, 0, 2)
        cells["ready"](replica, [loader])
        loss, _ = train(cells, replica, loader, 3)
        found.append(framework.dump_weights(replica.network) | {"loss": loss})
        cells["stop"](replica)
    assert equal(*found)


def test_one_updater_takes_files_and_a_fixed_batch_in_turns(cells: dict[str, Any]) -> None:
    files = cells["make_train_loader"](WORLD, 0, 0)
    fixed = cells["make_fixed_loader"](WORLD, noise(2))
    (feed,) = parallel.feeds([files, fixed])
    clock = StepClock(framework.completion)
    feed.use(files, clock)
    first = parallel.join(next(feed))
    assert len(first[0]) == cells["scaled"].global_batch_size and first[1].any()
    feed.use(fixed, clock)
    for _ in range(2):
        shares = next(feed)
        for part, (grey, _), device in zip(shares, noise(2), TWO, strict=True):
            pixels, targets = parallel.join([part], device)
            assert np.array_equal(pixels, grey) and not targets.any()
    feed.use(files, clock)
    assert not np.array_equal(parallel.join(next(feed))[0], first[0]), "they go on"
    assert len(clock._arrived) == 4
    with pytest.raises(ValueError, match="not in list"):
        feed.use(cells["make_fixed_loader"](WORLD, noise(2)), clock)


def test_what_an_updater_reads_changes_in_all_its_processes(cells: dict[str, Any]) -> None:
    """As MultiprocessParallelUpdater's, which are forked before the first step."""
    gpus = replace(WORLD, kind="gpu")
    loaders = [cells["make_fixed_loader"](gpus, noise(4)[at : at + 2]) for at in (0, 2)]
    first, second = parallel.feeds(loaders)
    ours, theirs = multiprocessing.Pipe()

    def read() -> None:
        while theirs.recv():
            theirs.send(parallel.join(next(second))[0])

    process = multiprocessing.get_context("fork").Process(target=read)
    process.start()
    for number in (0, 1, 0):
        first.use(loaders[number], StepClock(framework.completion))
        ours.send(True)
        assert np.array_equal(ours.recv(), noise(4)[2 * number + 1][0])
    ours.send(False)
    process.join()
    assert process.exitcode == 0


def test_a_fixed_batch_is_sent_to_its_device_once() -> None:
    class Device:
        sent = 0

        def send(self, arrays: Any) -> Any:
            self.sent += 1
            return arrays

    device, part = Device(), parallel.Fixed(np.zeros((2, 1, 4, 4), np.uint8))
    for _ in range(3):
        assert part.on(device)[0].shape == (2, 1, 4, 4)
    assert device.sent == 1


def test_the_updater_of_one_gpu_takes_a_fixed_batch(cells: dict[str, Any]) -> None:
    """Section 11's, on GPUs: to a converter that is none of Chainer's it would give a number."""
    replica, loader = begun(cells, devices=1)
    alone = chainer.training.updaters.StandardUpdater(
        replica.updater.get_iterator("main"), replica.optimizer, parallel.join, TWO[0]
    )
    _, clock = train(cells, replace(replica, updater=alone), loader, 3)
    assert len(clock.step_seconds) == 2


def test_the_rate_is_the_notebooks_own(cells: dict[str, Any], tiny: Tiny) -> None:
    """MultiprocessParallelUpdater divides the rate of SGD by the devices, when it is made."""
    optimizer = cells["make_optimizer"](tiny, Rule("sgd"), repeat(0.5))
    optimizer.lr /= 2
    before = tiny.classifier.b.array.copy()
    tiny.cleargrads()
    tiny.classifier.b.grad = np.ones(14)
    optimizer.update()
    assert tiny.classifier.b.array == pytest.approx(before - 0.5)


def test_without_all_reduce_every_device_goes_its_own_way(cells: dict[str, Any]) -> None:
    replica, loader = begun(cells)
    for step, together in (("train_epoch", True), ("without_all_reduce", False)):
        with StepClock(framework.completion) as clock:
            cells[step](replica, loader, 1, clock)
        first, second = (framework.dump_weights(copy.network) for copy in replica.copies)
        assert equal(first, second) == together
    assert clock.first_step_seconds > clock.data_seconds > 0


@pytest.mark.parametrize(
    ("precision", "kind", "reason"),
    [
        ("tf32", "cpu", "tensor cores"),
        ("bf16", "gpu", "no bfloat16"),
        ("fp16", "gpu", "weights in float16"),
    ],
)
def test_precisions_are_refused_with_a_reason(precision: str, kind: str, reason: str) -> None:
    assert_refused(framework.configure, precision, kind, reason)


def test_float32_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_float32_is_float32(framework.configure, monkeypatch)


def test_nothing_in_the_accumulator_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def pulled(array: Any) -> Any:
        raise AssertionError("the loss was pulled to the host inside the loop")

    losses = framework.DeviceLosses(TWO[:1])
    with monkeypatch.context() as patch:
        patch.setattr(framework.cuda, "to_cpu", pulled)
        losses.add(0, np.array(1.0, np.float32), 2)
        with pytest.raises(AssertionError, match="pulled"):
            losses.mean()
    assert losses.mean() == 1.0


def test_devices_and_versions() -> None:
    assert [device.name for device in TWO] == ["@numpy", "@numpy"]
    assert framework.versions()["chainer"] == chainer.__version__
    assert framework.SKIPPED.get("virtual devices") is None


def test_no_two_workers_draw_the_same_crops(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notebook's own loader on images whose every crop is different."""
    (first,) = corners(cells)
    assert len(np.unique(first, axis=0)) > 0.6 * len(first), "workers drew the same crops"
    assert np.array_equal(first, corners(cells)[0]), "the same seed must give the same run"
    scaled = cells["scaled"]
    monkeypatch.setitem(cells, "scaled", replace(scaled, recipe=replace(scaled.recipe, seed=1)))
    assert not np.array_equal(first, corners(cells)[0])


def test_a_run_that_begins_with_a_later_epoch_sees_the_same(cells: dict[str, Any]) -> None:
    assert steps_of(cells) == 1
    first, second, third = corners(cells, epochs=3)
    assert not np.array_equal(first, second), "every epoch draws anew"
    for workers in (0, 1, 3):
        assert np.array_equal(corners(cells, epoch=1, epochs=2, workers=workers), [second, third])


def corners(
    cells: dict[str, Any], *, epoch: int = 0, epochs: int = 1, workers: int = 2
) -> list[np.ndarray]:
    """Corner pixels of the crops in each epoch's one batch, drawn from one repeated image."""
    loader = cells["make_train_loader"](WORLD, epoch, workers)
    with closing(iter(loader)) as batches:
        return [grey[:, 0, :4, 0] for grey, _ in islice(batches, epochs)]


def first_batch(cells: dict[str, Any]) -> list[np.ndarray]:
    with closing(iter(cells["make_train_loader"](WORLD, 0, 2))) as batches:
        return next(batches)


def test_closed_batches_leave_no_worker(cells: dict[str, Any]) -> None:
    before = set(multiprocessing.active_children())
    loader = cells["make_train_loader"](WORLD, 0, 2)  # held: to drop it ends them too
    batches = iter(loader)
    assert len(next(batches)[0]) == cells["scaled"].global_batch_size
    assert len(set(multiprocessing.active_children()) - before) == 2
    batches.close()
    assert set(multiprocessing.active_children()) == before


def test_its_documented_loaders_deliver_what_the_benchmark_times(tmp_path: Path) -> None:
    assert_examples_deliver("chainer", tmp_path)


def test_half_of_the_images_are_flipped(cells: dict[str, Any]) -> None:
    grey, draws = ramp(cells["scaled"].recipe.crop), range(400)
    assert_half_are_flipped(
        cells["train_transform"](grey, np.random.default_rng([0, draw])) for draw in draws
    )


def test_loaders_share_the_images_of_an_epoch(
    cells: dict[str, Any],
) -> None:
    """As on GPUs, a loader in each process: no image twice in an epoch, another order next."""
    parts, used = 20, 16
    orders = [parallel.ShareOfEpoch(parts, np.arange(rank, used, 2), 0) for rank in range(2)]
    epochs = [np.concatenate([order(np.arange(parts), 0) for order in orders]) for _ in range(2)]
    for epoch, numbers in enumerate(epochs):
        assert len(np.unique(numbers)) == len(numbers) == used
        assert set(numbers // parts) == {epoch}


def test_each_gpu_has_an_iterator_and_their_epochs_are_whole_batches(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled, table = cells["scaled"], cells["images"].train
    loader = cells["make_train_loader"](replace(WORLD, kind="gpu"), 0, 0)
    datasets = [iterator.dataset for iterator in loader.iterators]
    images: list[int] = []
    read = image_data.Data.read

    def note(data: image_data.Data, row: int) -> np.ndarray:
        images.append(int(row))
        return read(data, row)

    monkeypatch.setattr(image_data.Data, "read", note)
    for iterator in loader.iterators:
        for _ in range(steps_of(cells)):
            assert len(parallel.join(next(iterator))[0]) == scaled.recipe.batch_size
        assert iterator.epoch == 1 and iterator.is_new_epoch
    used = steps_of(cells) * scaled.global_batch_size
    assert len(set(images)) == len(images) == used, "no image twice in an epoch"
    assert np.array_equal(datasets[0].order, datasets[1].order)
    assert sorted(datasets[0].order) == list(range(len(table)))
    before = datasets[0].order
    next(loader.iterators[0])
    assert not np.array_equal(datasets[0].order, before), "another order in the next epoch"


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_sees_every_image_once(cells: dict[str, Any], workers: int) -> None:
    test = cells["images"].test
    loader = cells["make_evaluation_loader"](WORLD, test, workers)
    for _ in range(3):  # as validation does, epoch after epoch
        targets = np.concatenate([parallel.join(parts)[1] for parts in loader])
        assert np.array_equal(targets, cells["images"].targets(test))


def evaluation(cells: dict[str, Any], part: Any) -> list[np.ndarray]:
    """All images of a part, and their labels."""
    loader = cells["make_evaluation_loader"](WORLD, part, 2)
    batches = [parallel.join(parts) for parts in loader]
    return [np.concatenate(each) for each in zip(*batches, strict=True)]


def test_no_worker_writes_into_a_batch_that_another_user_reads(cells: dict[str, Any]) -> None:
    """However long that takes: its workers have read ahead as far as they may by then."""
    alone = cells["make_train_loader"](WORLD, 0, 0)
    shared = cells["make_train_loader"](WORLD, 0, 2)
    with closing(iter(alone)) as ours:
        for _, (pixels, targets) in zip(range(6), ours, strict=False):
            (parts,) = shared.once()
            time.sleep(0.5)
            assert all(map(np.array_equal, (pixels, targets), parallel.join(parts)))
    shared.finalize()


@pytest.mark.slow  # the loss of findings is caught every day
def test_a_wrong_loss_of_classes_is_caught(tmp_path: Path) -> None:
    def one_hot_sigmoids(sound: Any) -> Any:
        def criterion(output: Any, targets: Any) -> Any:
            one_hot = np.eye(14, dtype=np.int32)[targets]
            return F.sigmoid_cross_entropy(output, one_hot)

        return criterion

    rules.assert_wrong_losses_of_classes_are_caught(
        NOTEBOOK,
        tmp_path,
        sigmoids=one_hot_sigmoids,
        a_sum=lambda sound: lambda output, targets: len(targets) * sound(output, targets),
    )


@only_glibc
def test_on_a_cpu_a_step_gets_the_memory_that_the_last_one_freed() -> None:
    configured = "from helpers.frameworks import chainer; chainer.configure('fp32', '{}')"
    assert of_filling_again(configured.format("gpu")) > GIVEN_BACK
    assert of_filling_again(configured.format("cpu")) < KEPT


class OneCannotBeRead:
    """Parts of a batch of which one cannot be read."""

    part = 2

    def __len__(self) -> int:
        return 4

    def write(self, number: int, pixels: np.ndarray) -> np.ndarray:
        if number == 2:
            raise OSError("image 2 ends too soon")
        return np.zeros(self.part, np.int32)


def test_an_image_that_a_worker_cannot_read_ends_the_loader() -> None:
    """Chainer's own iterator would wait for ever: the thread that hands on batches has ended."""
    iterator = chainer_batches.SharedIterator(OneCannotBeRead(), 1, (4, 4, 1), 1)
    try:
        assert len(next(iterator)) == len(next(iterator)) == 1
        with pytest.raises(OSError, match="image 2 ends too soon"):
            next(iterator)
    finally:
        iterator.finalize()


def test_its_cells_train_in_another_project(tmp_path: Path) -> None:
    copied.assert_trains(NOTEBOOK, tmp_path / "other")


ADAPTER = Adapter(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: chainer.Variable(np.array(number, np.float32)),
    evaluated=evaluation,
    first_batch=first_batch,
    grey={NOTEBOOK: "2ce777ed4ed64998"},
    colour={NOTEBOOK: "6f9838d99ad2c86f"},
    bits=False,
)
