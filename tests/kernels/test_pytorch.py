"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import copied
import notebook_program
import numpy as np
import own_networks
import psutil
import pytest
import rules
import same_networks
import shared_batches
import torch
import torch.distributed as dist
from examples import assert_examples_deliver
from framework_tests import *
from framework_tests import OfFramework
from notebook_cells import failed, recipe_of_resnet44, write_different_images
from notebook_program import Names, fairness_check, in_each, names_of
from resuming import assert_own_resumes, assert_resumes
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.models import densenet121
from torchvision.transforms.v2 import functional as transforms

from helpers.errors import LoaderError, UserError
from helpers.fairness import custom_network, process_checks, reference, reference_checks
from helpers.fairness import training_loop as loop_checks
from helpers.fairness.check_results import FairnessCheck
from helpers.frameworks import pytorch as framework
from helpers.frameworks import replicas
from helpers.networks import custom, weights
from helpers.networks import pytorch as networks
from helpers.networks.shapes import shapes
from helpers.recipe import lookup
from helpers.runner.notebook_code import run_cells
from helpers.training import checkpoint

NOTEBOOKS = ("PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss")
TWO = framework.list_devices("cpu", 2)


PROGRAM = notebook_program.__file__
KNOWN = "gradients, uneven batch, n devices / one"


def assert_passed(found: FairnessCheck) -> None:
    """Nothing failed or was left unchecked, and one row differs for a known reason."""
    assert failed(found.checks) == set()
    assert {check.check for check in found.checks if check.verdict == "expected"} == {KNOWN}
    assert "not checked" not in {check.verdict for check in found.checks}
    assert found.comparable


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_the_fairness_check_is_passed(notebook: str, tmp_path: Path) -> None:
    found = fairness_check(names_of(notebook, tmp_path, devices=2))
    assert_passed(found)
    reasons = {check.check: check.reason for check in found.checks}
    assert reasons["which replica's running statistics are kept"] == "replica 0's"


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_it_trains_the_recipes_network(notebook: str, tmp_path: Path) -> None:
    """Not only the one that its text names."""
    names = names_of(notebook, tmp_path, devices=2, recipe=recipe_of_resnet44(tmp_path))
    found = fairness_check(names)
    assert_passed(found)
    same_networks.assert_in_double(found.checks)
    assert "gradient of layer3.6.bn2" in {check.check for check in found.checks}
    held = framework.dump_weights(names["build_model"]())
    assert {name: array.shape for name, array in held.items()} == shapes("resnet44")


def own_names(notebook: str, folder: Path, **given: Any) -> Names:
    """The names of a notebook with a small custom network, whose check takes no time."""
    recipe = own_networks.recipe_of(folder / "recipe", "pytorch")
    return names_of(notebook, folder, recipe=str(recipe), **given)


OWN_STATISTICS = {
    "PyTorch_MultiGPU": {
        "        dist.broadcast(statistic, 0)  # multi-GPU\n": "        pass\n",
    },
    "PyTorch_MultiGPU_Exp_Loss": {"b.clone()": "torch.zeros_like(b)"},
}
"""What a notebook says and what a wrong one would, whose replicas validate with their own."""


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_validating_with_other_statistics_than_are_saved_is_caught(
    notebook: str, tmp_path: Path
) -> None:
    names = own_names(notebook, tmp_path, devices=2, changes=OWN_STATISTICS[notebook])
    assert "validated with the statistics that are saved" in failed(fairness_check(names).checks)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_other_pixels_are_caught(notebook: str, tmp_path: Path) -> None:
    def resized(pixels: np.ndarray, random: Any) -> np.ndarray:
        planes = torch.from_numpy(pixels).permute(2, 0, 1)
        size = names["run"].recipe.crop
        return transforms.resize(planes, [size, size]).permute(1, 2, 0).numpy()

    def shifted(pixels: np.ndarray, random: Any) -> np.ndarray:
        return centre(np.roll(pixels, 1, axis=1), random)

    names = own_names(notebook, tmp_path)
    centre = names["centre"]
    for fault in (resized, shifted):
        names["centre"] = fault
        assert "evaluation pixels" in failed(fairness_check(names).checks), fault.__name__


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_loader_that_leaves_images_out_is_caught(notebook: str, tmp_path: Path) -> None:
    """When images are not evaluated, by the check; when they are not trained on, at once."""

    def too_few(names: Names) -> None:
        replica = names["make_replica"](names["build_model"]())
        run, loader = names["run"], names["make_loader"](names["run"].train_part, True)
        for _ in run.epochs(replica):
            with run.phase("train"):
                names["train_steps"](replica, islice(loader, len(loader) - 1), len(loader))

    names = own_names(notebook, tmp_path)
    sound = names["make_loader"]
    with pytest.raises(LoaderError, match=r"epoch 1 took 16 of 17 steps"):
        in_each(names, too_few)

    def make_loader(part: Any, training: bool) -> Any:
        few = replace(part, rows=part.rows[1:], targets=part.targets[1:])
        return sound(part if training else few, training)

    names["make_loader"] = make_loader
    assert process_checks.EVALUATED in failed(fairness_check(names).checks)


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


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_what_is_drawn_depends_on_seed_epoch_and_image_alone(notebook: str, tmp_path: Path) -> None:
    """By the rule of all notebooks, for any number of workers and after a resume."""
    names = names_of(
        notebook,
        tmp_path,
        devices=2,
        data=str(write_different_images(tmp_path, ".png")),
        batch_size=16,
        seed=3,
    )
    run, expected = names["run"], {}
    for workers, epochs in ((0, [0, 1, 2]), (1, [2]), (3, [1, 2])):
        run.workers = workers
        each = in_each(names, shared_batches.trained_on, run.train_part, epochs)
        assert len(each) == (2 if "dist" in names else 1)
        for rank, found in enumerate(each):
            for epoch, batches in zip(epochs, found, strict=True):
                if (rank, epoch) not in expected:
                    expected[rank, epoch] = shared_batches.by_the_rule(
                        run, run.train_part, run.train_part.read, epoch, rank, len(each)
                    )
                assert len(batches) == 140 // 32
                shared_batches.assert_same(batches, expected[rank, epoch])


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_pixels_are_pillows_from_files_and_from_a_packed_folder(
    notebook: str, tmp_path: Path, suffix: str
) -> None:
    shared_batches.assert_grey_is_read(notebook, tmp_path, suffix)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_pixels_in_colour_are_pillows_from_files_memory_and_an_own_reader(
    notebook: str, tmp_path: Path, suffix: str
) -> None:
    names = shared_batches.assert_colour_is_read(notebook, tmp_path, suffix)
    recipe = names["run"].setup.recipe.recipe
    image = reference_checks.canonical_image(recipe.crop, planes=3)
    (seen,) = names["to_network"](torch.from_numpy(image)[None]).numpy()
    assert np.abs(seen - reference_checks.expected_pixels(image, recipe)).max() < 1e-6, (
        "three planes, each with its own mean"
    )


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


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("notebook", NOTEBOOKS)
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


def assert_own(addresses: Sequence[str]) -> None:
    """Only this machine reaches them; Gloo and the store ask for no password."""
    assert addresses and all(address.startswith("127.") for address in addresses)


def test_replicas_listen_to_none_but_this_machine(as_in_a_cluster: None) -> None:
    def replica(rank: int) -> list[str]:
        dist.init_process_group(
            "gloo", init_method=os.environ[replicas.RENDEZVOUS], rank=rank, world_size=2
        )
        dist.all_reduce(torch.ones(1))
        found = listening(os.getpid())
        dist.destroy_process_group()
        return found

    for found in replicas.run(replica, 2):
        assert_own(found)


def test_launched_processes_listen_to_none_but_this_machine(
    as_in_a_cluster: None, tmp_path: Path
) -> None:
    """Nor does the store at which they meet, in the notebook's process."""
    names, notebook = own_names(NOTEBOOKS[0], tmp_path, devices=2), os.getpid()

    def of_both(names: Names) -> tuple[list[str], list[str]]:
        names["dist"].all_reduce(torch.ones(1))
        return listening(os.getpid()), listening(notebook)

    for own, store in in_each(names, of_both):
        assert_own(own)
        assert_own(store)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
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


def test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one(tmp_path: Path) -> None:
    """Own network, own reader, classes, momentum, warm-up and drops."""
    recipe = own_networks.recipe_of_classes(tmp_path / "recipe", "pytorch")
    assert_own_resumes("PyTorch_MultiGPU", tmp_path, recipe, program=PROGRAM)


@pytest.mark.slow  # three processes train; the run of a custom recipe is killed every day
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_killed_run_goes_on_as_if_nothing_had_been(notebook: str, tmp_path: Path) -> None:
    assert_resumes(notebook, tmp_path, bits=True, program=PROGRAM)


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
    recipe = own_networks.recipe_of_classes(tmp_path / "recipe", "pytorch")
    names = names_of(notebook, tmp_path, devices=2, recipe=str(recipe), data="auto", batch_size=8)
    assert failed(fairness_check(names).checks) == set()
    sound = names["criterion"]
    for criterion in (one_hot_sigmoids(sound), torch.nn.CrossEntropyLoss(reduction="sum")):
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
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_every_rule_is_the_references(
    notebook: str, tmp_path: Path, optimizer: str, task: str
) -> None:
    """It walks the reference's way down a task's loss, with weight decay; its state is kept."""
    of_task = {
        "multilabel": own_networks.recipe_of,
        "multiclass": own_networks.recipe_of_classes,
    }
    recipe = of_task[task](tmp_path / "recipe", "pytorch")
    text = recipe.read_text().replace(SAID["momentum"], SAID[optimizer])
    assert SAID[optimizer] in text
    recipe.write_text(text)
    given: dict[str, Any] = {"data": "auto"} if task == "multiclass" else {}
    names = names_of(notebook, tmp_path, devices=2, recipe=str(recipe), batch_size=8, **given)
    found = fairness_check(names).checks
    assert failed(found) == set(), [check for check in found if check.verdict == "fail"]
    (row,) = (check for check in found if check.check.startswith("weight decay in 5"))
    assert (row.verdict, row.reason) == ("pass", next(iter(loop_checks.DECAYS)))
    rule = loop_checks.RULES[optimizer]
    rates = {"sgd": 0.1, "momentum": 0.1, "adam": 1e-3}[optimizer] * np.array([1, 1, 0.1])
    rules.assert_continues(rule, *in_each(names, three_and_two_and_one, task, rates)[0])


def three_and_two_and_one(names: Names, task: str, rates: np.ndarray) -> list[Any]:
    """Weights and optimiser after three steps, after two, and after one that continues the two."""
    start = reference.shallow_arrays()
    whole = steps_taken(names, task, start, {}, rates)
    arrays, state = steps_taken(names, task, start, {}, rates[:2])
    return [whole[0], arrays, state, steps_taken(names, task, arrays, state, rates[2:])[0]]


def steps_taken(names: Names, task: str, arrays: Any, state: Any, rates: np.ndarray) -> list[Any]:
    """Weights and optimiser after a step at each of the rates, where it trains."""
    run = names["run"]
    pixels, targets = reference.batch_of(task)
    own = len(run.own_devices)
    pixels = np.concatenate([pixels.repeat(run.images.planes, axis=3)] * own)
    numbers = np.arange(len(pixels))
    batch = framework.as_loaded(pixels, np.concatenate([targets] * own), numbers)
    how = {"learning_rate": 1.0, "lr_scaling": "none", "rates": tuple(map(float, rates))}
    with run.recipe.varied(**how, batch_size=len(targets), outputs=14):
        replica = names["make_replica"](framework.shallow(arrays, run.own_devices))
        framework.load_optimizer(replica.network, replica.optimizer, state, replica.scaler)
        names["train_steps"](replica, repeat(batch, len(rates)), len(rates))
    state = framework.dump_optimizer(replica.network, replica.optimizer, replica.scaler)
    return [framework.dump_weights(replica.network), state]


@pytest.mark.slow  # planted_ trains one every day
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_custom_network_is_trained(notebook: str, tmp_path: Path) -> None:
    """From its file to trained weights that a checkpoint keeps; what needs no reference counts."""
    recipe = own_networks.recipe_of(tmp_path / "recipe", "pytorch")
    data = str(write_different_images(tmp_path, ".png"))
    run = notebook_program.train(notebook, tmp_path / "run", recipe=str(recipe), data=data)
    fairness = run.record.content["fairness"]
    verdicts = {check["check"]: check["verdict"] for check in fairness["checks"]}
    assert fairness["comparable"] and "fail" not in verdicts.values()
    unknown = {name for name, verdict in verdicts.items() if verdict == "not checked"}
    assert unknown == set(custom_network.UNKNOWN)
    reasons = {check["reason"] for check in fairness["checks"] if check["check"] in unknown}
    assert reasons == {"own network"}
    assert {name for name, verdict in verdicts.items() if verdict == "expected"} == {KNOWN}
    for row in ("initial weights", "evaluation pixels", "gradients, n devices / one"):
        assert verdicts[row] == "pass"

    said = run.record.content["weights"]
    assert said["source"] == "own" and said["sha256"] == run.initial.sha256
    assert "drawn by PyTorch itself from seed 0" in str(run.initial)
    trained, fixed = own_networks.TRAINED["pytorch"], own_networks.FIXED["pytorch"]
    assert trained | fixed <= run.initial.arrays.keys()
    after = weights.load(run.folder / "weights.safetensors")
    assert after.keys() == run.initial.arrays.keys()
    changed = {name for name, array in run.initial.arrays.items() if (after[name] != array).any()}
    assert changed >= trained and "fixed" not in changed
    rows = run.record.content["epochs"]
    assert len(rows) == 3 and all(row["train_loss"] > 0 for row in rows)

    kept = checkpoint.begin(run.record, run.initial.arrays, resume=True)
    assert kept.epoch == 3 and kept.damaged is None
    assert all(np.array_equal(kept.weights[name], array) for name, array in after.items())
    moments = {name.removeprefix("first/") for name in kept.optimizer if "/" in name}
    assert moments >= trained and not moments & fixed


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


ADAPTER = OfFramework(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: torch.tensor(number),
    known=frozenset({KNOWN}),
)

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
LAUNCHERS = dict(zip(NOTEBOOKS, (TORCHRUN, (sys.executable,)), strict=True))


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_as_a_script_it_trains_in_another_project(notebook: str, tmp_path: Path) -> None:
    devices = "auto" if LAUNCHERS[notebook] == TORCHRUN else 2
    copied.assert_script_trains(notebook, tmp_path, LAUNCHERS[notebook], "pytorch", devices=devices)


def test_the_scaling_studys_update_is_that_of_distributed_data_parallel() -> None:
    """Weights and running statistics after three updates of two shares, in float64."""
    cells = ("devices = [", "import os", "CROP, MARGIN")
    names = run_cells(
        "Study_Linear_Scaling",
        wanted=lambda text: text.startswith(cells),
        train_targets=torch.ones(1, 14),
    )
    build, update = names["build_model"], names["update"]
    drawn = torch.randn(16, 1, 32, 32, dtype=torch.float64).contiguous()
    shares = list(zip(drawn.split(8), (drawn[:, 0, 0, :14] > 0).double().split(8), strict=True))

    def of_rank(rank: int) -> dict[str, np.ndarray]:
        torch.set_num_threads(1)
        meet = os.environ[replicas.RENDEZVOUS]
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=2)
        model = torch.nn.parallel.DistributedDataParallel(build(0).double())
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            inputs, targets = shares[rank]
            names["criterion"](model(inputs), targets).backward()
            optimizer.step()
        dist.destroy_process_group()
        return {name: value.numpy() for name, value in model.module.state_dict().items()}

    def apart(shares: list[Any]) -> float:
        model = build(0).double()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            update(model, optimizer, shares)
        found = {k: v.numpy() for k, v in model.state_dict().items() if "num_batches" not in k}
        return max(float(np.abs(found[name] - trained[name]).max()) for name in found)

    trained = replicas.run(of_rank, 2)[0]
    whole = tuple(map(torch.cat, zip(*shares, strict=True)))
    assert apart(shares) < 1e-9 < apart([whole])
