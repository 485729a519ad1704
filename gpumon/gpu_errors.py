"""This module counts a GPU's hardware errors: XIDs, ECC errors, remapped rows, retired pages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any

from gpumon.compat import zip_strict
from gpumon.nvml import Device, failure, function_of, nvml, query
from gpumon.series import Series, Source, Unavailable

MOST_AT_ONCE = 16
TIMEOUT = 10
"""NVML's code for: no event came."""
WAIT = "nvmlEventSetWait_v2"
XID = 0x8
COUNTED = {"corrected": 0, "uncorrected": 1}


def hardware_sources(device: Device) -> list[Source]:
    """A whole GPU's errors as counts since the start, each new one an event with its number."""
    try:
        query(nvml().nvmlDeviceGetRemappedRows, device.handle)
    except Unavailable as error:
        if error.permanent:
            return [_xids(device), _errors(device), _pages(device)]
    return [_xids(device), _errors(device), _rows(device)]


def _xids(device: Device) -> Source:
    """NVML keeps XIDs in a queue from the moment it is asked to."""
    pynvml = nvml()
    event = pynvml.c_nvmlEventData_t()
    wait = function_of(WAIT)
    queue: list[Any] = []
    count = [0]

    def read() -> list[float]:
        if not queue:
            made = query(pynvml.nvmlEventSetCreate)
            try:
                query(pynvml.nvmlDeviceRegisterEvents, device.handle, XID, made)
            except Unavailable:
                with contextlib.suppress(Unavailable):
                    query(pynvml.nvmlEventSetFree, made)
                raise
            queue.append(made)
        for _ in range(MOST_AT_ONCE):
            if code := wait(queue[0], byref(event), 0):
                if code == TIMEOUT:
                    break
                raise failure(WAIT, code)
            if event.eventType == XID:
                count[0] += 1
                source.pending_events.append(
                    ("xid", {"device": device.name, "xid": int(event.eventData)})
                )
        return [float(count[0])]

    series = [Series(f"{device.name}/XIDs (count)", f"{WAIT}, since the start")]
    source = Source(device.name, series, read, 1.0)
    return source


def _errors(device: Device) -> Source:
    pynvml = nvml()

    def counts() -> list[int]:
        call, volatile = pynvml.nvmlDeviceGetTotalEccErrors, pynvml.NVML_VOLATILE_ECC
        return [int(query(call, device.handle, kind, volatile)) for kind in COUNTED.values()]

    names = [f"ECC errors {kind} (count)" for kind in COUNTED]
    return _counter(device, "ecc", names, list(COUNTED), counts, "nvmlDeviceGetTotalEccErrors")


def _rows(device: Device) -> Source:
    """Rows of memory that spare ones have taken the place of (Ampere and later)."""
    pynvml = nvml()

    def counts() -> list[int]:
        corrected, uncorrected, pending, failed = query(
            pynvml.nvmlDeviceGetRemappedRows, device.handle
        )
        return [corrected + uncorrected, pending, failed]

    names = [f"remapped rows{which} (count)" for which in ("", " pending", " failed")]
    kinds = ["done", "pending", "failed"]
    return _counter(device, "remapped", names, kinds, counts, "nvmlDeviceGetRemappedRows")


def _pages(device: Device) -> Source:
    """Pages of memory that were taken out of use (before Ampere, which has no spare rows)."""
    pynvml = nvml()
    fields = [
        getattr(pynvml, f"NVML_FI_DEV_RETIRED_{what}", number)
        for what, number in (("SBE", 29), ("DBE", 30), ("PENDING", 31))
    ]
    api = f"nvmlDeviceGetFieldValues {fields}"

    def counts() -> list[int]:
        values = query(pynvml.nvmlDeviceGetFieldValues, device.handle, fields)
        for value in values:
            # The call succeeds, whatever became of the fields.
            if value.nvmlReturn:
                raise failure(api, value.nvmlReturn)
        corrected, uncorrected, pending = (int(value.value.ullVal) for value in values)
        return [corrected + uncorrected, pending]

    names = ["retired pages (count)", "retired pages pending (count)"]
    return _counter(device, "retired", names, ["done", "pending"], counts, api)


def _counter(
    device: Device,
    event: str,
    names: Sequence[str],
    kinds: Sequence[str],
    counts: Callable[[], list[int]],
    api: str,
) -> Source:
    """Counts since the start; where one grows, an event."""
    first: list[int] = []
    last: list[int] = []

    def read() -> list[float]:
        now = counts()
        if not first:
            first.extend(now)
            last.extend(now)
        for kind, new, old in zip_strict(kinds, now, last):
            if new > old:
                details = {"device": device.name, "kind": kind, "count": new - old}
                source.pending_events.append((event, details))
        last[:] = now
        # A reset of the driver begins to count anew.
        return [float(max(0, new - begun)) for new, begun in zip_strict(now, first)]

    series = [Series(f"{device.name}/{name}", f"{api}, since the start") for name in names]
    source = Source(device.name, series, read, 10.0)
    return source
