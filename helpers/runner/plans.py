"""Plan an experiment: its notebooks, numbers of devices and parameters."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from data_prep.errors import DataError
from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import cpu_cores, order, run_label
from helpers.frameworks import devices as device_helpers
from helpers.frameworks.capabilities import sharing
from helpers.launch import launchers
from helpers.recipe import PRECISIONS, full_name, lookup
from helpers.runner import selection
from helpers.runner.selection import Offer
from helpers.training import image_folders, parameters

MOST_RUNS = 10_000
"""A larger number is treated as a typing error."""


@dataclass
class RunState:
    """One planned run and how it stands; the journal keeps exactly these fields."""

    notebook: str
    framework: str
    kernel: str
    devices: int
    sha256: str
    state: str = "waiting"
    reason: str | None = None
    seconds: float | None = None
    seed: int = 0
    precision: str = PRECISIONS[0]
    variant: str = ""
    """The difference to other runs of the same notebook on as many devices."""
    gpus: int | None = None
    """The number of GPUs that the devices share; None for one GPU per device, if there are GPUs."""
    nodes: int = 1
    """The number of nodes, with ``devices`` devices each."""
    earlier: list[str] = field(default_factory=list)
    """The outcomes of earlier attempts, so that no run is repeated silently."""

    @property
    def label(self) -> str:
        """Which row it is of: its notebook, and its kernel where that is not the notebook's own."""
        return run_label(self.notebook, self.kernel)

    @property
    def folder(self) -> str:
        """The run's folder in the experiment."""
        name = device_helpers.run_name(self.label, self.devices, self.shared_gpus, self.nodes)
        return name + (f"-{self.variant}" if self.variant else "")

    @property
    def title(self) -> str:
        apart = f", {self.variant.replace('-', ' ')}" if self.variant else ""
        each = " each" if self.nodes > 1 else ""
        if self.shared_gpus:
            found = sharing(self.devices, self.shared_gpus)
            among = f" on {self.nodes} nodes" if self.nodes > 1 else ""
            return f"{self.label}{among}, {found}{each}{apart}"
        among = f"{self.nodes} nodes with " if self.nodes > 1 else ""
        kind = "CPU device" if self.gpus == 0 else "device"
        kind += "s" * (self.devices != 1)
        return f"{self.label} on {among}{self.devices} {kind}{each}{apart}"

    @property
    def shared_gpus(self) -> int | None:
        """As ``devices.Devices`` has it."""
        return self.gpus if self.gpus and self.gpus < self.devices else None

    @property
    def on(self) -> str:
        """Its devices in a table's cell: ``4``, ``4 on 1 GPU``, or of two nodes ``2 x 4``."""
        gpus = self.shared_gpus
        among = f"{self.nodes} x " if self.nodes > 1 else ""
        shared = f" on {gpus} GPU{'s' * (gpus > 1)}" if gpus else ""
        return f"{among}{self.devices}{shared}"

    def about(self) -> dict[str, Any]:
        """What the notebook cannot know of its own run, for the record's section ``run``."""
        known = {"variant": self.variant, "earlier": self.earlier, "seconds": self.seconds}
        return {name: value for name, value in known.items() if value}


@dataclass
class Plan:
    """What an experiment runs: the same recipe and data for each of its runs."""

    recipe: str
    data: str
    runs: list[RunState]
    epochs: int | str = "default"
    batch_size: int | str = "default"
    num_workers: int | str = "default"
    """For each device."""
    warmup_epochs: float | str = "default"
    launcher: str = "auto"
    """What starts the ranks of several nodes."""
    cores_per_device: int | str = "auto"
    """Cores of each CPU device, as the user asked for them."""
    loader_cores: str = "default"
    recipe_digests: dict[str, str] = field(default_factory=dict)
    """Digests of the recipe's file and its custom code; empty in journals of older versions."""

    def parameters(self) -> dict[str, Any]:
        """The parameters that all its notebooks get."""
        return {
            "recipe": self.recipe,
            "data": self.data,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "num_workers": self.num_workers,
            "warmup_epochs": self.warmup_epochs,
            "cores_per_device": self.cores_per_device,
            "loader_cores": self.loader_cores,
        }

    def cores_here(self) -> int | str:
        """The cores of each CPU device on this machine: ``auto`` as a number.

        The run with the most devices decides the number for all runs on one node. The plan keeps
        ``auto``, because the node of a job may have another number of cores than the login node.
        """
        most = max((run.devices for run in self.runs if run.nodes == 1), default=0)
        if self.cores_per_device != "auto" or not most:
            return self.cores_per_device
        return cpu_cores.each_of(most, cpu_cores.machine()) or "auto"

    def settings(self) -> str:
        """What of its parameters is not the default: ``epochs 1, batch size 16``; else nothing."""
        given = {
            "epochs": self.epochs,
            "batch size": self.batch_size,
            "workers": self.num_workers,
            "warm-up epochs": self.warmup_epochs,
            "loader cores": self.loader_cores,
        }
        said = [f"{what} {value}" for what, value in given.items() if value != "default"]
        said += [f"launcher {self.launcher}"] * (self.launcher != "auto")
        return ", ".join(said)

    def asks_for_the_same(self, other: "Plan") -> bool:
        """Whether both name the same runs, however far they are and whatever the code is now."""
        same = self.parameters() == other.parameters()
        return (
            same
            and self.launcher == other.launcher
            and self.recipe_digests == other.recipe_digests
            and [(run.folder, run.gpus, run.seed, run.precision) for run in self.runs]
            == [(run.folder, run.gpus, run.seed, run.precision) for run in other.runs]
        )


class ChoiceError(UserError):
    """A choice that cannot be had; ``option`` is its name."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(text)
        self.option = option


@contextmanager
def _choosing(option: str) -> Iterator[None]:
    """What goes wrong inside is a mistake in this option."""
    try:
        yield
    except (UserError, DataError) as error:
        raise ChoiceError(option, str(error)) from None


def make_plan(
    *,
    notebooks: Sequence[str] = (),
    frameworks: Sequence[str] = (),
    devices: Sequence[int | str] = ("auto",),
    gpus: int | str = "auto",
    recipe: str = "auto",
    data: str = "auto",
    seeds: Sequence[int | str] = (0,),
    repeats: int | str = 1,
    precision: Sequence[str] = PRECISIONS[:1],
    epochs: int | str = "default",
    batch_size: int | str = "default",
    num_workers: int | str = "default",
    warmup_epochs: float | str = "default",
    nnodes: Sequence[int | str] = (1,),
    launcher: str = "auto",
    cores_per_device: int | str = "auto",
    loader_cores: str = "default",
) -> Plan:
    """What is to be run, with everything a user may have mistyped checked.

    Repeats are the outermost loop, then seeds, notebooks, precisions, nodes, devices: a sweep that
    is cut short has measured every framework, and a machine that grows warm does so for all. On
    several nodes, a notebook for one machine is left out if it was chosen by its framework
    (``chainer``) and another notebook of that framework runs on several nodes.

    Args:
        notebooks: names without ``.ipynb``, each in its own kernel; none means every framework
            notebook, in order.
        frameworks: all notebooks of these frameworks, instead of ``notebooks``.
        devices: how many on each node, several in turn, or ``auto``.
        gpus: on how many GPUs each of these numbers is; ``auto``: on as many.
        recipe: a recipe's name, its file, or ``auto``.
        data: a data folder, or ``auto``.
        seeds: one run for each; it sets the split by patient, the weights and the augmentation.
        repeats: how often the whole is run.
        precision: one run for each, of ``PRECISIONS``; where a framework cannot compute in one,
            its run is skipped with the reason.
        epochs: of every run; ``default``: the recipe's.
        batch_size: images per device, the learning rate as the recipe scales it; ``default``: the
            recipe's; ``auto``: each run finds the largest that fits.
        num_workers: of the loader, for each device; ``default``: by the cores; ``auto``: each run
            measures.
        warmup_epochs: in which the learning rate climbs to that of all devices; ``default``: the
            recipe's.
        nnodes: how many machines, several in turn; simulated unless the launcher reaches others.
        launcher: what starts the ranks of several nodes (``helpers.launch.launchers``).
        cores_per_device: of each CPU device; ``auto``: an equal part of all cores for the most
            devices of these; ``shared``: the devices share all cores.
        loader_cores: where a CPU device's loader workers run, one of ``cpu_cores.LOADER_CORES``;
            ``default``: the recipe's.
    """
    with _choosing("recipe"):
        recipe = full_name(recipe)
        chosen = lookup("demo" if recipe == "auto" else recipe)
        digests = {} if recipe == "auto" else chosen.digests()
    with _choosing("precision"):
        for kind in precision:
            lookup("demo", precision=kind)
    with _choosing("epochs"):
        epochs = parameters.check_epochs(epochs)
    with _choosing("batch_size"):
        batch_size = parameters.check_batch_size(batch_size)
    with _choosing("num_workers"):
        num_workers = parameters.check_num_workers(num_workers)
    with _choosing("warmup_epochs"):
        warmup = parameters.epochs_of_warmup(warmup_epochs)
    if data != "auto":
        with _choosing("data"):
            data = str(image_folders.prepare_data(chosen, data))
    with _choosing("frameworks" if frameworks else "notebooks"):
        wanted = selection.chosen(framework_notebooks(), notebooks, frameworks)
    with _choosing("gpus"):
        device_helpers.resolve("auto", gpus)
    with _choosing("devices"):
        free = [device_helpers.resolve(number, gpus, cpu_cores.SHARED) for number in devices]
    counts = dict.fromkeys(each.count for each in free)
    with _choosing("nnodes"):
        each_nodes = dict.fromkeys(parameters.check_nodes(number) for number in nnodes)
    with _choosing("launcher"):
        chosen_launcher = launchers.choose(launcher, max(each_nodes))
    place = chosen.loader_cores if loader_cores == "default" else loader_cores
    cores: int | str = cores_per_device if cores_per_device == cpu_cores.SHARED else "auto"
    with _choosing("loader_cores" if place not in cpu_cores.LOADER_CORES else "devices"):
        if min(each_nodes) == 1:  # the devices of several nodes share all cores of their node
            widest = device_helpers.resolve(max(counts), gpus, cores_per_device, place)
            if widest.cpus and cores_per_device != "auto":
                cores = int(cores_per_device)
    with _choosing("seeds"):
        each_seed = dict.fromkeys(_whole("seed", seed, least=0) for seed in seeds)
    each_precision = dict.fromkeys(precision)
    with _choosing("repeats"):
        rounds = _whole("repeats", repeats, least=1)
    spanning = {offer.word for offer in wanted if offer.spans}

    def belongs(offer: Offer, number: int) -> bool:
        """Whether a notebook that was not named runs on so many nodes."""
        if number == 1:
            return bool(frameworks) or not offer.of_many_nodes
        return offer.spans or offer.word not in spanning

    several = {
        offer: [number for number in each_nodes if notebooks or belongs(offer, number)]
        for offer in wanted
    }
    combined = sum(map(len, several.values()))
    planned = rounds * len(each_seed) * len(each_precision) * combined * len(counts)
    if planned > MOST_RUNS:
        raise UserError(f"that would be {planned} runs; plan {MOST_RUNS} or fewer")
    runs = [
        RunState(
            *offer,
            count,
            digest(offer.notebook),
            seed=seed,
            precision=kind,
            variant="-".join(
                [kind] * (kind != PRECISIONS[0])
                + [f"seed{seed}"] * (len(each_seed) > 1)
                + [f"repeat{number}"] * (rounds > 1)
            ),
            gpus=None if gpus == "auto" else free[0].gpus,
            nodes=among,
        )
        for number in range(1, rounds + 1)
        for seed in each_seed
        for offer in wanted
        for kind in each_precision
        for among in several[offer]
        for count in counts
    ]
    return Plan(
        recipe,
        data,
        runs,
        epochs,
        batch_size,
        num_workers,
        warmup,
        chosen_launcher.asked,
        cores,
        loader_cores,
        digests,
    )


def _whole(what: str, value: int | str, least: int) -> int:
    """A whole number a user gave."""
    number = parameters.whole(value)
    if number is None:
        raise UserError(f"{what} '{value}': give a whole number, {least} or more")
    if not least <= number < 2**31:
        raise UserError(f"{what} {number}: give a whole number from {least} to {2**31 - 1}")
    return number


def framework_notebooks() -> dict[str, tuple[str, str]]:
    """Each framework notebook's framework and kernel, in the order they are run and shown.

    A framework notebook says so in its metadata: ``"rosetta": {"framework": "PyTorch"}``.
    """
    found = {}
    for path in sorted(paths.NOTEBOOKS.glob("[!.]*.ipynb")):  # editors and macOS hide theirs
        try:
            metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
            framework = metadata.get("rosetta", {}).get("framework")
            if framework:
                found[path.stem] = (str(framework), str(metadata["kernelspec"]["name"]))
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
            raise UserError(f"{path}: not a notebook ({error})") from None
        except KeyError as error:
            raise UserError(
                f"{path}: its metadata lack {error}; choose a kernel in Jupyter and save it"
            ) from None
    return dict(sorted(found.items(), key=lambda item: order(item[0])))


def digest(notebook: str) -> str:
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
