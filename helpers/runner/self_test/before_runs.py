"""Run the self-test of each environment on the GPUs of an experiment, before the first run.

CPU devices are not tested: the self-test would add a minute to an experiment, and without a
driver, a GPU or NCCL it finds nothing that the notebooks' fairness checks do not find.
"""

from typing import Any, Protocol

from helpers import terminal
from helpers.frameworks import NOTEBOOKS, devices, installed
from helpers.runner import kernel_processes
from helpers.runner.experiments import Experiment
from helpers.runner.plans import RunState
from helpers.runner.self_test import starting


class Shown(Protocol):
    """Where an experiment shows what it does (``helpers.runner.progress_board``)."""

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...


def run_all(experiment: Experiment, shown: Shown) -> None:
    """Test each environment on each number of GPUs that the experiment still has to run on.

    The outcomes are in ``experiment.self_tests``. A resumed experiment repeats the tests, because
    the driver may have changed in the meantime and a broken environment may work now.

    Raises:
        OSError: a self-test's log cannot be written.
    """
    for state in experiment.runs:
        if (
            state.kernel not in NOTEBOOKS
            or _key(state) in experiment.self_tests
            or experiment.is_finished(state)
        ):
            continue
        chosen = devices.used(state.devices, state.gpus)
        if not chosen or installed.problem(state.kernel, chosen, state.devices):
            continue  # on the CPU; or the run is skipped for that problem
        names = [chosen[number % len(chosen)].name for number in range(state.devices)]
        on = devices.Devices("gpu", tuple(names), state.shared_gpus)
        shown.note(f"Testing environment {state.kernel} on {on.short}")
        python, environment = starting.start_of(state.kernel)
        found = starting.run(
            state.kernel,
            "gpu",
            names,
            python=python,
            environment=environment
            | {
                kernel_processes.MARK: str(experiment.folder),
                "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in chosen),
            },
            log=experiment.folder / _log(state),
            shared_gpus=state.shared_gpus,
        )
        experiment.self_tests[_key(state)] = found
        if found.reason is None:
            shown.note(f"      works, tested in {terminal.clock(found.seconds)}")
        else:
            shown.warn(_failed(state, found))


def problem(experiment: Experiment, state: RunState) -> str | None:
    """Return one line that says why a run is skipped; None if its self-test passed or did not run.

    The line names the log with the self-test's output, which is in the experiment's folder.
    """
    found = experiment.self_tests.get(_key(state))
    return None if found is None or found.reason is None else _failed(state, found)


def as_record(experiment: Experiment, state: RunState) -> dict[str, Any]:
    """The record's section ``self_test``, as a dictionary to merge; {} if no self-test ran."""
    found = experiment.self_tests.get(_key(state))
    return {} if found is None else {"self_test": found.as_record()}


def _failed(state: RunState, found: starting.Outcome) -> str:
    return (
        f"environment '{state.kernel}' failed its self-test: {found.reason} "
        f"({_log(state)} has the details)"
    )


def _log(state: RunState) -> str:
    return f"{_key(state)}.log"


def _key(state: RunState) -> str:
    """The name of a self-test, which runs in the same environment on the same devices share."""
    return devices.run_name(f"self-test-{state.kernel}", state.devices, state.shared_gpus)
