"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import own_networks
import pytest
import same_networks
from agreed import assert_float32_is_float32, assert_refused, equal
from chainer.iterators import MultiprocessIterator
from examples import assert_examples_deliver
from notebook_cells import failed
from notebook_program import Names, fairness_check, names_of
from page_faults import GIVEN_BACK, KEPT, of_filling_again, only_glibc
from program_tests import *
from program_tests import OfPrograms

from helpers.errors import DataError
from helpers.fairness import reference
from helpers.frameworks import chainer as framework
from helpers.networks import chainer as networks
from helpers.networks import weights
from helpers.training.notebook_recipe import Part

NOTEBOOK = "Chainer_MultiGPU"
TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module", name="names")
def names_fixture(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """The notebook's names for two devices, before it trains."""
    return names_of(NOTEBOOK, tmp_path_factory.mktemp("notebook"), devices=2)


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


def test_weights_come_back_bit_for_bit(names: Names) -> None:
    model = names["build_model"]()
    assert weights.digest(framework.dump_weights(model)) == names["run"].initial.sha256
    other = weights.canonical("random", seed=5)
    framework.load_weights(model, other.arrays)
    assert weights.digest(framework.dump_weights(model)) == other.sha256


WRONG_STRIDE = (
    ("convolution(channels, width, 1)", "convolution(channels, width, 1, stride)"),
    ("convolution(width, width, 3, stride)", "convolution(width, width, 3)"),
)


def test_a_stride_in_the_wrong_convolution_is_caught() -> None:
    """The image is halved in Caffe's convolution, a block's first. The weights fit."""
    broken = same_networks.with_text(networks, *WRONG_STRIDE)
    same_networks.assert_caught(framework, broken, "resnet50", TWO[:1])


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
    assert equal(framework.dump_weights(tiny), before)


def test_adam_is_pytorchs(names: Names, tiny: Tiny) -> None:
    """Epsilon after the bias correction, at gradients small enough that epsilon counts."""
    optimizer = chainer.optimizers.Adam().setup(tiny)
    optimizer.add_hook(names["like_pytorch"])
    parameter, gradient = tiny.classifier.b, np.full(14, 1e-8)
    expected = parameter.array.copy()
    m, v = np.zeros(14), np.zeros(14)
    with names["run"].recipe.varied(learning_rate=1e-3, lr_scaling="none"):
        for step in range(1, 4):
            tiny.cleargrads()
            parameter.grad = gradient.copy()
            optimizer.update()
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            corrected = np.sqrt(v / (1 - 0.999**step)) + 1e-8
            expected -= 1e-3 * m / (1 - 0.9**step) / corrected
            assert np.abs(parameter.array - expected).max() < 1e-12
    assert np.abs(expected).max() > 1e-4


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


def test_devices_and_versions() -> None:
    assert [device.name for device in TWO] == ["@numpy", "@numpy"]
    assert framework.versions()["chainer"] == chainer.__version__
    assert framework.SKIPPED.get("virtual devices") is None


class OnDevice:
    """A loss that cannot be read without waiting for its device."""

    def __add__(self, other: Any) -> "OnDevice":
        return self

    __radd__ = __mul__ = __add__

    def __float__(self) -> float:
        raise AssertionError("the loss was pulled to the host inside the loop")


def test_a_training_step_never_waits_for_the_device(names: Names) -> None:
    copies = [SimpleNamespace(loss=SimpleNamespace(array=OnDevice())) for _ in TWO]
    updater = SimpleNamespace(update=lambda: None)
    queues = [SimpleNamespace(put=lambda block: None) for _ in TWO]
    replica = names["Replica"](None, copies, None, updater, queues)
    pixels, targets = np.zeros((4, 8, 8, 1), np.uint8), np.zeros((4, 14), np.float32)
    assert isinstance(names["train_step"](replica, pixels, targets), OnDevice)


def test_its_documented_loaders_deliver_what_the_benchmark_times(tmp_path: Path) -> None:
    assert_examples_deliver("chainer", tmp_path)


def test_an_image_that_a_worker_cannot_read_ends_the_loader(names: Names) -> None:
    """Chainer would wait for ever: the thread that hands on batches has ended."""
    size = names["run"].recipe.batch_size * 2

    def read(i: int) -> np.ndarray:
        if i == 2 * size:
            raise DataError("this image ends too soon")
        return names["run"].train_part.read(0)

    targets = np.resize(names["run"].train_part.targets, (3 * size, 14))
    sound = names["MultiprocessIterator"]
    names["MultiprocessIterator"] = partial(MultiprocessIterator, dataset_timeout=1)
    framework.configure("fp32", "cpu")  # pytest has taken back that a warning is an error
    try:
        loader = iter(names["make_loader"](Part(range(3 * size), targets, read), False))
        assert len(next(loader)[0]) == len(next(loader)[0]) == size
        with pytest.raises(MultiprocessIterator.TimeoutWarning):
            next(loader)
    finally:
        names["MultiprocessIterator"] = sound


@only_glibc
def test_on_a_cpu_a_step_gets_the_memory_that_the_last_one_freed() -> None:
    configured = "from helpers.frameworks import chainer; chainer.configure('fp32', '{}')"
    assert of_filling_again(configured.format("gpu")) > GIVEN_BACK
    assert of_filling_again(configured.format("cpu")) < KEPT


@pytest.mark.slow  # the loss of findings is caught every day
def test_a_wrong_loss_of_classes_is_caught(tmp_path: Path) -> None:
    def sigmoids(scores: Any, targets: Any) -> Any:
        return F.sigmoid_cross_entropy(scores, np.eye(14, dtype=np.int32)[targets])

    def a_sum(scores: Any, targets: Any) -> Any:
        return len(targets) * F.softmax_cross_entropy(scores, targets)

    recipe = own_networks.recipe_of_classes(tmp_path / "recipe", "chainer")
    names = names_of(NOTEBOOK, tmp_path, devices=2, recipe=str(recipe), data="auto", batch_size=8)
    assert failed(fairness_check(names).checks) == set()
    for criterion in (sigmoids, a_sum):
        names["criterion"] = criterion
        rows = {"mean loss of 5 SGD steps", "weight change after 5 SGD steps"}
        assert rows <= failed(fairness_check(names).checks), criterion


ADAPTER = OfPrograms(
    framework,
    networks,
    TWO,
    launchers={NOTEBOOK: (sys.executable,)},
    seen=lambda names, pixels: names["to_network"](pixels),
)
