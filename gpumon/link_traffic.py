"""This module measures PCIe and NVLink traffic of GPUs without GPM, from byte counters.

``nvmlDeviceGetPcieThroughput`` would work on more GPUs, but it blocks for 20 ms a direction to
measure, and would wreck the schedule of everything else; so it is not used.
"""

from __future__ import annotations

import time
from typing import Any

from gpumon.compat import zip_strict
from gpumon.nvml import Device, failure, nvml, query
from gpumon.series import Series, Source

ALL_LINKS = 0xFFFFFFFF


def link_sources(device: Device) -> list[Source]:
    pynvml = nvml()
    return [
        _counters(
            device,
            "PCIe",
            [
                getattr(pynvml, "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 197),
                getattr(pynvml, "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 198),
            ],
            2**20,
            "; the other way, nvmlDeviceGetPcieThroughput, blocks for 20 ms and is not used",
        ),
        _counters(
            device,
            "NVLink",
            [
                (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
                (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            ],
            2**10,
            "",
        ),
    ]


def _counters(device: Device, bus: str, fields: list[Any], per_mib: int, excuse: str) -> Source:
    """MiB/s from two counters that only grow; the rate is that since the reading before."""
    pynvml = nvml()
    names = [f"{bus} sent (MiB/s)", f"{bus} received (MiB/s)"]
    api = f"nvmlDeviceGetFieldValues {fields}, difference over time"
    series = [Series(f"{device.name}/{name}", api) for name in names]
    before: list[tuple[float, list[int]]] = []

    def read() -> list[float | None]:
        values = query(pynvml.nvmlDeviceGetFieldValues, device.handle, fields)
        now = time.monotonic()
        for value in values:
            # The call succeeds, whatever became of the fields.
            if value.nvmlReturn:
                error = failure(f"field {value.fieldId}", value.nvmlReturn)
                error.args = (f"{error}{excuse}",)
                # What a driver does not know, it will not learn.
                error.permanent |= error.code == pynvml.NVML_ERROR_INVALID_ARGUMENT
                raise error
        counts = [int(value.value.ullVal) for value in values]
        rates: list[float | None] = [None, None]
        if before and now > before[0][0]:
            then, old = before[0]
            rates = [
                (new - was) / per_mib / (now - then) if new >= was else None
                for new, was in zip_strict(counts, old)
            ]
        before[:] = [(now, counts)]
        return rates

    return Source(device.name, series, read, 0.5)
