"""Collect the monitor's traces for the report's timeline."""

from dataclasses import replace

import gpumon
from gpumon.errors import MonitorError
from helpers.launch import samplers
from helpers.results.comparison import Comparison, widest

EPOCHS = ("train", "validate")


def traces(compared: Comparison) -> tuple[dict[str, gpumon.Trace], list[str]]:
    """The trace of each label's last run on its most devices, by label; and the runs without one.

    It ends with training, so that a longer lane is a slower run.
    """
    found, without = {}, []
    for last in widest(compared.entries):
        try:
            found[last.label] = _training(samplers.read(last.folder))
        except MonitorError:
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
