"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

import os
import socket
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import copied
import numpy as np
import own_networks
import psutil
import pytest
import rules
import same_networks
import torch
import torch.distributed as dist
from adapter import *
from adapter import Adapter
from agreed import (
    steps_of,
)
from examples import assert_examples_deliver
from notebook_cells import (
    CHECKED,
    failed,
    failed_in_training_loop,
    namespace_of,
    write_noise_images,
)
from resuming import assert_own_resumes
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.models import densenet121
from torchvision.transforms.v2 import functional as transforms

import data_prep
from data_prep import FINDINGS
from helpers.errors import UserError
from helpers.fairness import custom_network, reference, reference_checks
from helpers.frameworks import pytorch as framework
from helpers.frameworks import replicas
from helpers.networks import custom, weights
from helpers.networks import pytorch as networks
from helpers.recipe import lookup
from helpers.training.train_loop import take_steps
from helpers.training.world import World

NOTEBOOKS = ("PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss")
TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module", params=NOTEBOOKS)
def cells(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    """A notebook's names for two virtual devices, before it trains."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of(request.param, folder, devices=2, until=CHECKED)


OWN_STATISTICS = {
    "PyTorch_MultiGPU": ("    share_statistics(replica)\n", ""),
    "PyTorch_MultiGPU_Exp_Loss": ("b.clone()", "torch.zeros_like(b)"),
}
"""What a notebook says and what a wrong one would, whose replicas validate with their own."""


def test_validating_with_other_statistics_than_are_saved_is_caught(cells: dict[str, Any]) -> None:
    notebook = cells["this_run"].record.content["run"]["notebook"]
    found = failed_in_training_loop(cells, notebook, *OWN_STATISTICS[notebook])
    assert found == {"validated with the statistics that are saved"}


@pytest.mark.parametrize(
    "fault",
    [
        lambda plane, crop: transforms.resize(plane, [crop, crop]),
        lambda plane, crop: transforms.center_crop(plane.roll(1, dims=-1), [crop, crop]),
    ],
    ids=["resized", "shifted"],
)
def test_other_pixels_are_caught(cells: dict[str, Any], fault: Any) -> None:
    def pixels(grey: np.ndarray) -> np.ndarray:
        planes = torch.from_numpy(grey).permute(2, 0, 1)[None]
        faulty = fault(planes, cells["scaled"].recipe.crop).permute(0, 2, 3, 1)
        return cells["to_network"](faulty).squeeze(0).numpy()

    checks = reference_checks.same_inputs(pixels, FINDINGS, FINDINGS, cells["scaled"])
    assert failed(checks) == {"evaluation pixels"}


def test_weights_come_back_bit_for_bit() -> None:
    model = densenet121(weights=None, num_classes=14)
    initial = weights.canonical("random", seed=5)
    framework.load_weights(model, initial.arrays)
    assert weights.digest(framework.dump_weights(model)) == initial.sha256


def test_a_stride_in_the_wrong_convolution_is_caught() -> None:
    """The image is halved in Caffe's convolution, a block's first. The weights fit."""

    def spoil(model: Any) -> None:
        block = model.layer2[0]
        block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)

    same_networks.assert_caught(framework, networks, "resnet50", TWO[:1], spoil=spoil)


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
    assert framework.SKIPPED.get("virtual devices") is None


def corners(
    notebook: str, folder: Path, *, epoch: int, epochs: int = 1, workers: int = 2, **given: Any
) -> Any:
    """Corner pixels of all crops of an epoch, of one repeated image; and the labels."""
    cells = namespace_of(notebook, folder, **given)
    world = World(0, 1, cells["this_run"].devices, "cpu")
    loader = cells["make_train_loader"](world, epoch - 1, workers)
    batches = list(islice(loader, epochs * steps_of(cells)))
    if notebook == "PyTorch_MultiGPU_Exp_Loss":  # a share for each device
        batches = [share for (share,) in batches]
    assert all(images.dtype == torch.uint8 for images, _ in batches)
    return (
        np.concatenate([images[:, 0, :4, 0].numpy() for images, _ in batches]),
        np.concatenate([targets.numpy() for _, targets in batches]),
    )


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_what_is_drawn_depends_on_seed_epoch_and_image_alone(notebook: str, tmp_path: Path) -> None:
    first, labels = corners(notebook, tmp_path, epoch=1)
    again, same_labels = corners(notebook, tmp_path, epoch=1, workers=1)
    assert np.array_equal(first, again) and np.array_equal(labels, same_labels)
    both, _ = corners(notebook, tmp_path, epoch=1, epochs=2)
    second, other_labels = corners(notebook, tmp_path, epoch=2)
    assert np.array_equal(both, np.concatenate([first, second]))
    assert not np.array_equal(first, second) and not np.array_equal(labels, other_labels)
    assert not np.array_equal(first, corners(notebook, tmp_path, epoch=1, seed=1)[0])
    assert len(np.unique(first, axis=0)) > 0.6 * len(first)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_packed_images_give_the_batches_of_their_files(notebook: str, tmp_path: Path) -> None:
    data_prep.pack_folder(write_noise_images(tmp_path), tmp_path / "packed", progress=False)
    files = corners(notebook, tmp_path, epoch=3)
    packed = corners(notebook, tmp_path, epoch=3, data=str(tmp_path / "packed"))
    assert all(np.array_equal(a, b) for a, b in zip(files, packed, strict=True))


AS_EVER = dict(zip(NOTEBOOKS, ("c563ffcb88a9f71b", "0e3b5f4776bf6d18"), strict=True))
"""Digests of the first batch that PNGs give on two devices."""
IN_COLOUR = dict(zip(NOTEBOOKS, ("420237e344108b20", "8d6af1c9b02923dc"), strict=True))
"""The same of PNGs in colour."""


def evaluated(cells: dict[str, Any], part: Any) -> list[np.ndarray]:
    """Pixels and targets of all images of a part."""
    return together(cells, cells["make_evaluation_loader"](one_world(cells), part, 2))


def first_batch(cells: dict[str, Any]) -> list[np.ndarray]:
    return together(cells, islice(cells["make_train_loader"](one_world(cells), 0, 2), 1))


def one_world(cells: dict[str, Any]) -> World:
    return World(0, 1, cells["this_run"].devices[:1], "cpu")


def together(cells: dict[str, Any], batches: Any) -> list[np.ndarray]:
    """All batches in one, those of the only device."""
    each = [batch[0] if isinstance(batch[0], tuple) else batch for batch in batches]
    return [np.concatenate([part.numpy() for part in parts]) for parts in zip(*each, strict=True)]


def test_its_documented_loaders_deliver_what_the_benchmark_times(tmp_path: Path) -> None:
    assert_examples_deliver("pytorch", tmp_path)


class Waits(TorchDispatchMode):
    """Counts the operations for which the host would wait for a GPU.

    Those that hand a value to Python, and tensors made of Python's values (lift_fresh): copied from
    memory that is not pinned, they hold up the host until the device has them.
    """

    NAMES = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select", "lift_fresh")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.split(".")[0] in self.NAMES:
            self.found.append(func.__name__)
        return func(*args, **(kwargs or {}))


def waits_of(notebook: str, folder: Path, precision: str, *steps: int) -> list[list[str]]:
    """What the host waited for in epochs of so many steps, of a small network."""
    names = namespace_of(notebook, folder, until=CHECKED, checked=False, precision=precision)

    def replica(world: World, work: Any) -> list[list[str]]:
        network = framework.shallow(reference.shallow_arrays(), world.devices)
        replica = work.functions.start(world, network)
        loader = work.functions.make_fixed_loader(world, work.noise(world, 4))
        take_steps(work, replica, loader, 1)  # makes the optimiser's state
        found = []
        for count in steps:
            with Waits() as waits:
                take_steps(work, replica, loader, count)
            found.append(waits.found)
        if world.on_gpu:
            batch = next(loader)
            torch.cuda.set_sync_debug_mode("error")
            try:
                names["train_step"](replica, *(batch if notebook == NOTEBOOKS[0] else [batch]))
            finally:
                torch.cuda.set_sync_debug_mode("default")
        work.functions.stop(replica)
        return found

    found: list[list[str]] = names["this_run"].everywhere(replica)[0]
    return found


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_training_step_never_waits_for_the_device(
    notebook: str, precision: str, tmp_path: Path
) -> None:
    """Zero host synchronisations a step: counted on any machine, enforced by CUDA on a GPU."""
    one, three = waits_of(notebook, tmp_path, precision, 1, 3)
    assert one == three, "the host waits for an epoch, however many its steps"
    assert one


def test_replicas_listen_to_none_but_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gloo asks for no password, and where it listens the shell may have set for a cluster."""
    for name, addresses in psutil.net_if_addrs().items():
        if addresses[0].family == socket.AF_INET and not addresses[0].address.startswith("127."):
            monkeypatch.setenv("GLOO_SOCKET_IFNAME", name)

    def replica(rank: int) -> list[str]:
        dist.init_process_group(
            "gloo", init_method=os.environ[replicas.RENDEZVOUS], rank=rank, world_size=2
        )
        dist.all_reduce(torch.ones(1))
        listening = [
            connection.laddr.ip
            for connection in psutil.Process().net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        dist.destroy_process_group()
        return listening

    for listening in replicas.run(replica, 2):
        assert listening and all(address.startswith("127.") for address in listening)


def test_what_is_trained_and_measured_is_laid_out_channels_last(cells: dict[str, Any]) -> None:
    """A network that is not takes other steps, and other memory; all start in one way."""

    def layouts(world: World, work: Any, replica: Any) -> list[bool]:
        weights = [
            part.weight for part in replica.network.modules() if isinstance(part, torch.nn.Conv2d)
        ]
        return [weight.is_contiguous(memory_format=torch.channels_last) for weight in weights]

    for found in cells["this_run"].with_replica(layouts, cells["initial"].arrays):
        assert len(found) == 120 and all(found)


def test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one(tmp_path: Path) -> None:
    """Own network, own reader, classes, momentum, warm-up and drops."""
    recipe = own_networks.recipe_of_classes(tmp_path / "recipe", "pytorch")
    assert_own_resumes("PyTorch_MultiGPU", tmp_path, recipe)


def test_adam_is_where_it_was() -> None:
    def trained(steps: int, begin: dict[str, np.ndarray]) -> tuple[Any, Any]:
        model = framework.shallow(start, TWO[:1])
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        framework.load_optimizer(model, optimizer, begin)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 3, 32, 32)).square().mean().backward()
            optimizer.step()
        return model, optimizer

    start = reference.shallow_arrays()
    model, optimizer = trained(2, {})
    state = framework.dump_optimizer(model, optimizer)
    assert state["step"] == 2 and len(state) == 1 + 2 * len(list(model.parameters()))
    again, continued = trained(0, state)
    assert all(
        np.array_equal(value, state[name])
        for name, value in framework.dump_optimizer(again, continued).items()
    )


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    with pytest.raises(UserError, match="tensor cores"):
        framework.configure("tf32", "cpu")


def test_the_pixels_of_the_reference_are_torchvisions() -> None:
    """What every notebook is held against, for the recipe's own sizes too."""
    recipe = lookup("chexnet")
    image = reference_checks.canonical_image(recipe.image_size)
    crop = transforms.center_crop(torch.from_numpy(image).permute(2, 0, 1), [recipe.crop])
    rgb = transforms.to_dtype(crop, scale=True).repeat(3, 1, 1)
    seen = transforms.normalize(rgb, list(recipe.mean), list(recipe.std)).numpy()
    assert np.abs(seen - reference_checks.expected_pixels(image, recipe)).max() < 1e-6


def one_hot_sigmoids(sound: Any) -> Any:
    def criterion(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        one_hot = torch.nn.functional.one_hot(targets, output.shape[1]).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(output, one_hot)

    return criterion


@pytest.mark.slow  # the loss of findings is caught every day
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_wrong_loss_of_classes_is_caught(notebook: str, tmp_path: Path) -> None:
    rules.assert_wrong_losses_of_classes_are_caught(
        notebook,
        tmp_path,
        sigmoids=one_hot_sigmoids,
        a_sum=lambda sound: torch.nn.CrossEntropyLoss(reduction="sum"),
    )


def own_gradients(folder: Path, gradients: Any, code: str | None = None) -> Any:
    """The fairness check's row of n devices against one, of somebody's own network."""
    recipe = own_networks.read(own_networks.recipe_of(folder, "pytorch", code))
    initial = custom.initial(framework, recipe, 5)

    def build_model(arrays: Any) -> Any:
        model = networks.build("own", arrays, recipe, 5)
        framework.load_weights(model, arrays)
        return model

    module = SimpleNamespace(exact=framework.exact, gradients=gradients, shallow=framework.shallow)
    return custom_network.same_on_all_devices(module, build_model, initial, TWO, recipe, 5)[0]


def test_an_own_networks_gradients_that_are_summed_are_caught(tmp_path: Path) -> None:
    def summed(model: Any, images: Any, targets: Any, devices: Any) -> Any:
        loss, found = framework.gradients(model, images, targets, devices[:1])
        return loss, {name: len(devices) * array for name, array in found.items()}

    row = own_gradients(tmp_path, summed)
    assert row.verdict == "fail" and "2 times as long: a sum" in str(row.reason)
    sound = own_gradients(tmp_path, framework.gradients)
    assert (sound.verdict, sound.threshold) == ("pass", 1e-10)


def test_an_own_network_that_knows_no_float64_is_checked_in_float32(tmp_path: Path) -> None:
    code = own_networks.NETS["pytorch"].replace("forward(self, x):", "forward(self, x, *none):")
    code = code.replace("self.features(x)", "self.features(x.float())")
    row = own_gradients(tmp_path, framework.gradients, code)
    assert (row.verdict, row.threshold) == ("pass", 1e-2)
    assert row.difference is not None and 0 < row.difference < 1e-4
    said = "a mean, not a sum; computed in float32, for in float64 it fails: RuntimeError: "
    assert said in str(row.reason)


def test_an_own_network_that_takes_more_or_gives_another_shape_is_one_line(tmp_path: Path) -> None:
    given = own_networks.NETS["pytorch"].replace("forward(self, x):", "forward(self, x, more):")
    said = "TypeError: Net.forward() missing 1 required positional argument: 'more'"
    own_networks.assert_one_line(networks, "pytorch", tmp_path / "more", given, said)
    maps = own_networks.NETS["pytorch"].replace("return self.head(", "return (")
    said = "its network returns [2, 16]: give 5 logits"
    own_networks.assert_one_line(networks, "pytorch", tmp_path / "maps", maps, said)


ADAPTER = Adapter(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: torch.tensor(number),
    evaluated=evaluated,
    first_batch=first_batch,
    grey=AS_EVER,
    colour=IN_COLOUR,
    known=frozenset({"gradients, uneven batch, n devices / one"}),
)


def test_its_cells_train_in_another_project(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    launcher = (*torchrun, "--nproc-per-node", "2")
    copied.assert_trains("PyTorch_MultiGPU", tmp_path / "other", launcher)


def test_the_cells_of_exp_loss_train_in_another_project(tmp_path: Path) -> None:
    copied.assert_trains("PyTorch_MultiGPU_Exp_Loss", tmp_path / "other")
