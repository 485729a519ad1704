"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from typing import Any

import numpy as np
import pytest
import torch
from cells import CERTIFIED, assert_passed, failed, namespace_of
from torchvision.models import densenet121
from torchvision.transforms.v2 import functional as transforms

from data_prep import FINDINGS
from helpers import fairness, weights
from helpers.frameworks import pytorch as framework
from helpers.recipe import lookup

TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module", params=["PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"])
def cells(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    """A notebook's names for two virtual devices, before it trains."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of(request.param, folder, devices=2, until=CERTIFIED)


def test_the_certificate_is_passed(cells: dict[str, Any]) -> None:
    assert_passed(cells["certificate"], known={"gradients, uneven batch, n devices / one"})


@pytest.mark.parametrize(
    "fault",
    [
        lambda grey, crop: transforms.resize(grey, [crop, crop]),
        lambda grey, crop: transforms.center_crop(grey.roll(1, dims=-1), [crop, crop]),
    ],
    ids=["resized", "shifted"],
)
def test_other_pixels_are_caught(cells: dict[str, Any], fault: Any) -> None:
    def pixels(grey: np.ndarray) -> np.ndarray:
        faulty = fault(torch.from_numpy(grey)[None, None], cells["scaled"].recipe.crop)
        return cells["to_network"](faulty).squeeze(0).numpy()

    checks = fairness.same_inputs(pixels, FINDINGS, cells["scaled"])
    assert failed(checks) == {"evaluation pixels"}


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


def test_the_pixels_of_the_reference_are_torchvisions() -> None:
    """What every notebook is held against, for the recipe's own sizes too."""
    recipe = lookup("chexnet")
    image = fairness.canonical_image(recipe.resized)
    crop = transforms.center_crop(torch.from_numpy(image)[None], [recipe.crop])
    rgb = transforms.to_dtype(crop, scale=True).repeat(3, 1, 1)
    seen = transforms.normalize(rgb, list(recipe.mean), list(recipe.std)).numpy()
    assert np.abs(seen - fairness.expected_pixels(image, recipe)).max() < 1e-6
