"""Plan an experiment: its notebooks, numbers of devices and parameters."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from data_prep.errors import DataError
from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import cpu_cores, order, run_label
from helpers.frameworks import devices as device_helpers
from helpers.launch import launchers
from helpers.recipe import AS_USUAL, PRECISIONS, Recipe, full_name, lookup
from helpers.runner import selection
from helpers.training import image_folders, parameters

MOST_RUNS = 10_000
"""A larger number is treated as a typing error."""
PARAMETERS = (
    *("recipe", "data", "epochs", "batch_size", "num_workers", "warmup_epochs"),
    *("cores_per_device", "loader_cores"),
)
"""The fields of a plan that each of its notebooks gets as parameters."""
CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "epochs": partial(parameters.check_number, "epochs"),
    "batch_size": partial(parameters.check_number, "batch_size"),
    "num_workers": partial(parameters.check_number, "num_workers"),
    "warmup_epochs": parameters.epochs_of_warmup,
}


@dataclass(kw_only=True)
class Settings:
    """What a user may choose, and a plan keeps as it was chosen."""

    epochs: int | str = "default"
    batch_size: int | str = "default"
    """Images per device."""
    num_workers: int | str = "default"
    """Loader workers for each device."""
    warmup_epochs: float | str = "default"
    launcher: str = "auto"
    """What starts the ranks of several nodes (``helpers.launch.launchers``)."""
    cores_per_device: int | str = "auto"
    """Cores of each CPU device; ``auto``: an equal part of all cores for the most devices."""
    loader_cores: str = "default"
    """Where a CPU device's loader workers run, one of ``cpu_cores.LOADER_CORES``."""


@dataclass(kw_only=True)
class Choices(Settings):
    """What a user may choose: the command's options and a sweep's keys have these names."""

    notebooks: Sequence[str] = ()
    """Names without ``.ipynb``, each in its own kernel; none means every framework notebook."""
    frameworks: Sequence[str] = ()
    """All notebooks of these frameworks, instead of ``notebooks``."""
    devices: Sequence[int | str] = ("auto",)
    """How many on each node, several in turn."""
    recipe: str = "auto"
    """A recipe's name or its file."""
    data: str = "auto"
    """A data folder."""
    seeds: Sequence[int | str] = (0,)
    """One run for each; a seed sets the split by patient, the weights and the augmentation."""
    repeats: int | str = 1
    precision: Sequence[str] = ("auto",)
    """One run for each; a framework that cannot compute in one skips that run."""
    execution: Sequence[str] = (AS_USUAL,)
    """One run for each; a framework that cannot execute its steps so skips that run."""
    nnodes: Sequence[int | str] = (1,)
    """How many machines, several in turn; simulated unless the launcher reaches others."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment; how it stands, its record says."""

    notebook: str
    framework: str
    kernel: str
    devices: int
    seed: int = 0
    precision: str = PRECISIONS[0]
    execution: str = AS_USUAL
    """The recipe's, where it is the usual one."""
    variant: str = ""
    """The difference to other runs of the same notebook on as many devices."""
    nodes: int = 1
    """The number of nodes, with ``devices`` devices each."""

    @property
    def label(self) -> str:
        """Which row it is of: its notebook, and its kernel where that is not the notebook's own."""
        return run_label(self.notebook, self.kernel)

    @property
    def folder(self) -> str:
        """The run's folder in the experiment."""
        name = device_helpers.run_name(self.label, self.devices, self.nodes)
        return name + (f"-{self.variant}" if self.variant else "")

    @property
    def title(self) -> str:
        apart = f", {self.variant.replace('-', ' ')}" if self.variant else ""
        each = " each" if self.nodes > 1 else ""
        among = f"{self.nodes} nodes with " if self.nodes > 1 else ""
        return f"{self.label} on {among}{counted(self.devices, 'device')}{each}{apart}"


@dataclass
class Plan(Settings):
    """What an experiment runs: the same recipe and data for each of its runs.

    Two plans are equal if they ask for the same, however far their runs are.
    """

    recipe: str
    data: str
    runs: list[PlannedRun]
    recipe_digests: dict[str, str] = field(default_factory=dict)
    """Digests of the recipe's file and its custom code; empty for ``auto``."""

    def parameters(self) -> dict[str, Any]:
        """The parameters that all its notebooks get."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def cores_here(self) -> int | str:
        """The cores of each CPU device on this machine: ``auto`` as a number.

        The run with the most devices of a node decides the number for all runs. The plan keeps
        ``auto``, because the node of a job may have another number of cores than the login node.
        """
        if self.cores_per_device != "auto":
            return self.cores_per_device
        most = max(run.devices for run in self.runs)
        return len(cpu_cores.machine()) // most or "auto"

    def settings(self) -> str:
        """What of its parameters is not the default: ``epochs 1, batch size 16``; else nothing."""
        given = {
            "epochs": self.epochs,
            "batch size": self.batch_size,
            "workers": self.num_workers,
            "warm-up epochs": self.warmup_epochs,
            "loader cores": self.loader_cores,
            "launcher": "default" if self.launcher == "auto" else self.launcher,
        }
        return ", ".join(f"{what} {value}" for what, value in given.items() if value != "default")


class ChoiceError(UserError):
    """A choice that cannot be had; ``option`` is its name."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(text)
        self.option = option


@contextmanager
def choosing(option: str) -> Iterator[None]:
    """What goes wrong inside is a mistake in this option."""
    try:
        yield
    except (UserError, DataError) as error:
        raise ChoiceError(option, str(error)) from None


def make_plan(**choices: Any) -> Plan:
    """What is to be run, by the fields of :class:`Choices`, with all that may be mistyped checked.

    Repeats are the outermost loop, then seeds, notebooks, precisions, executions, nodes, devices: a
    sweep that is cut short has measured every framework, and a machine that grows warm does so for
    all.

    Raises:
        ChoiceError: one of these cannot be had.
        UserError: they cannot be had together.
    """
    given = Choices(**choices)
    with choosing("recipe"):
        name = full_name(given.recipe)
        recipe = lookup("demo" if name == "auto" else name)
        digests = {} if name == "auto" else recipe.digests()
    for option, values in (("precision", given.precision), ("execution", given.execution)):
        with choosing(option):
            for value in set(values) - {"auto", AS_USUAL}:
                changes: dict[str, Any] = {option: value}
                lookup("demo", **changes)
    checked = {}
    for option, check in CHECKS.items():
        with choosing(option):
            checked[option] = check(getattr(given, option))
    data = given.data
    if data != "auto":
        with choosing("data"):
            data = str(image_folders.prepare_data(recipe, data))
    with choosing("frameworks" if given.frameworks else "notebooks"):
        offers = selection.chosen(framework_notebooks(), given.notebooks, given.frameworks)
    with choosing("devices"):
        found = [device_helpers.resolve(n, cpu_cores.SHARED) for n in given.devices]
    counts = dict.fromkeys(each.count for each in found)
    with choosing("nnodes"):
        nodes = dict.fromkeys(
            int(parameters.check_number("nodes", number)) for number in given.nnodes
        )
    with choosing("launcher"):
        launcher = launchers.check(given.launcher)
    cores = _cores(given, recipe, max(counts), min(nodes))
    with choosing("seeds"):
        seeds = dict.fromkeys(_whole("seed", seed, least=0) for seed in given.seeds)
    with choosing("repeats"):
        repeats = _whole("repeats", given.repeats, least=1)
    pairs = [pair for pair in product(offers, nodes) if _is_meant(given, offers, *pair)]
    precisions = dict.fromkeys(map(device_helpers.precision, given.precision))
    kinds = list(product(precisions, dict.fromkeys(given.execution)))
    planned = repeats * len(seeds) * len(kinds) * len(pairs) * len(counts)
    if planned > MOST_RUNS:
        raise UserError(f"that would be {planned} runs; plan {MOST_RUNS} or fewer")
    usual = device_helpers.precision("auto")
    grid = product(range(1, repeats + 1), seeds, offers, kinds, nodes, counts)
    runs = [
        PlannedRun(
            offer.notebook,
            offer.framework,
            offer.kernel,
            count,
            seed=seed,
            precision=precision,
            execution=execution,
            variant="-".join(
                [precision] * (precision != usual)
                + [execution] * (execution != AS_USUAL)
                + [f"seed{seed}"] * (len(seeds) > 1)
                + [f"repeat{repeat}"] * (repeats > 1)
            ),
            nodes=among,
        )
        for repeat, seed, offer, (precision, execution), among, count in grid
        if (offer, among) in pairs
    ]
    return Plan(
        recipe=name,
        data=data,
        runs=runs,
        launcher=launcher,
        cores_per_device=cores,
        loader_cores=given.loader_cores,
        recipe_digests=digests,
        **checked,
    )


def _cores(given: Choices, recipe: Recipe, devices: int, nodes: int) -> int | str:
    """The cores of each CPU device, checked for the most devices of a run on one node."""
    place = recipe.loader_cores if given.loader_cores == "default" else given.loader_cores
    asked = given.cores_per_device
    if nodes > 1:  # whose cores are not known here
        with choosing("cores_per_device"):
            if asked != cpu_cores.SHARED:
                return device_helpers.check_cores(asked) or "auto"
            return asked
    with choosing("loader_cores" if place not in cpu_cores.LOADER_CORES else "devices"):
        widest = device_helpers.resolve(devices, asked, place)
    if widest.cpus and asked != "auto":
        return int(asked)
    return asked if asked == cpu_cores.SHARED else "auto"


def _is_meant(
    given: Choices, offers: Sequence[selection.Offer], offer: selection.Offer, nodes: int
) -> bool:
    """Whether a notebook is to run on so many nodes.

    A notebook for one machine that was chosen by its framework (``chainer``) is left out on several
    nodes if another notebook of that framework runs on them.
    """
    if given.notebooks:
        return True
    if nodes == 1:
        return bool(given.frameworks) or not offer.many_nodes_only
    return offer.spans or offer.word not in {other.word for other in offers if other.spans}


def counted(number: int, what: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _whole(what: str, value: int | str, least: int) -> int:
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
