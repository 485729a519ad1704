"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

import numpy as np
import pytest
import torch
from cells import namespace_of
from torchvision.models import densenet121

from helpers import reference, weights
from helpers.frameworks import pytorch as framework

TWO = framework.list_devices("cpu", 2)


@pytest.fixture
def model() -> torch.nn.Module:
    model = densenet121(weights=None, num_classes=14).double()
    framework.load_weights(model, weights.canonical("seeded").arrays)
    return model


def test_weights_come_back_bit_for_bit() -> None:
    model = densenet121(weights=None, num_classes=14)
    initial = weights.canonical("seeded", seed=5)
    framework.load_weights(model, initial.arrays)
    assert weights.digest(framework.dump_weights(model)) == initial.sha256


def test_weights_that_do_not_fit_are_refused() -> None:
    model = densenet121(weights=None, num_classes=14)
    arrays = weights.canonical("seeded").arrays
    arrays["features.odd"] = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match=r"features\.odd"):
        framework.load_weights(model, arrays)


def test_logits_are_the_references(model: torch.nn.Module) -> None:
    images, _ = reference.batch()
    assert np.abs(framework.logits(model, images) - reference.load()["logits"]).max() < 1e-10
    single = framework.logits(model.float(), images.astype(np.float32))
    assert np.abs(single - reference.load()["logits"]).max() < 1e-5


def test_two_devices_give_what_one_gives(model: torch.nn.Module) -> None:
    images, targets = reference.batch()
    loss, found = framework.gradients(model, images, targets, TWO)
    assert loss == pytest.approx(float(reference.load()["loss"]), abs=1e-10)
    for name, error in reference.gradient_errors(found).items():
        assert error < 1e-10, name


def test_losses_are_weighted_by_images() -> None:
    losses = framework.DeviceLosses(TWO)
    losses.add(0, torch.tensor(1.0), 3)
    losses.add(1, torch.tensor(5.0), 1)
    assert losses.mean() == pytest.approx(2.0)


def test_nothing_in_the_accumulator_waits_for_the_device() -> None:
    class Unreadable(torch.Tensor):
        def item(self):  # type: ignore[no-untyped-def]
            raise AssertionError("the loss was pulled to the host inside the loop")

        __float__ = tolist = cpu = item

    losses = framework.DeviceLosses(TWO[:1])
    losses.add(0, torch.tensor(1.0).as_subclass(Unreadable), 2)


def test_devices_and_versions() -> None:
    assert [device.type for device in TWO] == ["cpu", "cpu"]
    assert framework.versions()["torch"] == torch.__version__
    assert framework.skip("virtual devices") is None


def test_no_two_workers_draw_the_same_crops(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The notebook's own loader on images whose every crop is different."""
    first = crops(tmp_path, seed=0)
    assert np.array_equal(first, crops(tmp_path, seed=0)), "the same seed must give the same run"
    assert not np.array_equal(first, crops(tmp_path, seed=1))
    assert len(np.unique(first, axis=0)) > 0.9 * len(first)


def crops(folder, seed: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Corner pixels of all crops the notebook's training loader draws from one repeated image."""
    cells = namespace_of("PyTorch_MultiGPU", folder)
    framework.seed(seed)
    loader = cells["make_train_loader"](0)
    assert loader.num_workers >= 1
    return np.concatenate([images[:, 0, 0, :4].numpy() for images, _ in loader])
