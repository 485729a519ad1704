"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

import os
import re
import socket
import subprocess
import sys
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import own_networks
import psutil
import pytest
import torch
from notebook_program import Names, in_each, names_of, own_names
from program_tests import *
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms.v2 import functional as transforms

from helpers import paths, record
from helpers.fairness import custom_network, reference, reference_checks
from helpers.frameworks import pytorch as framework
from helpers.networks import custom
from helpers.networks import pytorch as networks
from helpers.recipe import lookup
from helpers.record import this_notebook

NOTEBOOKS = ("PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel")
TWO = framework.list_devices("cpu", 2)


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


def waits_of(names: Names, *steps: int) -> list[list[str]]:
    """Where it trains: what the host waits for in epochs of so many steps, of a small network."""
    run, r = names["run"], names["run"].recipe
    replica = names["make_replica"](framework.shallow(reference.shallow_arrays(), run.own_devices))
    pixels = np.zeros((4, r.crop, r.crop, 1), np.uint8)
    batch = framework.as_loaded(pixels, np.zeros((4, 14), np.float32), np.arange(4))
    names["train_steps"](replica, repeat(batch, 1), 1)  # makes the optimiser's state
    found = []
    for count in steps:
        with Waits() as waits:
            names["train_steps"](replica, repeat(batch, count), count)
        found.append(waits.found)
    if run.on_gpu:
        torch.cuda.set_sync_debug_mode("error")
        try:
            names["train_step"](replica, *(part.pin_memory() for part in batch[:2]))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return found


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_training_step_never_waits_for_the_device(
    notebook: str, precision: str, tmp_path: Path
) -> None:
    """Zero host synchronisations a step: counted on any machine, enforced by CUDA on a GPU."""
    names = names_of(notebook, tmp_path, precision=precision)
    [(one, three)] = in_each(names, waits_of, 1, 3)
    assert one == three, "the host waits for an epoch, however many its steps"
    assert one


@pytest.fixture
def as_in_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell has said that Gloo listens where other machines reach it."""
    for name, addresses in psutil.net_if_addrs().items():
        if addresses[0].family == socket.AF_INET and not addresses[0].address.startswith("127."):
            monkeypatch.setenv("GLOO_SOCKET_IFNAME", name)


def listening(process: int) -> list[str]:
    return [
        connection.laddr.ip
        for connection in psutil.Process(process).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


def test_launched_processes_listen_to_none_but_this_machine(
    as_in_a_cluster: None, tmp_path: Path
) -> None:
    """Nor does the store at which they meet, in the notebook's process; none has a password."""
    names, notebook = own_names(NOTEBOOKS[0], tmp_path, devices=2), os.getpid()

    def of_both(names: Names) -> tuple[list[str], list[str]]:
        names["dist"].all_reduce(torch.ones(1))
        return listening(os.getpid()), listening(notebook)

    for own, store in in_each(names, of_both):
        assert own and store and all(address.startswith("127.") for address in own + store)


def test_what_is_trained_and_measured_is_laid_out_channels_last(
    notebook: str, tmp_path: Path
) -> None:
    """A network that is not takes other steps, and other memory; all start in one way."""

    def layouts(names: Names) -> list[bool]:
        network = names["make_replica"](names["build_model"]()).network
        kernels = [part.weight for part in network.modules() if isinstance(part, torch.nn.Conv2d)]
        return [each.is_contiguous(memory_format=torch.channels_last) for each in kernels]

    for found in in_each(names_of(notebook, tmp_path, devices=2), layouts):
        assert len(found) == 120 and all(found)


def test_the_pixels_of_the_reference_are_torchvisions() -> None:
    """What every notebook is held against, for the recipe's own sizes too."""
    recipe = lookup("chexnet")
    image = reference_checks.canonical_image(recipe.image_size)
    crop = transforms.center_crop(torch.from_numpy(image).permute(2, 0, 1), [recipe.crop])
    rgb = transforms.to_dtype(crop, scale=True).repeat(3, 1, 1)
    seen = transforms.normalize(rgb, list(recipe.mean), list(recipe.std)).numpy()
    assert np.abs(seen - reference_checks.expected_pixels(image, recipe)).max() < 1e-6


def test_a_resnet_with_another_epsilon_is_caught() -> None:
    assert of_logits(ADAPTER, "resnet44", bn_epsilon=2e-5) == "fail"


def own_gradients(folder: Path, gradients: Any, code: str | None = None) -> Any:
    """The fairness check's row of n devices against one, of a custom network."""
    recipe = own_networks.read(own_networks.recipe_of(folder, "pytorch", code))
    initial = custom.initial(framework, recipe, 5)

    def build_model(arrays: Any) -> Any:
        model = networks.own(recipe, 5)
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


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SHORT_MEASUREMENTS = f"{paths.ROOT / 'tests' / 'short_measurements'}:{paths.ROOT}"


def test_as_a_script_it_trains_in_another_project(notebook: str, tmp_path: Path) -> None:
    """A notebook's cells in a project's folder, with its network and images; started elsewhere."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    recipe = own_networks.recipe_of_classes(project, "pytorch")
    quickly = "batch_size = 8\nlearning_rate = 1e-2\n"
    recipe.write_text(recipe.read_text().partition("optimizer")[0] + quickly)
    cells, tagged = this_notebook.code_cells(paths.NOTEBOOKS / f"{notebook}.ipynb")
    text = "\n\n\n".join([*tagged, *cells])
    launcher = TORCHRUN if notebook == NOTEBOOKS[0] else (sys.executable,)
    devices = "auto" if launcher == TORCHRUN else 2  # a launcher has been told
    for name, value in {"recipe": str(recipe), "devices": devices}.items():
        text, changed = re.subn(rf"^{name} = .*", f"{name} = {value!r}", text, count=1, flags=re.M)
        assert changed, name
    script = project / f"{notebook}.py"
    script.write_text(text)
    environment = {"ROSETTA_RUNS": str(project / "runs"), "PYTHONPATH": SHORT_MEASUREMENTS}
    done = subprocess.run(
        [*launcher, script],
        cwd=elsewhere, env=os.environ | environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (found,) = (project / "runs").rglob(record.FILE)
    content = record.read(found.parent)
    assert content["state"] == "finished" and content["run"]["notebook"] == notebook
    assert content["fairness"]["comparable"] and content["devices"]["count"] == 2
    first, *_, last = content["epochs"]
    assert last["valid_top1"] > 0.9, done.stdout
    assert last["train_loss"] < first["train_loss"] / 2, done.stdout


ADAPTER = OfPrograms(
    framework,
    networks,
    TWO,
    known=frozenset({"gradients, uneven batch, n devices / one"}),
    notebooks=NOTEBOOKS,
    seen=lambda names, pixels: names["to_network"](torch.from_numpy(pixels)).numpy(),
)
