"""The self-test of each environment on the GPUs of an experiment, before the first run.

Not on CPU devices: there it would add a minute to an experiment and tell nothing that the
notebooks' fairness checks do not, for no driver, no GPU and no NCCL is in it.
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


def probe(experiment: Experiment, shown: Shown) -> None:
    """Probe each kernel, on each number of GPUs, that the experiment still has to run on.

    What it came to is in ``experiment.probes``. When an experiment is resumed it is found out
    again: the driver may have changed meanwhile, and what broke may work.

    Raises:
        OSError: a probe's log cannot be written.
    """
    for state in experiment.runs:
        if (
            state.kernel not in NOTEBOOKS
            or _key(state) in experiment.probes
            or experiment.is_finished(state)
        ):
            continue
        chosen = devices.used(state.devices, state.gpus)
        if not chosen or installed.problem(state.kernel, chosen, state.devices):
            continue  # on the CPU; or the run is skipped for that problem
        names = [chosen[number % len(chosen)].name for number in range(state.devices)]
        on = devices.Devices("gpu", tuple(names), state.shared_gpus)
        shown.note(f"Probing kernel {state.kernel} on {on.short}")
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
        experiment.probes[_key(state)] = found
        if found.reason is None:
            shown.note(f"      works, probed in {terminal.clock(found.seconds)}")
        else:
            shown.warn(_failed(state, found))


def problem(experiment: Experiment, state: RunState) -> str | None:
    """Why a run is not to be tried, in one line; None where its probe found nothing, or none was.

    The probe's own output is beside the runs, in the log that is named.
    """
    found = experiment.probes.get(_key(state))
    return None if found is None or found.reason is None else _failed(state, found)


def as_record(experiment: Experiment, state: RunState) -> dict[str, Any]:
    """The record's section ``self_test``, as a dictionary to be merged; {} where none was made."""
    found = experiment.probes.get(_key(state))
    return {} if found is None else {"self_test": found.as_record()}


def _failed(state: RunState, found: starting.Outcome) -> str:
    return (
        f"kernel '{state.kernel}' failed its probe: {found.reason} ({_log(state)} has the details)"
    )


def _log(state: RunState) -> str:
    return f"{_key(state)}.log"


def _key(state: RunState) -> str:
    """What runs on the same devices of the same kernel share a probe."""
    return devices.run_name(f"probe-{state.kernel}", state.devices, state.shared_gpus)
