"""Collect the monitor's traces for the report's timeline."""

from gpumon.errors import MonitorError
from gpumon.recording import Recording
from helpers.results.comparison import Comparison, widest
from helpers.training import samplers


def traces(compared: Comparison) -> tuple[dict[str, Recording], list[str]]:
    """Each label's last run on its most devices, by label; and the runs without a trace."""
    found, without = {}, []
    for last in widest(compared.entries):
        try:
            found[last.label] = samplers.read(last.folder).recording
        except MonitorError:
            without.append(last.run)
    return found, without
