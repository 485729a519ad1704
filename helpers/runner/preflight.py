"""Check what an experiment needs before its first run, and why a run cannot start.

On GPUs the self-test of each environment belongs to it. CPU devices are not tested: that would add
a minute to an experiment, and without a driver, a GPU or NCCL it finds nothing that the notebooks'
fairness checks do not find.
"""

import math
import shutil
from pathlib import Path
from typing import Any, Protocol

from helpers import paths, terminal
from helpers.errors import UserError
from helpers.frameworks import (
    NOTEBOOKS,
    Row,
    capabilities,
    cpu_cores,
    devices,
    installed,
    row_of,
    why_not,
)
from helpers.launch import launchers
from helpers.runner import ranks, recipes, selection, self_test
from helpers.runner.experiments import Experiment
from helpers.runner.plans import Plan, RunState
from helpers.training import image_data, parameters
from helpers.training.setup import Setup

SHARED_MEMORY = Path("/dev/shm")
LOADERS = 2
"""Loaders of a process that have workers at the same time: for training and for validation."""
AHEAD, HANDED_ON = 2, 4
"""Batches of a loader that lie there: for each worker, ready or in work; and those that were asked
for last or are handed on."""


class Shown(Protocol):
    """Where an experiment shows what it does (``helpers.runner.progress_board``)."""

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...


def check(experiment: Experiment) -> None:
    """Check the user's input before the first kernel starts.

    This also makes the generated images where they are missing, once and where it can be seen.
    """
    plan = experiment.plan
    recipes.check(plan)
    for state in plan.runs:
        if not experiment.is_finished(state):
            selection.check_parameters_cell(state.notebook)
            _check_launcher(plan, state)
            _check_gpus(plan, state)
    # The largest global batch to fill.
    most = max(plan.runs, key=lambda state: state.nodes * state.devices)
    notes: dict[str, None] = {}  # seeds share most of them
    groups: list[str] = []
    for seed in dict.fromkeys(state.seed for state in plan.runs):
        setup = _resolve(experiment, most, seed)
        images = image_data.load_data(setup)
        setup.recipe.steps(len(images.train))
        groups.append(images.groups())
        notes |= dict.fromkeys(images.notes())
    terminal.say(f"Images: {'; '.join(dict.fromkeys(groups))}.")
    for note in notes:
        terminal.say(f"note: {note}")
    image_data.check_images(setup.recipe.recipe, setup.data)
    for state in plan.runs:
        row = row_of(state.notebook, state.kernel)
        if row is None or not row.shared_memory or experiment.is_finished(state):
            continue
        if why_skipped(plan, state) is None:
            _check_shared_memory(row, state, _resolve(experiment, state, state.seed))


def _resolve(experiment: Experiment, state: RunState, seed: int) -> Setup:
    return parameters.resolve(
        "check",
        **experiment.plan.parameters(),
        devices=state.devices,
        nodes=state.nodes,
        simulated_nodes=is_simulated(experiment.plan, state),
        run=experiment.folder / "check",
        seed=seed,
    )


def _check_shared_memory(row: Row, state: RunState, setup: Setup) -> None:
    """Check that a run's loaders fit into /dev/shm: where it is full, a worker dies by SIGBUS."""
    if not setup.workers:
        return
    machines = 1 if setup.simulated_nodes else setup.nodes
    processes = setup.replicas if row.rank_a_device else 1
    batches = LOADERS * (AHEAD * math.ceil(setup.workers / processes) + HANDED_ON)
    recipe = setup.recipe.recipe
    images = batches * setup.recipe.global_batch_size // machines
    need = images * recipe.crop**2 * recipe.planes
    free = shutil.disk_usage(SHARED_MEMORY).free
    if need > free:
        raise UserError(
            f"{state.notebook}: the loaders on {setup.short} need {math.ceil(need / 1e6):,} MB in "
            f"{SHARED_MEMORY}, which has {free // 10**6:,} MB free: start the container with a "
            f"larger --shm-size, such as docker run --shm-size=8g, or lower --num-workers"
        )


def why_skipped(plan: Plan, state: RunState) -> str | None:
    """Why a run cannot start: its notebook, environment or recipe; None if it can."""
    source = paths.NOTEBOOKS / f"{state.notebook}.ipynb"
    if not source.exists():
        return f"{source} is gone"
    return (
        installed.problem(state.kernel, gpus_here(plan, state))
        or recipes.problem(plan, state.notebook)
        or why_not(state.notebook, state.kernel, state.devices, state.nodes, state.execution)
        or None
    )


def gpus_here(plan: Plan, state: RunState) -> list[capabilities.Gpu]:
    """The GPUs of this machine that a run uses."""
    nodes = state.nodes if is_simulated(plan, state) else 1
    return devices.visible()[: nodes * state.devices]


def is_simulated(plan: Plan, state: RunState) -> bool:
    """Whether this machine plays all nodes of a run."""
    return state.nodes > 1 and launchers.choose(plan.launcher, state.nodes).virtual


def order_of(plan: Plan, state: RunState) -> ranks.Order:
    """What the ranks of a run are to be."""
    kind = devices.resolve(state.devices, cpu_cores.SHARED).kind
    on = state.nodes, state.devices, kind
    return ranks.order(state.notebook, state.kernel, plan.launcher, *on)


def _check_launcher(plan: Plan, state: RunState) -> None:
    """Check that the launcher can start a run's ranks, unless the run will be skipped."""
    if why_skipped(plan, state) or not ranks.are_needed(state.notebook, state.kernel, state.nodes):
        return
    try:
        ranks.check(order_of(plan, state), state.kernel)
    except UserError as error:
        raise UserError(f"{state.notebook}: {error}") from None


def _check_gpus(plan: Plan, state: RunState) -> None:
    """Check that simulated nodes have a GPU for each device, if there are GPUs."""
    there, needed = len(devices.visible()), state.nodes * state.devices
    if 0 < there < needed and is_simulated(plan, state):
        raise UserError(
            f"{state.title}: simulated nodes need {needed} GPUs, and this process sees {there}; "
            f"ask for fewer ({devices.HIDE})"
        )


def test_environments(experiment: Experiment, shown: Shown) -> None:
    """Test each environment on each number of GPUs that the experiment still has to run on.

    The outcomes are in ``experiment.self_tests``. A resumed experiment repeats the tests, because
    the driver may have changed in the meantime and a broken environment may work now.
    """
    for state in experiment.runs:
        known = state.kernel not in NOTEBOOKS or _key(state) in experiment.self_tests
        if known or experiment.is_finished(state):
            continue
        gpus = devices.visible()[: state.devices]
        if not gpus or installed.problem(state.kernel, gpus):
            continue  # on the CPU; or the run is skipped for that problem
        on = devices.Devices("gpu", tuple(gpu.name for gpu in gpus))
        slow = capabilities.compiles_first(state.kernel, gpus)
        why = ": for the first time it may take minutes, to compile GPU code" if slow else ""
        shown.note(f"Testing environment {state.kernel} on {on.short}{why}")
        log = experiment.folder / _log(state)
        found = self_test.test(state.kernel, on, gpus, mark=experiment.folder, log=log)
        experiment.self_tests[_key(state)] = found
        if found.reason is None:
            shown.note(f"      works, tested in {terminal.clock(found.seconds)}")
        else:
            shown.warn(_failed(state, found))


def failed_test(experiment: Experiment, state: RunState) -> str | None:
    """Why a run is skipped whose environment failed its self-test; None otherwise."""
    found = experiment.self_tests.get(_key(state))
    return None if found is None or found.reason is None else _failed(state, found)


def test_record(experiment: Experiment, state: RunState) -> dict[str, Any]:
    """The record's section ``self_test``, as a dictionary to merge; {} if no self-test ran."""
    found = experiment.self_tests.get(_key(state))
    return {} if found is None else {"self_test": found.as_record()}


def _failed(state: RunState, found: self_test.Outcome) -> str:
    return (
        f"environment '{state.kernel}' failed its self-test: {found.reason} "
        f"({_log(state)} has the details)"
    )


def _log(state: RunState) -> str:
    return f"{_key(state)}.log"


def _key(state: RunState) -> str:
    """The name of a self-test, which runs in the same environment on the same devices share."""
    return devices.run_name(f"self-test-{state.kernel}", state.devices)
