"""Show a finished run in its notebook: the monitor's chart, and where the time went."""

from __future__ import annotations

from typing import Any

from helpers.errors import UserError
from helpers.frameworks import rank_info
from helpers.record import sections
from helpers.training import attribution, checkpoint, measurement_rounds, samplers, showing
from helpers.training.run_state import RunState

NEEDED = {"training": "run.epochs", "test": "run.test", "files": "run.measure"}
"""Sections of the record that a report needs, and what writes them."""


def chart(run: RunState) -> Any:
    """See :meth:`helpers.run.Run.chart`."""
    _check_done(run, "run.chart", ["training"])
    samplers.stop(run.monitor)
    rank_info.exchange(None)  # rank 0 reads the traces of all hosts
    if run.rank:
        return None
    trace = samplers.read(run.folder)
    utilisation = trace.summary()
    run.record.add("monitor", trace.metadata())
    run.record.add("energy", sections.energy(utilisation))
    run.record.add("memory", sections.memory(utilisation, run.held))
    return trace.plot()


def report(run: RunState) -> None:
    """See :meth:`helpers.run.Run.report`."""
    _check_done(run, "run.report", list(NEEDED))
    if not rank_info.exchange("monitor" in run.record.content)[0]:
        chart(run)
    if run.rank:
        return
    _show_results(run)
    path = run.record.finish()
    print(f"{path}\nWrite the report with: .venvs/lab/bin/rosetta report {path.parents[1].name}")
    # Last: only a run that is whole needs none any more.
    (run.folder / checkpoint.FILE).unlink(missing_ok=True)


def _show_results(run: RunState) -> None:
    """Show where the time of an epoch went, and all that was measured."""
    content: Any = run.record.content
    shares = attribution.attribute(
        content,
        devices=run.setup.short,
        resumed_after=run.start.epoch,
        replicas=run.setup.replicas,
    )
    run.record.add("attribution", shares)
    print(shares["sentence"])
    for text in measurement_rounds.scattered(content):
        print(f"{text[0].upper()}{text[1:]}.")
    showing.table(run, showing.summary(run.record.content))


def _check_done(run: RunState, what: str, needed: list[str]) -> None:
    """Raises UserError where something has to run first."""
    run.check_parameters()
    missing = [NEEDED[name] for name in needed if name not in run.record.content]
    if missing and not run.rank:
        raise UserError(
            f"{what} needs {' and '.join(missing)}, which did not run to the end: run "
            "the training cell first"
        )
