"""Show a finished run in its notebook: the monitor's chart, and where the time went."""

from __future__ import annotations

from typing import Any

from helpers.frameworks import rank_info
from helpers.record import sections
from helpers.training import attribution, checkpoint, samplers, showing
from helpers.training.run_state import RunState


def chart(run: RunState) -> Any:
    """See :meth:`helpers.run.Run.chart`."""
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
    if not rank_info.exchange("monitor" in run.record.content)[0]:
        chart(run)
    if run.rank:
        return
    content: Any = run.record.content
    shares = attribution.attribute(content, run.setup.short)
    run.record.add("attribution", shares)
    print(shares["sentence"])
    showing.table(run, showing.summary(run.record.content))
    path = run.record.finish()
    print(f"{path}\nWrite the report with: .venvs/lab/bin/rosetta report {path.parents[1].name}")
    # Last: only a run that is whole needs none any more.
    (run.folder / checkpoint.FILE).unlink(missing_ok=True)
