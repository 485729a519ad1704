"""This module formats the latest values as Prometheus text and as OpenMetrics.

``gpu0/memory used (MiB)`` is ``gpumon_memory_used_bytes{device="gpu0",...}``: base units, in the
name as both formats want them. A series that is not available is left out, as they have it too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNITS = {
    "%": ("percent", 1.0),
    "MiB": ("bytes", 2.0**20),
    "MiB/s": ("bytes_per_second", 2.0**20),
    "W": ("watts", 1.0),
    "J": ("joules", 1.0),
    "C": ("celsius", 1.0),
    "MHz": ("hertz", 1e6),
    "bits": ("bits", 1.0),
    "count": ("", 1.0),
    "cores": ("cores", 1.0),
    "1/s": ("per_second", 1.0),
}
# What only grows: Prometheus takes its rate, and wants to see it in the name.
COUNTERS = ("J",)


@dataclass
class Metric:
    """One metric of all devices. name: with its unit and without ``_total``; counter: else a gauge.

    samples: labels and value.
    """

    name: str
    unit: str
    counter: bool
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return self.name + ("_total" if self.counter else "")


def metrics(header: dict[str, Any], values: Mapping[str, float]) -> list[Metric]:
    """The metrics of a trace's header and the latest value of each of its series."""
    devices = {device["name"]: device for device in header["devices"]}
    found: dict[str, Metric] = {}
    for key, value in values.items():
        parsed = re.fullmatch(r"([^/]+)/(.+) \((.+)\)", key)
        if parsed is None or math.isnan(value):
            continue
        device, quantity, unit = parsed.groups()
        labels = {"device": device, "host": str(header["host"])}
        core = re.fullmatch(r"cpu(\d+)", quantity)
        if core:
            quantity, labels["core"] = "cpu core", core.group(1)
        for name in ("uuid", "product", "cuda"):
            text = devices.get(device, {}).get(name)
            if text not in (None, ""):
                labels[name] = str(text)
        suffix, factor = UNITS.get(unit, (unit, 1.0))
        owner = device.rpartition(":")[2]
        owner = owner if owner in ("sampler", "process") else ""
        words = ["gpumon", owner, quantity, suffix]
        metric = re.sub(r"[^a-z0-9_]+", "_", "_".join(filter(None, words)).lower())
        one = found.setdefault(metric, Metric(metric, suffix, unit in COUNTERS))
        one.samples.append((labels, value * factor))
    return list(found.values())


def prometheus(metrics: Sequence[Metric]) -> str:
    """Prometheus' text format, version 0.0.4."""
    lines = []
    for metric in metrics:
        kind = "counter" if metric.counter else "gauge"
        lines += [f"# TYPE {metric.full_name} {kind}", *_samples(metric)]
    return "\n".join(lines) + "\n"


def openmetrics(metrics: Sequence[Metric]) -> str:
    """OpenMetrics 1.0.0."""
    lines = []
    for metric in metrics:
        kind = "counter" if metric.counter else "gauge"
        unit = re.sub(r"[^a-z0-9_]+", "_", metric.unit)
        lines.append(f"# TYPE {metric.name} {kind}")
        if unit and metric.name.endswith(f"_{unit}"):
            lines.append(f"# UNIT {metric.name} {unit}")
        lines += _samples(metric)
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(metric: Metric) -> list[str]:
    return [
        f"{metric.full_name}{{"
        + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        + f"}} {value:.10g}"
        for labels, value in metric.samples
    ]


def _escaped(text: str) -> str:
    return str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
