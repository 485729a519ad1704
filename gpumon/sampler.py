"""``python -m gpumon.sampler CONFIG`` is the sampling process, which only Monitor starts.

It writes each sample at once, so that a kill loses one at most. It ends when standard input says
so, when its parent is gone, or on SIGTERM. It prints ``ready``, ``warning: ...`` or ``error: ...``.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from gpumon.gpu import cached, gpu_sources
from gpumon.host import host_description, host_sources, limit_source, process_source, tree
from gpumon.launch import boot_id
from gpumon.nvml import close_nvml, find_devices, open_nvml
from gpumon.series import Scheduler, Source, Unavailable
from gpumon.trace_files import FORMAT, Writer, samples_file, send_message


def collect_sources(
    config: dict[str, Any],
) -> tuple[list[Source], list[dict[str, Any]], dict[str, Any]]:
    """Every source, read once, the devices' descriptions, and what became of NVML."""
    sources: list[Source] = []
    devices: list[dict[str, Any]] = []
    try:
        nvml = open_nvml()
        found = find_devices(config["gpu_ids"], config["visible"], config["order"])
        # The program's processes, and those that its launcher started, where it has one.
        family = cached(lambda: tree(config["program_root"]))
        for device in found:
            devices.append(device.describe())
            sources += gpu_sources(device, family)
        if not found:
            nvml["reason"] = (
                f"CUDA_VISIBLE_DEVICES={config['visible']!r} hides every GPU"
                if config["visible"] is not None
                else "the NVIDIA driver sees no GPU"
            )
    except Unavailable as error:
        nvml = _without_gpus(config, error)
    devices.append(host_description())
    root = config["process_root"]
    sources += [*host_sources(), process_source(root), limit_source(root)]
    for source in sources:
        source.first_read()
    return sources, devices, nvml


def _without_gpus(config: dict[str, Any], error: Unavailable) -> dict[str, Any]:
    """The header's entry for NVML without GPUs; an error if the user asked for certain GPUs."""
    if error.wrong_request:
        raise error
    if config["gpu_ids"]:
        wanted = ", ".join(map(str, config["gpu_ids"]))
        what = f"no GPU {wanted} on this machine" if error.code is None else f"no GPU {wanted}"
        raise Unavailable(f"{what}: {error}", wrong_request=True)
    code = {} if error.code is None else {"code": error.code}
    return {"available": False, "reason": str(error), **code}


def header_of(
    config: dict[str, Any], sources: list[Source], devices: list[Any], nvml: dict[str, Any]
) -> dict[str, Any]:
    uname = os.uname()
    return {
        "gpumon": FORMAT,
        "start (monotonic s)": time.monotonic(),
        "start (unix s)": time.time(),
        "version": config["version"],
        "host": uname.nodename,
        "system": f"{uname.sysname} {uname.release}",
        "boot": boot_id(),
        "rank": config["rank"],
        "sampler": os.getpid(),
        "interval (s)": config["interval"],
        "nvml": nvml,
        "devices": devices,
        "series": [text for source in sources for text in source.describe()],
    }


def loop(scheduler: Scheduler, start: float, parent: int) -> dict[str, Any]:
    """Sample until a stop request; returns why it ended, and how many samples it took."""
    number = missed = samples = 0
    stopping: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append("terminated"))
    while True:
        scheduler.tick(number, time.monotonic() - start)
        samples += 1
        # Missed ticks are skipped, never crowded together, and the grid stays where it was.
        late = time.monotonic() - start
        following = max(number + 1, int(late / scheduler.interval) + 1)
        missed += following - number - 1
        number = following
        if scheduler.interval < scheduler.writer.interval:  # the trace was thinned out
            scheduler.plan(scheduler.writer.interval)
            number = int(late / scheduler.interval) + 1
        wait = start + number * scheduler.interval - time.monotonic()
        readable, _, _ = select.select([0], [], [], max(0.0, wait))
        if readable:
            request = os.read(0, 64)
            reason = "closed" if request else "parent gone"
        elif stopping:
            reason = stopping[0]
        elif os.getppid() != parent:
            # Forked children of the program may still hold the pipe, so its end is not enough.
            reason = "parent gone"
        else:
            continue
        scheduler.tick(number, time.monotonic() - start)
        return {"why": reason, "samples": samples, "missed": missed}


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = json.loads(arguments[0])
    try:
        sources, devices, nvml = collect_sources(config)
    except Unavailable as error:
        send_message(f"error: {error}")
        return 2
    gc.collect()
    gc.freeze()
    header = header_of(config, sources, devices, nvml)
    start = header["start (monotonic s)"]
    writer = Writer(samples_file(Path(config["path"])))
    writer.line(header)
    scheduler = Scheduler(sources, config["interval"], writer)
    send_message("ready")
    ended = loop(scheduler, start, config["parent"])
    ended["sampler cpu (s)"] = round(time.process_time(), 3)
    ended["sampler memory (MiB)"] = round(psutil.Process().memory_info().rss / 2**20, 1)
    writer.event(time.monotonic() - start, "end", **ended)
    writer.close()
    close_nvml()
    return 0


def capabilities() -> dict[str, Any]:
    """Devices, NVML's state, and every series with its API or the reason why it is missing."""
    # The shell's tree: this very process takes the sampler's part and does not count itself.
    sources, devices, nvml = collect_sources(
        {
            "gpu_ids": None,
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "order": os.environ.get("CUDA_DEVICE_ORDER"),
            "process_root": os.getppid(),
            "program_root": os.getppid(),
        }
    )
    series = [entry for source in sources for entry in source.describe()]
    close_nvml()
    return {"nvml": nvml, "devices": devices, "series": series}


def describe(found: dict[str, Any]) -> str:
    """The same as text, a paragraph a device."""
    nvml = found["nvml"]
    lines = [f"NVIDIA driver {nvml.get('driver')}, NVML {nvml.get('nvml')}"]
    if nvml.get("reason"):
        lines = [f"GPUs: {'unknown' if nvml.get('code') else 'none'}. {nvml['reason']}"]
    for device in [*found["devices"], {"name": "process"}]:
        cuda = f"cuda:{device['cuda']}" if device.get("cuda") is not None else ""
        words = (device["name"], cuda, device.get("product"), device.get("uuid"))
        lines += ["", "  ".join(filter(None, words))]
        for entry in found["series"]:
            owner, _, label = entry["key"].partition("/")
            # One core stands for all.
            if owner == device["name"] and not re.fullmatch(r"cpu[1-9]\d* \(%\)", label):
                known = "no " if entry["reason"] else "yes"
                lines.append(f"  {known}  {label}: {entry['reason'] or entry['api']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
