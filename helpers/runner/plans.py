"""Plan an experiment: its notebooks, numbers of devices and parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from helpers.errors import UserError
from helpers.frameworks import cpu_cores
from helpers.frameworks import devices as device_helpers
from helpers.launch import launchers
from helpers.recipe import full_name, lookup
from helpers.recipe.settings import AS_USUAL, PRECISIONS
from helpers.runner import selection
from helpers.training import image_folders, parameters

MOST_RUNS = 10_000
"""A larger number is treated as a typing error."""
PARAMETERS = (
    *("recipe", "data", "epochs", "batch_size", "num_workers", "warmup_epochs"),
    "cores_per_device",
)
"""The fields of a plan that each of its notebooks gets as parameters."""
CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "epochs": partial(parameters.check_number, "epochs"),
    "batch_size": partial(parameters.check_number, "batch_size"),
    "num_workers": partial(parameters.check_number, "num_workers"),
    "warmup_epochs": partial(parameters.check_number, "warmup_epochs"),
}


@dataclass(kw_only=True)
class Settings:
    """The choices of a user that a plan keeps unchanged."""

    epochs: int | str = "default"
    batch_size: int | str = "default"
    num_workers: int | str = "default"
    warmup_epochs: float | str = "default"
    launcher: str = "auto"
    cores_per_device: int | str = "auto"


@dataclass(kw_only=True)
class Choices(Settings):
    """The options of ``rosetta run`` that choose what is run, and the keys of a ``[sweep]``.

    ``helpers.commands.run`` describes them. Every combination of what a sequence has is a run.
    """

    notebooks: Sequence[str] = ()
    frameworks: Sequence[str] = ()
    devices: Sequence[int | str] = ("auto",)
    recipe: str = "auto"
    data: str = "auto"
    seeds: Sequence[int | str] = (0,)
    repeats: int | str = 1
    precision: Sequence[str] = ("auto",)
    execution: Sequence[str] = (AS_USUAL,)
    nnodes: Sequence[int | str] = (1,)


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment; its record gives its state."""

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
    def folder(self) -> str:
        """The run's folder in the experiment."""
        name = device_helpers.run_name(self.notebook, self.devices, self.nodes)
        return name + (f"-{self.variant}" if self.variant else "")

    @property
    def self_test(self) -> str:
        """The name of the self-test of its environment on its devices."""
        return device_helpers.run_name(f"self-test-{self.kernel}", self.devices)

    @property
    def title(self) -> str:
        apart = f", {self.variant.replace('-', ' ')}" if self.variant else ""
        each = " each" if self.nodes > 1 else ""
        among = f"{self.nodes} nodes with " if self.nodes > 1 else ""
        return f"{self.notebook} on {among}{counted(self.devices, 'device')}{each}{apart}"


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
    command: str = field(default="", compare=False)
    started: str = field(default="", compare=False)
    ended: str = field(default="", compare=False)
    """When all runs were over and reported; empty before that."""

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
        """The parameters that are not defaults: ``epochs 1, batch size 16``; else nothing."""
        given = {
            "epochs": self.epochs,
            "batch size": self.batch_size,
            "workers": self.num_workers,
            "warm-up epochs": self.warmup_epochs,
            "launcher": "default" if self.launcher == "auto" else self.launcher,
        }
        return ", ".join(f"{what} {value}" for what, value in given.items() if value != "default")


def make_plan(**choices: Any) -> Plan:
    """Make the plan for the fields of :class:`Choices`, and check everything that may be mistyped.

    Repeats are the outermost loop, then seeds, notebooks, precisions, executions, nodes, devices: a
    sweep that is cut short has measured every framework, and a machine that grows warm does so for
    all.

    Raises:
        UserError, DataError: a choice cannot be had, or not together with another.
    """
    given = Choices(**choices)
    name = full_name(given.recipe)
    recipe = lookup("demo" if name == "auto" else name)
    for option, values in (("precision", given.precision), ("execution", given.execution)):
        for value in set(values) - {"auto", AS_USUAL}:
            lookup("demo", **{option: value})  # type: ignore[arg-type]
    checked = {option: check(getattr(given, option)) for option, check in CHECKS.items()}
    data = (
        given.data if given.data == "auto" else str(image_folders.prepare_data(recipe, given.data))
    )
    offers = selection.chosen(given.notebooks, given.frameworks)
    found = [device_helpers.resolve(number, cpu_cores.SHARED) for number in given.devices]
    counts = dict.fromkeys(each.count for each in found)
    nodes = dict.fromkeys(int(parameters.check_number("nodes", n)) for n in given.nnodes)
    launcher = launchers.check(given.launcher)
    cores = _cores(given, max(counts), min(nodes))
    seeds = dict.fromkeys(int(parameters.check_number("seed", n)) for n in given.seeds)
    repeats = int(parameters.check_number("repeats", given.repeats))
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
        recipe_digests={} if name == "auto" else recipe.digests(),
        **checked,
    )


def _cores(given: Choices, devices: int, nodes: int) -> int | str:
    """The cores of each CPU device, checked for the most devices of a run on one node."""
    asked = given.cores_per_device
    if nodes > 1:  # whose cores are not known here
        return asked if asked == cpu_cores.SHARED else device_helpers.check_cores(asked) or "auto"
    widest = device_helpers.resolve(devices, asked)
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
        return bool(given.frameworks) or not (offer.row and offer.row.many_nodes_only)
    return offer.spans or offer.word not in {other.word for other in offers if other.spans}


def counted(number: int, what: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{number} {what}{'' if number == 1 else 's'}"
