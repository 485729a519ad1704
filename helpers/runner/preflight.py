"""Check what an experiment needs before its first run, and why a run cannot start.

On GPUs the self-test of each environment belongs to it. CPU devices are not tested: a test would
add a minute to an experiment, and find nothing that the notebooks' fairness checks do not find.
"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from helpers import paths, terminal
from helpers.errors import UserError
from helpers.frameworks import (
    NOTEBOOKS,
    ROWS,
    Row,
    capabilities,
    cpu_cores,
    devices,
    networks_of,
    row_of,
    why_not,
)
from helpers.launch import launchers
from helpers.recipe import lookup
from helpers.runner import ranks, selection, self_test
from helpers.runner.experiments import Experiment
from helpers.runner.plans import Plan, PlannedRun
from helpers.training import image_data, parameters
from helpers.training.parameters import Setup

SHARED_MEMORY = Path("/dev/shm")
LOADERS = 2
"""Loaders of a process that have workers at the same time: for training and for validation."""
AHEAD, HANDED_ON = 2, 4
"""Batches of a loader that lie there: for each worker, ready or in work; and those that were asked
for last or are handed on."""


def check(experiment: Experiment) -> None:
    """Check the user's input before the first kernel starts.

    This also makes the generated images where they are missing, once and where it can be seen.
    """
    plan = experiment.plan
    if changed := recipe_changed(plan):
        raise UserError(f"{changed}: put it back, or start a new experiment")
    to_do = [run for run in plan.runs if not experiment.is_finished(run)]
    for run in to_do:
        selection.check_parameters_cell(run.notebook)
        _check_launcher(plan, run)
        _check_gpus(plan, run)
    # The largest global batch to fill.
    most = max(plan.runs, key=lambda run: run.nodes * run.devices)
    notes: dict[str, None] = {}  # seeds share most of them
    groups: list[str] = []
    for seed in dict.fromkeys(run.seed for run in plan.runs):
        setup = _resolve(experiment, most, seed)
        images = image_data.load_data(setup.recipe.recipe, setup.data)
        setup.recipe.steps(len(images.train))
        groups.append(images.groups())
        notes |= dict.fromkeys(images.notes())
    terminal.say(f"Images: {'; '.join(dict.fromkeys(groups))}.")
    for note in notes:
        terminal.say(f"note: {note}")
    image_data.check_images(setup.recipe.recipe, setup.data)
    for run in to_do:
        row = row_of(run.notebook)
        if row and row.framework == "PyTorch" and why_skipped(plan, run) is None:
            _check_shared_memory(row, run, _resolve(experiment, run, run.seed))


def _resolve(experiment: Experiment, run: PlannedRun, seed: int) -> Setup:
    return parameters.resolve(
        "check",
        **experiment.plan.parameters(),
        devices=run.devices,
        nodes=run.nodes,
        simulated_nodes=is_simulated(experiment.plan, run),
        run=experiment.folder / "check",
        seed=seed,
    )


def _check_shared_memory(row: Row, run: PlannedRun, setup: Setup) -> None:
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
            f"{run.notebook}: the loaders on {setup.short} need {math.ceil(need / 1e6):,} MB in "
            f"{SHARED_MEMORY}, which has {free // 10**6:,} MB free: start the container with a "
            f"larger --shm-size, such as docker run --shm-size=8g, or lower --num-workers"
        )


def why_skipped(plan: Plan, run: PlannedRun) -> str | None:
    """Why a run cannot start: its notebook, environment or recipe; None if it can."""
    source = paths.NOTEBOOKS / f"{run.notebook}.ipynb"
    if not source.exists():
        return f"{source} is gone"
    return (
        devices.problem(run.kernel, gpus_here(plan, run))
        or recipe_problem(plan, run.notebook)
        or why_not(run.notebook, run.nodes, run.execution)
        or None
    )


def recipe_problem(plan: Plan, notebook: str) -> str | None:
    """Why a notebook's runs are skipped: the recipe was changed, or has no network for it."""
    if plan.recipe == "auto":
        return None
    modules = [networks_of(row.module) for row in ROWS if row.notebook == notebook]
    return recipe_changed(plan) or (lookup(plan.recipe).lacks(modules[0]) if modules else None)


def recipe_changed(plan: Plan) -> str | None:
    """Describe how the recipe changed since the experiment began; None if it did not change."""
    if plan.recipe == "auto":
        return None
    try:
        now = lookup(plan.recipe).digests()
    except UserError as error:
        return str(error)
    differing = sorted(name for name, _ in now.items() ^ plan.recipe_digests.items())
    return f"{differing[0]} was changed since the experiment began" if differing else None


def gpus_here(plan: Plan, run: PlannedRun) -> list[capabilities.Gpu]:
    """The GPUs of this machine that a run uses."""
    nodes = run.nodes if is_simulated(plan, run) else 1
    return devices.visible()[: nodes * run.devices]


def is_simulated(plan: Plan, run: PlannedRun) -> bool:
    """Whether this machine simulates all nodes of a run."""
    return run.nodes > 1 and launchers.choose(plan.launcher, run.nodes).virtual


def order_of(plan: Plan, run: PlannedRun) -> ranks.Order | None:
    """The ranks that a run needs; None for one process."""
    kind = devices.resolve(run.devices, cpu_cores.SHARED).kind
    on = run.nodes, run.devices, kind
    return ranks.order(run.notebook, run.kernel, plan.launcher, *on)


def _check_launcher(plan: Plan, run: PlannedRun) -> None:
    """Check that the launcher can start a run's ranks, unless the run will be skipped."""
    try:
        if not why_skipped(plan, run):
            order_of(plan, run)
    except UserError as error:
        raise UserError(f"{run.notebook}: {error}") from None


def _check_gpus(plan: Plan, run: PlannedRun) -> None:
    """Check that simulated nodes have a GPU for each device, if there are GPUs."""
    there, needed = len(devices.visible()), run.nodes * run.devices
    if 0 < there < needed and is_simulated(plan, run):
        raise UserError(
            f"{run.title}: simulated nodes need {needed} GPUs, and this process sees {there}; "
            f"ask for fewer ({devices.HIDE})"
        )


def test_environments(experiment: Experiment, warn: Callable[[str], None]) -> None:
    """Test each environment that will run on GPUs, on each set of them; ``warn`` if one fails.

    A resumed experiment tests what is still to run: the driver may have changed in the meantime.
    """
    for run in experiment.runs:
        known = run.kernel not in NOTEBOOKS or run.self_test in experiment.self_tests
        if known or experiment.is_finished(run):
            continue
        gpus = devices.visible()[: run.devices]
        if not gpus or devices.problem(run.kernel, gpus):
            continue  # on the CPU; or the run is skipped for that problem
        on = devices.Devices("gpu", tuple(gpu.name for gpu in gpus))
        if capabilities.compiles_first(run.kernel, gpus):
            terminal.say(f"Testing {run.kernel}, for minutes this time, to compile GPU code")
        log = experiment.folder / f"{run.self_test}.log"
        found = experiment.self_tests[run.self_test] = self_test.test(run.kernel, on, gpus, log=log)
        if found.reason is not None:
            warn(found.in_words)
