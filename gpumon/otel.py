"""This module exports the latest values as OpenTelemetry instruments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from gpumon.errors import required_for
from gpumon.prometheus import MetricsSource
from gpumon.trace_files import prefix_of

UNITS = {
    "percent": "%",
    "bytes": "By",
    "bytes_per_second": "By/s",
    "watts": "W",
    "joules": "J",
    "celsius": "Cel",
    "hertz": "Hz",
    "per_second": "1/s",
}
"""As UCUM writes them, which OpenTelemetry goes by."""


def observe(path: str | os.PathLike[str], meter: Any = None) -> list[str]:
    """Export the latest values of a running recording as OpenTelemetry metrics.

    The meter provider decides where the values are sent, and how often.

    Args:
        path: the trace's path, as given to Monitor.
        meter: an OpenTelemetry meter. None: a meter of the current provider.

    Returns:
        The names of the instruments.

    Raises:
        MonitorError: there is no trace, or opentelemetry-api is not installed.
    """
    with required_for("gpumon.otel.observe"):
        from opentelemetry import metrics as api
    source = MetricsSource(prefix_of(path))
    meter = meter or api.get_meter("gpumon")

    def reader(name: str) -> Callable[[Any], Iterable[Any]]:
        def read(_: Any) -> Iterable[Any]:
            found = [metric for metric in source.metrics() if metric.name == name]
            return [api.Observation(v, labels) for one in found for labels, v in one.samples]

        return read

    names = []
    for metric in source.instruments():
        make = meter.create_observable_counter if metric.counter else None
        make = make or meter.create_observable_gauge
        make(metric.name, [reader(metric.name)], unit=UNITS.get(metric.unit, "1"))
        names.append(metric.name)
    return names
