"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

import json
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from cells import namespace_of

from helpers import paths, reference, weights
from helpers.frameworks import tensorflow as framework

TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the notebook defines up to its model, on two virtual devices."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of("TensorFlow_MultiGPU", folder, devices=2, until="## 7.")


@pytest.fixture(scope="module")
def exact(notebook: dict[str, Any]) -> tf.Module:
    """The notebook's network in float64."""
    with notebook["strategy"].scope():
        model = notebook["DenseNet121"](tf.float64)
    framework.load_weights(model, weights.canonical("seeded").arrays)
    return model


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


def test_logits_are_the_references(notebook: dict[str, Any], exact: tf.Module) -> None:
    images, _ = reference.batch()
    assert np.abs(framework.logits(exact, images) - reference.load()["logits"]).max() < 1e-10
    single = framework.logits(notebook["model"], images.astype(np.float32))
    assert np.abs(single - reference.load()["logits"]).max() < 1e-5


def test_training_logits_are_the_references(notebook: dict[str, Any]) -> None:
    images, _ = reference.batch()
    model = notebook["model"]
    before = framework.dump_weights(model)
    found = model(tf.constant(images.transpose(0, 2, 3, 1), tf.float32), training=True)
    framework.load_weights(model, before)
    assert np.abs(found.numpy() - reference.load()["train logits"]).max() < 1e-4


def test_two_devices_give_what_one_gives(exact: tf.Module) -> None:
    images, targets = reference.batch()
    for devices in (TWO[:1], TWO):
        loss, found = framework.gradients(exact, images, targets, devices)
        assert loss == pytest.approx(float(reference.load()["loss"]), abs=1e-10)
        for name, error in reference.gradient_errors(found).items():
            assert error < 1e-10, (name, devices)


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


def test_every_image_is_evaluated_once(notebook: dict[str, Any]) -> None:
    part = notebook["images"].train.iloc[:130]  # two images into a second batch of 128
    counted = 0.0
    for _, _, counts in notebook["make_evaluation_loader"](part):
        parts = notebook["strategy"].experimental_local_results(counts)
        assert [len(share) for share in parts] == [64, 64]  # fixed shapes: one trace
        counted += sum(float(tf.reduce_sum(share)) for share in parts)
    assert counted == len(part)


def cell_with(notebook: str, text: str) -> str:
    """The source of the notebook's one cell that holds ``text``."""
    content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    (found,) = (s for s in ("".join(c["source"]) for c in content["cells"]) if text in s)
    return found


def adam(gradients: list[np.ndarray], scaled: Any) -> np.ndarray:
    """Ones after PyTorch's Adam (torch.optim.Adam's documented algorithm), in float64."""
    (beta1, beta2), epsilon = scaled.recipe.adam_betas, scaled.recipe.adam_epsilon
    weight, first, second = np.ones(3), np.zeros(3), np.zeros(3)
    for step, gradient in enumerate(gradients, start=1):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient.astype(np.float64) ** 2
        root = np.sqrt(second / (1 - beta2**step)) + epsilon
        weight = weight - scaled.learning_rate * first / (1 - beta1**step) / root
    return weight


def crops(notebook: dict[str, Any], seed: int, epochs: int = 2) -> np.ndarray:
    """Corner pixels of all crops of some epochs."""
    scaled = notebook["scaled"]
    notebook["scaled"] = replace(scaled, recipe=replace(scaled.recipe, seed=seed))
    try:
        loader = iter(notebook["make_train_loader"]())
        batches = [grey for grey, _ in islice(loader, epochs * notebook["steps"])]
    finally:
        notebook["scaled"] = scaled
    shares = [s for b in batches for s in notebook["strategy"].experimental_local_results(b)]
    return np.concatenate([share.numpy()[:, 0, :4, 0] for share in shares])
