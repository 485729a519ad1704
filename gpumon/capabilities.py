"""This module lists what this machine can measure, for the command ``gpumon devices``."""

from __future__ import annotations

import os
from typing import Any

from gpumon.nvml import close_nvml
from gpumon.platforms import check_can_record, unsupported
from gpumon.sampler import collect_sources, probe


def capabilities(interval: float = 0.1) -> dict[str, Any]:
    """Devices, NVML's state, and every series with its API or the reason why it is missing."""
    check_can_record()
    config = {
        "gpu_ids": None,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
        # The shell's tree: this very process takes the sampler's part and does not count itself.
        "parent": os.getppid(),
        "process_root": os.getppid(),
        "program_root": os.getppid(),
        "interval": interval,
    }
    sources, devices, nvml = collect_sources(config)
    probe(sources)
    series = [entry for source in sources for entry in source.describe()]
    close_nvml()
    return {"nvml": nvml, "devices": devices, "series": series}


def describe(found: dict[str, Any]) -> str:
    """The same as text, a paragraph a device."""
    lines = []
    nvml = found["nvml"]
    if nvml.get("reason"):
        lines += [f"GPUs: {'unknown' if nvml.get('code') else 'none'}. {nvml['reason']}", ""]
    else:
        lines += [f"NVIDIA driver {nvml['driver']}, NVML {nvml['nvml']}", ""]
    names = [device["name"] for device in found["devices"]] + ["process", "sampler"]
    for name in names:
        known: dict[str, Any] = next((d for d in found["devices"] if d["name"] == name), {})
        cuda = known.get("cuda")
        words = [name] + ([f"cuda:{cuda}"] if cuda is not None else [])
        lines.append("  ".join([*words, *(known[k] for k in ("product", "uuid") if k in known)]))
        own = [s for s in found["series"] if s["key"].startswith(f"{name}/")]
        cores = [s for s in own if s["key"].startswith("host/cpu") and s["key"][8].isdigit()]
        for entry in own:
            if entry in cores[1:]:
                continue
            label = entry["key"].partition("/")[2]
            if entry in cores and len(cores) > 1:
                label = f"cpu0 to cpu{len(cores) - 1} (%)"
            if entry["reason"]:
                lines.append(f"  no   {label}: {entry['reason']}")
                continue
            cadence = entry.get("driver cadence (s)")
            more = f"; the driver's own cadence {cadence:g} s" if cadence else ""
            lines.append(f"  yes  {label}: {entry['api']}{more}")
        lines.append("")
    if lacking := unsupported():
        lines.append(lacking[:1].upper() + lacking[1:] + ".")
    return "\n".join(lines).rstrip()
