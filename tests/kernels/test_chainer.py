"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file."""

import sys
from functools import partial
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import copied
import notebook_program
import numpy as np
import own_networks
import pytest
import rules
import same_networks
import shared_batches
from agreed import assert_float32_is_float32, assert_refused, equal
from chainer.iterators import MultiprocessIterator
from examples import assert_examples_deliver
from framework_tests import *
from framework_tests import OfFramework
from notebook_cells import failed, recipe_of_resnet44, write_different_images
from notebook_program import Names, fairness_check, names_of
from page_faults import GIVEN_BACK, KEPT, of_filling_again, only_glibc
from resuming import assert_own_resumes, assert_resumes

from helpers.errors import DataError
from helpers.fairness import reference, reference_checks
from helpers.fairness import training_loop as loop_checks
from helpers.frameworks import chainer as framework
from helpers.networks import chainer as networks
from helpers.networks import weights
from helpers.training.notebook_recipe import Part

NOTEBOOK, PROGRAM = "Chainer_MultiGPU", notebook_program.__file__
TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module", name="names")
def names_fixture(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """The notebook's names for two devices, before it trains."""
    return names_of(NOTEBOOK, tmp_path_factory.mktemp("notebook"), devices=2)


def own_names(folder: Path, **given: Any) -> Names:
    """Those with a small custom network of classes."""
    recipe = own_networks.recipe_of_classes(folder / "recipe", "chainer")
    return names_of(NOTEBOOK, folder, recipe=str(recipe), data="auto", batch_size=8, **given)


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


@pytest.mark.parametrize("recipe", ["demo", "resnet44"])
def test_the_fairness_check_is_passed(recipe: str, tmp_path: Path) -> None:
    given = {} if recipe == "demo" else {"recipe": recipe_of_resnet44(tmp_path)}
    found = fairness_check(names_of(NOTEBOOK, tmp_path, devices=2, **given))
    assert {check.verdict for check in found.checks} == {"pass"}, found.checks
    assert found.comparable
    same_networks.assert_in_double(found.checks)
    reasons = {check.check: check.reason for check in found.checks}
    assert reasons["which replica's running statistics are kept"] == "replica 0's"


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


def test_what_is_drawn_depends_on_seed_epoch_and_image_alone(tmp_path: Path) -> None:
    """By the rule of all notebooks, for any number of workers and after a resume."""
    data = str(write_different_images(tmp_path, ".png"))
    names = names_of(NOTEBOOK, tmp_path, devices=2, data=data, batch_size=16, seed=3)
    run, expected = names["run"], {}
    for workers, epochs in ((0, [0, 1, 2]), (1, [2]), (3, [1, 2])):
        run.workers = workers
        found = shared_batches.trained_on(names, run.train_part, epochs)
        for epoch, batches in zip(epochs, found, strict=True):
            if epoch not in expected:
                expected[epoch] = shared_batches.by_the_rule(
                    run, run.train_part, run.train_part.read, epoch, 0, 1
                )
            assert len(batches) == 140 // 32
            shared_batches.assert_same(batches, expected[epoch])


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_pixels_are_pillows_from_files_and_from_a_packed_folder(
    tmp_path: Path, suffix: str
) -> None:
    shared_batches.assert_grey_is_read(NOTEBOOK, tmp_path, suffix)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_pixels_in_colour_are_pillows_from_files_memory_and_an_own_reader(
    tmp_path: Path, suffix: str
) -> None:
    names = shared_batches.assert_colour_is_read(NOTEBOOK, tmp_path, suffix)
    recipe = names["run"].setup.recipe.recipe
    image = reference_checks.canonical_image(recipe.crop, planes=3)
    (seen,) = names["to_network"](image[None])
    assert np.abs(seen - reference_checks.expected_pixels(image, recipe)).max() < 1e-6, (
        "three planes, each with its own mean"
    )


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


def test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one(tmp_path: Path) -> None:
    """Own network, own reader, classes, momentum, warm-up and drops."""
    recipe = own_networks.recipe_of_classes(tmp_path / "recipe", "chainer")
    assert_own_resumes(NOTEBOOK, tmp_path, recipe, program=PROGRAM)


@pytest.mark.slow  # three processes train; the run of a custom recipe is killed every day
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    assert_resumes(NOTEBOOK, tmp_path, bits=True, program=PROGRAM)


@pytest.mark.slow  # the loss of findings is caught every day
def test_a_wrong_loss_of_classes_is_caught(tmp_path: Path) -> None:
    def sigmoids(scores: Any, targets: Any) -> Any:
        return F.sigmoid_cross_entropy(scores, np.eye(14, dtype=np.int32)[targets])

    def a_sum(scores: Any, targets: Any) -> Any:
        return len(targets) * F.softmax_cross_entropy(scores, targets)

    names = own_names(tmp_path, devices=2)
    assert failed(fairness_check(names).checks) == set()
    for criterion in (sigmoids, a_sum):
        names["criterion"] = criterion
        rows = {"mean loss of 5 SGD steps", "weight change after 5 SGD steps"}
        assert rows <= failed(fairness_check(names).checks), criterion


SAID = {
    "sgd": 'optimizer = "sgd"\nmomentum = 0.0',
    "momentum": 'optimizer = "sgd"\nmomentum = 0.9',
    "adam": 'optimizer = "adam"',
}
"""How a recipe says a rule."""


@pytest.mark.parametrize(("optimizer", "task"), rules.CASES)
def test_every_rule_is_the_references(optimizer: str, task: str, tmp_path: Path) -> None:
    """It walks the reference's way down a task's loss, with weight decay; its state is kept."""
    of_task = {
        "multilabel": own_networks.recipe_of,
        "multiclass": own_networks.recipe_of_classes,
    }
    recipe = of_task[task](tmp_path / "recipe", "chainer")
    text = recipe.read_text().replace(SAID["momentum"], SAID[optimizer])
    assert SAID[optimizer] in text
    recipe.write_text(text)
    given: dict[str, Any] = {"data": "auto"} if task == "multiclass" else {}
    names = names_of(NOTEBOOK, tmp_path, devices=2, recipe=str(recipe), batch_size=8, **given)
    found = fairness_check(names).checks
    assert {check.verdict for check in found} == {"pass", "not checked"}, found
    (row,) = (check for check in found if check.check.startswith("weight decay in 5"))
    assert row.reason == next(iter(loop_checks.DECAYS))
    rates = {"sgd": 0.1, "momentum": 0.1, "adam": 1e-3}[optimizer] * np.array([1, 1, 0.1])
    start = reference.shallow_arrays()
    with names["run"].recipe.varied(rates=tuple(map(float, rates))):
        whole, _ = steps_taken(names, task, start, {}, 3)
        two, state = steps_taken(names, task, start, {}, 2)
        resumed, _ = steps_taken(names, task, two, state, 1)
    rules.assert_continues(loop_checks.RULES[optimizer], whole, two, state, resumed)


def steps_taken(names: Names, task: str, arrays: Any, state: Any, steps: int) -> tuple[Any, Any]:
    """Weights and optimiser after so many steps more."""
    run = names["run"]
    pixels, targets = reference.batch_of(task)
    pixels = np.concatenate([pixels.repeat(run.images.planes, axis=3)] * 2)
    batch = framework.as_loaded(pixels, np.concatenate([targets] * 2), np.arange(len(pixels)))
    how = {"learning_rate": 1.0, "lr_scaling": "none", "outputs": 14}
    with run.recipe.varied(**how, batch_size=len(targets)):
        replica = names["make_replica"](framework.shallow(arrays, TWO))
        framework.load_optimizer(replica.network, replica.optimizer, state)
        names["train_steps"](replica, repeat(batch, steps), steps)
    kept = framework.dump_optimizer(replica.network, replica.optimizer)
    return framework.dump_weights(replica.network), kept


@pytest.mark.slow  # planted_ trains one every day
def test_a_custom_network_is_trained(tmp_path: Path) -> None:
    """From its file to trained weights that a checkpoint keeps; what it fixes stays."""
    recipe = own_networks.recipe_of(tmp_path / "recipe", "chainer")
    data = str(write_different_images(tmp_path, ".png"))
    run = notebook_program.train(NOTEBOOK, tmp_path / "run", recipe=str(recipe), data=data)
    after = weights.load(run.folder / "weights.safetensors")
    trained, fixed = own_networks.TRAINED["chainer"], own_networks.FIXED["chainer"]
    assert after.keys() == run.initial.arrays.keys() >= trained | fixed
    changed = {name for name, array in run.initial.arrays.items() if (after[name] != array).any()}
    assert changed >= trained


def test_as_a_script_it_trains_in_another_project(tmp_path: Path) -> None:
    copied.assert_script_trains(NOTEBOOK, tmp_path, (sys.executable,), "chainer", devices=2)


ADAPTER = OfFramework(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: chainer.Variable(np.array(number, np.float32)),
)
