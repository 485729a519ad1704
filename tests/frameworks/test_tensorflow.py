"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

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
    failed_in_rehearsal,
    namespace_of,
)
from mirrored import assert_climbs, tuned
from resuming import assert_resumes

from helpers import reference, weights
from helpers.errors import UserError
from helpers.frameworks import tensorflow as framework

TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebook's names on two virtual devices, before it trains."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of("TensorFlow_MultiGPU", folder, devices=2, until=CERTIFIED)


def test_weights_come_back_bit_for_bit(notebook: dict[str, Any]) -> None:
    initial = weights.canonical("seeded", seed=0)
    assert weights.digest(framework.dump_weights(notebook["model"])) == initial.sha256


def test_weights_that_do_not_fit_are_refused() -> None:
    layer = tf.Module()
    layer.kernel = tf.Variable(tf.zeros((3, 2)), name="classifier.weight")
    with pytest.raises(ValueError, match=r"classifier\.odd"):
        framework.load_weights(
            layer, {"classifier.weight": np.zeros((2, 3)), "classifier.odd": np.zeros(1)}
        )
    with pytest.raises(ValueError, match=r"classifier\.weight"):
        framework.load_weights(layer, {"classifier.weight": np.zeros((3, 2))})


def test_the_certificate_is_passed(notebook: dict[str, Any]) -> None:
    assert_passed(notebook["certificate"])


def test_a_sum_in_place_of_a_mean_is_caught(notebook: dict[str, Any]) -> None:
    divided = "loss / strategy.num_replicas_in_sync"
    found = failed_in_rehearsal(notebook, "TensorFlow_MultiGPU", divided, "loss")
    assert "way of 5 SGD steps" in found


def test_a_validation_with_every_replicas_own_statistics_is_caught(
    notebook: dict[str, Any],
) -> None:
    shared, kept = "share_statistics(model)\n    return", "return"
    found = failed_in_rehearsal(notebook, "TensorFlow_MultiGPU", shared, kept)
    assert found == {"validated with the statistics that are saved"}


def test_the_notebooks_adam_is_pytorchs(notebook: dict[str, Any]) -> None:
    """Gradients so small that it shows where epsilon is added."""
    names = dict(notebook)
    exec(cell_with("TensorFlow_MultiGPU", "class Adam("), names)
    strategy = notebook["strategy"]
    model, gradients = tf.Module(), [np.array([1e-7, -3e-8, 0.5], np.float32) * n for n in (1, 2)]
    with strategy.scope():
        model.weight = tf.Variable(np.ones(3, np.float32), name="weight")
    optimizer = names["make_optimizer"](model)
    for gradient in gradients:
        strategy.run(optimizer, args=([tf.constant(gradient)],))
    assert np.allclose(model.weight.numpy(), adam(gradients, notebook["scaled"]), atol=1e-7)


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
    assert framework.versions()["tensorflow"] == tf.__version__
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
    before = threads()
    stream = notebook["training_batches"](2)
    assert len(next(stream)[0]) == notebook["scaled"].global_batch
    assert threads() > before
    stream.close()
    assert threads() == before


def test_every_image_is_evaluated_once(notebook: dict[str, Any]) -> None:
    part = notebook["images"].train.iloc[:130]  # two images into a second batch of 128
    counted = 0.0
    for _, _, counts in notebook["make_evaluation_loader"](part):
        parts = notebook["strategy"].experimental_local_results(counts)
        assert [len(share) for share in parts] == [64, 64]  # fixed shapes: one trace
        counted += sum(float(tf.reduce_sum(share)) for share in parts)
    assert counted == len(part)


@pytest.fixture(params=["bf16", "fp16"])
def lower(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The notebook's names up to its training loop, in a precision of 16 bits."""
    until = "rehearsal.certify("
    return namespace_of(
        "TensorFlow_MultiGPU", tmp_path, devices=2, until=until, precision=request.param
    )


def test_the_rehearsal_is_passed_in_16_bits(lower: dict[str, Any]) -> None:
    exec(cell_with("TensorFlow_MultiGPU", "rehearsal.certify("), lower)
    assert lower["certificate"].comparable
    shallow = framework.shallow(reference.shallow_arrays(), TWO)
    output = shallow(tf.zeros((2, 32, 32, 3), lower["compute"]), training=True)
    assert output.dtype == tf.float32 and lower["compute"].size == 2


def test_a_step_that_overflows_is_left_out(tmp_path: Path) -> None:
    names = namespace_of(
        "TensorFlow_MultiGPU",
        tmp_path,
        devices=2,
        until="rehearsal.certify(",
        precision="fp16",
    )
    with names["strategy"].scope():
        model = framework.shallow(reference.shallow_arrays(), TWO)
    optimizer = names["make_optimizer"](model)
    optimizer.loss_scale.assign(2.0**120)
    before = framework.dump_weights(model)
    names["train_step"](model, *names["make_synthetic_batch"](2), optimizer)
    assert float(optimizer.loss_scale.numpy()) == 2.0**119
    assert framework.dump_optimizer(model, optimizer)["step"] == 0
    after = framework.dump_weights(model)
    assert np.array_equal(after["classifier.weight"], before["classifier.weight"])


def test_adam_is_where_it_was(notebook: dict[str, Any]) -> None:
    def made() -> tuple[Any, Any]:
        with notebook["strategy"].scope():
            model = framework.shallow(reference.shallow_arrays(), TWO)
        return model, notebook["make_optimizer"](model)

    model, optimizer = made()
    framework.load_optimizer(model, optimizer, {})
    batch = notebook["make_synthetic_batch"](2)
    notebook["train_epoch"](model, [batch] * 2, optimizer)
    state = framework.dump_optimizer(model, optimizer)
    assert state["step"] == 2 and len(state) == 1 + 2 * len(model.trainable_variables)
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again, continued = made()
    framework.load_optimizer(again, continued, state)
    found = framework.dump_optimizer(again, continued)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0


@pytest.fixture
def small(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The notebook's names with a shallow network in place of its own."""
    before, start = dict(notebook), reference.shallow_arrays()
    with notebook["strategy"].scope():
        notebook["model"] = framework.shallow(start, TWO)
    notebook["initial"] = replace(notebook["initial"], arrays=start)
    yield notebook
    if "monitor" in notebook:
        notebook["monitor"].stop()
    notebook.clear()
    notebook.update(before)


def test_nothing_that_is_iterated_is_tuned(
    notebook: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iterator that ends would wait for the thread that tunes it."""
    found = tuned(monkeypatch)
    next(iter(notebook["make_train_loader"]()))
    for _ in notebook["make_evaluation_loader"](notebook["images"].valid):
        pass
    assert found == [False] * 2 * (1 + len(TWO)), "each loader, and what it has on each device"


def test_a_batch_that_does_not_fit_is_halved(small: dict[str, Any]) -> None:
    """The notebook's own search and training, with a small network and a small memory."""
    train_step = small["train_step"]

    def limited(model: Any, grey: Any, *rest: Any) -> Any:
        if len(small["on_each"](grey)[0]) > 16:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return train_step(model, grey, *rest)

    small["setup"] = replace(small["setup"], search_batch=True)
    small["train_step"] = limited
    exec(cell_with("TensorFlow_MultiGPU", CERTIFIED), small)
    scaled, history = small["scaled"], small["history"]
    assert (scaled.recipe.batch, scaled.global_batch) == (16, 32)
    assert history[-1]["images"] == 32 * steps_of(small) > 32
    assert history[-1]["learning_rate"] == pytest.approx(scaled.learning_rate)
    taken = framework.dump_optimizer(small["model"], small["optimizer"])["step"]
    assert taken == scaled.recipe.epochs * steps_of(small), "the trial's step is forgotten"


def test_the_learning_rate_climbs_step_by_step(
    small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_climbs(
        "TensorFlow_MultiGPU", small, monkeypatch, lambda: small["optimizer"].learning_rate
    )


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    assert_resumes("TensorFlow_MultiGPU", tmp_path, bits=True)


def test_running_out_of_memory_is_known_for_what_it_is() -> None:
    with pytest.raises(tf.errors.OpError) as caught:
        tf.zeros((1 << 50,), tf.uint8)
    assert framework.out_of_memory(caught.value)
    assert not framework.out_of_memory(RuntimeError("shape mismatch"))


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    with pytest.raises(UserError, match="tensor cores"):
        framework.configure("tf32", "cpu")


def test_float32_is_float32() -> None:
    framework.configure("tf32", "gpu")
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    framework.configure("fp32", "cpu")
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def crops(notebook: dict[str, Any], seed: int, epochs: int = 2) -> np.ndarray:
    """Corner pixels of all crops of some epochs."""
    scaled = notebook["scaled"]
    notebook["scaled"] = replace(scaled, recipe=replace(scaled.recipe, seed=seed))
    try:
        loader = iter(notebook["make_train_loader"]())
        batches = [grey for grey, _ in islice(loader, epochs * steps_of(notebook))]
    finally:
        notebook["scaled"] = scaled
    shares = [s for b in batches for s in notebook["strategy"].experimental_local_results(b)]
    return np.concatenate([share.numpy()[:, 0, :4, 0] for share in shares])


def batches(
    notebook: dict[str, Any], count: int, *, epoch: int = 0, workers: int = 2
) -> list[tuple[np.ndarray, ...]]:
    """The first training batches of a loader that begins with an epoch."""
    before = notebook["workers"]
    notebook["workers"] = workers
    try:
        loader = notebook["make_train_loader"](epoch)
        return [joined(notebook, batch) for batch in islice(loader, count)]
    finally:
        notebook["workers"] = before


def evaluated(notebook: dict[str, Any], part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and targets of all images of a part."""
    found = [joined(notebook, batch) for batch in notebook["make_evaluation_loader"](part)]
    grey, targets, _ = (np.concatenate(piece)[: len(part)] for piece in zip(*found, strict=True))
    return grey[..., 0], targets


def joined(notebook: dict[str, Any], batch: Any) -> tuple[np.ndarray, ...]:
    """A batch that is spread over the devices."""
    on_each = notebook["strategy"].experimental_local_results
    return tuple(np.concatenate([share.numpy() for share in on_each(part)]) for part in batch)


def threads() -> int:
    """Threads of this process, TensorFlow's among them."""
    return len(list(Path("/proc/self/task").iterdir()))


def test_the_probe_works(tmp_path: Path) -> None:
    probed.in_own_process("tensorflow", tmp_path, "works")


def test_the_probe_finds_what_is_wrong(tmp_path: Path) -> None:
    probed.in_own_process("tensorflow", tmp_path, "faults")
