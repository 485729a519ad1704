"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import numpy as np
import probed
import pytest
import tensorflow as tf
from agreed import (
    assert_half_are_flipped,
    assert_later_epochs_are_the_same,
    assert_pixels_are_pillows,
    ramp,
    steps_of,
)
from cells import (
    CERTIFIED,
    adam,
    assert_passed,
    cell_with,
    failed,
    failed_in_rehearsal,
    namespace_of,
    planted,
)
from mirrored import assert_climbs, tuned
from resuming import assert_resumes

from helpers import fairness, reference, weights
from helpers.clock import StepClock
from helpers.errors import UserError
from helpers.frameworks import keras as framework

TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebook's names on two virtual devices, before it trains."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of("Keras_MultiGPU", folder, devices=2, until=CERTIFIED)


def test_weights_come_back_bit_for_bit(notebook: dict[str, Any]) -> None:
    initial = weights.canonical("seeded", seed=0)
    assert weights.digest(framework.dump_weights(notebook["model"])) == initial.sha256


def test_weights_that_do_not_fit_are_refused() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="predictions")])
    arrays = {"classifier.weight": np.zeros((2, 3)), "classifier.bias": np.zeros(2)}
    framework.load_weights(model, arrays)
    with pytest.raises(ValueError, match=r"classifier\.odd"):
        framework.load_weights(model, {**arrays, "classifier.odd": np.zeros(1)})
    with pytest.raises(ValueError, match=r"classifier\.weight"):
        framework.load_weights(model, {**arrays, "classifier.weight": np.zeros((3, 2))})


def test_the_certificate_is_passed(notebook: dict[str, Any]) -> None:
    known = {
        "running variance after a step",
        "running variance after 5 SGD steps",
        "gradients, uneven batch, n devices / one",
    }
    assert_passed(notebook["certificate"], known=known)


def test_another_momentum_is_caught(notebook: dict[str, Any]) -> None:
    momentum = "layer.momentum = 1 - scaled.recipe.bn_momentum"
    with planted(notebook, "Keras_MultiGPU", momentum, "pass"):  # Keras's own is 0.99
        network = framework.exact(notebook["build_model"], reference.arrays())
        checks = fairness.same_in_training(framework, notebook["build_model"], network)
    assert failed(checks) == {"running mean after a step", "running variance after a step"}


def test_a_validation_with_every_replicas_own_statistics_is_caught(
    notebook: dict[str, Any],
) -> None:
    shared = "share_statistics(learner.network)"
    found = failed_in_rehearsal(notebook, "Keras_MultiGPU", shared, "None")
    assert found == {"validated with the statistics that are saved"}


def test_the_notebooks_adam_is_pytorchs(notebook: dict[str, Any]) -> None:
    """Gradients so small that it shows where epsilon is added."""
    names = dict(notebook)
    exec(cell_with("Keras_MultiGPU", "class Adam("), names)
    strategy = notebook["strategy"]
    gradients = [np.array([1e-7, -3e-8, 0.5], np.float32) * n for n in (1, 2)]
    with strategy.scope():
        weight = keras.Variable(np.ones(3, np.float32))
        optimizer = names["make_optimizer"]()
        optimizer.build([weight])
    for gradient in gradients:
        half = gradient / 2  # Keras adds the gradients of its two replicas up
        strategy.run(lambda g=half: optimizer.apply([tf.constant(g)], [weight]))
    assert np.allclose(weight.numpy(), adam(gradients, notebook["scaled"]), atol=1e-7)


def test_losses_are_weighted_by_images() -> None:
    losses = framework.DeviceLosses(TWO)
    losses.add(0, tf.constant(1.0), 3)
    losses.add(1, tf.constant(5.0), 1)
    assert losses.mean() == pytest.approx(2.0)


def test_devices_and_versions() -> None:
    assert TWO == ["CPU:0", "CPU:1"]
    assert framework.list_devices("cpu", 1) == ["CPU:0"]
    with pytest.raises(RuntimeError):
        framework.list_devices("cpu", 9)
    assert framework.versions()["keras"] == keras.__version__
    framework.synchronize(TWO)
    assert framework.skip("virtual devices") is None


def test_no_two_images_draw_the_same_crop(notebook: dict[str, Any]) -> None:
    """The notebook's own loader on equal images, of which every crop is different."""
    first = crops(notebook, seed=0)
    assert np.array_equal(first, crops(notebook, seed=0)), "the same seed must give the same run"
    assert not np.array_equal(first, crops(notebook, seed=1))
    assert len(np.unique(first, axis=0)) > 0.9 * len(first)


def test_a_run_that_begins_with_a_later_epoch_sees_the_same(notebook: dict[str, Any]) -> None:
    assert_later_epochs_are_the_same(notebook, partial(batches, notebook))


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_pixels_are_pillows_from_files_and_from_a_packed_folder(
    notebook: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    assert_pixels_are_pillows(
        notebook,
        monkeypatch,
        tmp_path,
        suffix,
        partial(evaluated, notebook),
        lambda: batches(notebook, 1)[0],
    )


def test_half_of_the_images_are_flipped(notebook: dict[str, Any]) -> None:
    lots = np.random.default_rng(0).random((200, 3), np.float32)
    grey = ramp(notebook["crop"])
    assert_half_are_flipped(notebook["train_transform"](grey, lot) for lot in lots)


def test_closed_batches_leave_no_worker(notebook: dict[str, Any]) -> None:
    before = threading.active_count()
    stream = notebook["training_batches"](2)
    assert len(next(stream)[0]) == notebook["scaled"].global_batch
    stream.close()
    assert threading.active_count() == before


def test_every_image_is_evaluated_once(notebook: dict[str, Any]) -> None:
    part = notebook["images"].train.iloc[:130]  # two images into a second batch of 128
    loader = notebook["make_evaluation_loader"](part)
    loader.read = lambda index: np.full((264, 264), index, np.uint8)
    assert {len(grey) for grey, _ in loader} == {128}  # a fixed shape: one trace
    found = corners(notebook).predict(loader, verbose=0)
    assert np.array_equal(found[: len(part), 0], np.arange(len(part)))


@pytest.fixture(params=["bf16", "fp16"])
def lower(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The notebook's names up to its training loop, in a precision of 16 bits."""
    until = "rehearsal.certify("
    return namespace_of("Keras_MultiGPU", tmp_path, devices=2, until=until, precision=request.param)


def test_the_rehearsal_is_passed_in_16_bits(lower: dict[str, Any]) -> None:
    exec(cell_with("Keras_MultiGPU", "rehearsal.certify("), lower)
    assert lower["certificate"].comparable
    policies = {layer.dtype_policy.name for layer in lower["model"].layers}
    assert policies == {"float32", lower["POLICIES"][lower["scaled"].recipe.precision]}
    assert lower["model"].layers[-1].dtype_policy.name == "float32"
    assert {variable.dtype for variable in lower["model"].variables} == {"float32"}
    assert keras.config.dtype_policy().name == "float32", "it is not for what is made later"


def test_adam_is_where_it_was(notebook: dict[str, Any]) -> None:
    def made() -> tuple[Any, Any]:
        with notebook["strategy"].scope():
            model = framework.shallow(reference.shallow_arrays(), TWO)
            learner = notebook["GreyToLogits"](model)
            learner.compile(notebook["make_optimizer"](), notebook["criterion"], jit_compile=False)
            learner.optimizer.build(model.trainable_variables)
        return learner, model

    learner, model = made()
    framework.load_optimizer(model, learner.optimizer, {})
    notebook["train_epoch"](learner, notebook["SyntheticXRays"](2), 2)
    state = framework.dump_optimizer(model, learner.optimizer)
    assert state["step"] == 2 and len(state) == 1 + 2 * len(model.trainable_variables)
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again, network = made()
    framework.load_optimizer(network, again.optimizer, state)
    found = framework.dump_optimizer(network, again.optimizer)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0


def test_the_clock_sees_what_fit_waits_for(notebook: dict[str, Any]) -> None:
    synthetic: Any = notebook["SyntheticXRays"]

    class Slow(synthetic):  # type: ignore[misc]
        def __getitem__(self, number: int) -> Any:
            time.sleep(0.5)  # longer than a step of this network on any machine
            return super().__getitem__(number)

    with notebook["strategy"].scope():
        learner = notebook["GreyToLogits"](framework.shallow(reference.shallow_arrays(), TWO))
        learner.compile("sgd", notebook["criterion"], jit_compile=False)
    waited = []
    for loader in (synthetic, Slow):
        loss, clock = notebook["train_epoch"](learner, loader(1), 6)
        assert isinstance(clock, StepClock) and len(clock.step_seconds) == 5 and loss > 0
        waited.append(clock.data_seconds)
    assert waited[1] > waited[0] + 0.5


@pytest.fixture
def small(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The notebook's names with a shallow network in place of its own."""
    before, start = dict(notebook), reference.shallow_arrays()
    with notebook["strategy"].scope():
        notebook["model"] = framework.shallow(start, TWO)
    notebook["initial"] = replace(notebook["initial"], arrays=start)
    exec(cell_with("Keras_MultiGPU", "class Adam("), notebook)
    yield notebook
    if "monitor" in notebook:
        notebook["monitor"].stop()
    notebook.clear()
    notebook.update(before)


def test_nothing_that_is_iterated_is_tuned(
    small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iterator that ends would wait for the thread that tunes it."""
    found = tuned(monkeypatch)
    small["train_epoch"](small["learner"], small["make_train_loader"](), 1)
    fitted = len(found)
    small["validate"](small["learner"], small["make_evaluation_loader"](small["images"].valid))
    assert 1 + len(TWO) <= fitted < len(found), "what Keras makes, and what it has on each device"
    assert not any(found)


def test_a_batch_that_does_not_fit_is_halved(small: dict[str, Any]) -> None:
    """The notebook's own search and training, with a small network and a small memory."""
    train_epoch = small["train_epoch"]

    def limited(learner: Any, loader: Any, *rest: Any, **options: Any) -> Any:
        if isinstance(loader, small["SyntheticXRays"]) and len(loader.batch[0]) > 2 * 16:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return train_epoch(learner, loader, *rest, **options)

    small["setup"] = replace(small["setup"], search_batch=True)
    small["train_epoch"] = limited
    exec(cell_with("Keras_MultiGPU", CERTIFIED), small)
    scaled, history = small["scaled"], small["history"]
    assert (scaled.recipe.batch, scaled.global_batch) == (16, 32)
    assert history[-1]["images"] == 32 * steps_of(small) > 32
    assert history[-1]["learning_rate"] == pytest.approx(scaled.learning_rate)
    taken = framework.dump_optimizer(small["model"], small["learner"].optimizer)["step"]
    assert taken == scaled.recipe.epochs * steps_of(small), "the trial's step is forgotten"


def test_the_learning_rate_climbs_step_by_step(
    small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_climbs(
        "Keras_MultiGPU", small, monkeypatch, lambda: small["learner"].optimizer.learning_rate
    )


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    assert_resumes("Keras_MultiGPU", tmp_path, bits=True)


def test_running_out_of_memory_is_known_for_what_it_is() -> None:
    with pytest.raises(tf.errors.OpError) as caught:
        keras.ops.zeros((1 << 50,), "uint8")
    assert framework.out_of_memory(caught.value)
    assert not framework.out_of_memory(RuntimeError("shape mismatch"))


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    with pytest.raises(UserError, match="tensor cores"):
        framework.configure("tf32", "cpu")


def corners(notebook: dict[str, Any]) -> keras.Model:
    """A model that gives back four pixels of each image, on the notebook's devices."""
    with notebook["strategy"].scope():
        grey = keras.Input((notebook["crop"], notebook["crop"], 1), dtype="uint8")
        return keras.Model(grey, grey[:, 0, :4, 0])


def crops(notebook: dict[str, Any], seed: int, epochs: int = 2) -> np.ndarray:
    """Corner pixels of all crops of some epochs, as the workers hand them to the devices."""
    scaled = notebook["scaled"]
    notebook["scaled"] = replace(scaled, recipe=replace(scaled.recipe, seed=seed))
    try:
        loader = notebook["make_train_loader"]()
        return corners(notebook).predict(loader, steps=epochs * steps_of(notebook), verbose=0)
    finally:
        notebook["scaled"] = scaled


def batches(
    notebook: dict[str, Any], count: int, *, epoch: int = 0, workers: int = 2
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first training batches of a loader that begins with an epoch."""
    before = notebook["pool"]
    with ThreadPoolExecutor(max(workers, 1)) as notebook["pool"]:
        try:
            return list(islice(notebook["make_train_loader"](epoch), count))
        finally:
            notebook["pool"] = before


def evaluated(notebook: dict[str, Any], part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and targets of all images of a part."""
    found = list(notebook["make_evaluation_loader"](part))
    grey, targets = (np.concatenate(piece)[: len(part)] for piece in zip(*found, strict=True))
    return grey[..., 0], targets


def test_the_probe_works(tmp_path: Path) -> None:
    probed.in_own_process("keras", tmp_path, "works")


def test_the_probe_finds_what_is_wrong(tmp_path: Path) -> None:
    probed.in_own_process("keras", tmp_path, "faults")
