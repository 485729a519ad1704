"""What training needs of a device's memory, by the shapes of its network."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from helpers.frameworks import devices as device_helpers
from helpers.frameworks import memory
from helpers.frameworks.devices import Devices
from helpers.networks import shapes
from helpers.recipe import Recipe, lookup
from helpers.training import memory_estimate

PARAMETERS = 6_968_206
"""The parameters of DenseNet121 with 14 outputs."""
GPU, GPUS = Devices("gpu", ("NVIDIA H100",)), Devices("gpu", ("NVIDIA H100",) * 3, 2)
RECIPE = lookup("chexnet")


def bytes_of(recipe: Recipe, devices: Devices = GPU) -> int:
    found = memory_estimate.of_device(recipe, 14, devices)
    assert found is not None
    return found


def test_a_batch_needs_weights_gradients_moments_and_activations() -> None:
    running = sum(
        shape[0] for name, shape in shapes.shapes().items() if name.endswith(shapes.RUNNING)
    )
    activations = shapes.activations("densenet121", 14, 224)
    fixed = 4 * (4 * PARAMETERS + running)
    assert bytes_of(RECIPE) == fixed + 64 * 4 * activations
    assert bytes_of(RECIPE.with_batch_size(1)) == fixed + 4 * activations
    assert bytes_of(replace(RECIPE, precision="tf32")) == fixed + 64 * 4 * activations
    for precision in ("bf16", "fp16"):
        assert bytes_of(replace(RECIPE, precision=precision)) == fixed + 64 * 2 * activations


def test_an_optimiser_needs_as_much_as_it_keeps() -> None:
    momentum = replace(RECIPE, optimizer="sgd", momentum=0.9)
    assert bytes_of(RECIPE) - bytes_of(momentum) == 4 * PARAMETERS
    assert bytes_of(RECIPE) - bytes_of(replace(momentum, momentum=0.0)) == 8 * PARAMETERS


def test_replicas_that_share_a_gpu_need_its_memory_together() -> None:
    assert bytes_of(RECIPE, GPUS) == 2 * bytes_of(RECIPE)  # three on two: one GPU has two


def test_of_an_own_network_it_is_not_known() -> None:
    own = replace(RECIPE, network="own")
    assert memory_estimate.of_device(own, 14, GPU) is None
    (said,) = memory_estimate.lines(None, own, GPU)
    assert said.endswith("is not known for your own network.")


@pytest.mark.parametrize(("there", "warns"), [(79, True), (80, False), (None, False)])
def test_a_gpu_with_less_memory_is_warned_of_once(
    there: int | None, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_helpers, "used", lambda *_: [SimpleNamespace(uuid="GPU-0")])
    size = None if there is None else there * 2**30
    monkeypatch.setattr(memory, "of_smallest_gpu", lambda uuids: size)
    said, *warnings = memory_estimate.lines(80 * 2**30, RECIPE, GPU)
    assert said.startswith("Training needs about 80 GiB on each device for weights, gradients")
    assert "the activations of 64 images" in said
    assert [line.startswith("warning: ") for line in warnings] == [True] * warns
    assert all("80 GiB on each device, and a GPU has 79 GiB: lower" in line for line in warnings)
