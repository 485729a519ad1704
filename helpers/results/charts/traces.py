"""Collect the monitor's traces for the report's timeline."""

from dataclasses import replace

import gpumon
from gpumon.errors import MonitorError
from helpers.launch import samplers
from helpers.results.comparison import Comparison, widest

EPOCHS = ("train", "validate")


def traces(compared: Comparison) -> tuple[dict[str, gpumon.Trace], list[str]]:
    """Each label's trace on its most devices, by its name; and the runs that have none.

    It ends with training, so that a longer lane is a slower run. It is the last run's, else that of
    the last repeat with a trace, which its name says then.
    """
    found, without = {}, []
    for last in widest(compared.entries):
        repeats = [
            entry
            for entry in compared.entries
            if (entry.label, entry.devices) == (last.label, last.devices)
            and (entry is last or entry.variant)
        ]
        for entry in reversed(repeats):
            try:
                trace = samplers.read(entry.folder)
            except MonitorError:
                continue
            name = entry.label if entry is last else f"{entry.label} {entry.variant}"
            found[name] = _training(trace)
            break
        else:
            without.append(last.run)
    return found, without


def _training(trace: gpumon.Trace) -> gpumon.Trace:
    """The trace until its last epoch ends; the whole trace where no epoch was marked."""
    whole = trace.recording
    end = max((mark.end for mark in whole.marks if mark.name in EPOCHS), default=whole.end)
    cut = replace(
        whole,
        frame=whole.frame.loc[:end],
        events=[event for event in whole.events if event["t"] <= end],
        marks=[mark for mark in whole.marks if mark.start < end],
        end=end,
    )
    return gpumon.Trace(cut)
