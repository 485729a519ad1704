"""What ``compare`` does with the probe: each kernel of a batch on its GPUs, before the first run.

Not on CPU devices: there it would add a minute to a batch and tell nothing that the
notebooks' fairness checks do not, for no driver, no GPU and no NCCL is in it.
"""

from typing import Any, Protocol

from helpers import terminal
from helpers.frameworks import NOTEBOOKS, devices, installed
from helpers.runner import kernel_processes
from helpers.runner.experiment import Batch
from helpers.runner.plans import RunState
from helpers.runner.self_test import starting


class Shown(Protocol):
    """Where a batch shows what it does (``helpers.runner.progress_board``)."""

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...


def probe(batch: Batch, shown: Shown) -> None:
    """Probe each kernel, on each number of GPUs, that the batch still has to run on.

    What it came to is in ``batch.probes``. When a batch is resumed it is found out again: the
    driver may have changed meanwhile, and what broke may work.

    Raises:
        OSError: a probe's log cannot be written.
    """
    for state in batch.runs:
        if state.kernel not in NOTEBOOKS or _key(state) in batch.probes or batch.is_finished(state):
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
                kernel_processes.MARK: str(batch.folder),
                "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in chosen),
            },
            log=batch.folder / _log(state),
            shared_gpus=state.shared_gpus,
        )
        batch.probes[_key(state)] = found
        if found.reason is None:
            shown.note(f"      works, probed in {terminal.clock(found.seconds)}")
        else:
            shown.warn(_failed(state, found))


def problem(batch: Batch, state: RunState) -> str | None:
    """Why a run is not to be tried, in one line; None where its probe found nothing, or none was.

    The probe's own output is beside the runs, in the log that is named.
    """
    found = batch.probes.get(_key(state))
    return None if found is None or found.reason is None else _failed(state, found)


def as_record(batch: Batch, state: RunState) -> dict[str, Any]:
    """The record's section ``self_test``, as a dictionary to be merged; {} where none was made."""
    found = batch.probes.get(_key(state))
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
