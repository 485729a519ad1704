"""What tests of the monitor share: traces written by hand, and scripts for the fake driver."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import fake_nvml
import pytest

import gpumon

ROOT = Path(__file__).resolve().parents[1]
START = 1000.0
Spans = tuple[tuple[str, float, float, dict[str, Any]], ...]
Play = Callable[..., gpumon.Trace]


def python(
    *words: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that knows this checkout, and every GPU."""
    known = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**known, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def played(
    folder: Path,
    patch: pytest.MonkeyPatch,
    script: str,
    *,
    samples: int = 12,
    interval: float = 0.02,
    old_driver: bool = False,
    gpu_ids: list[str | int] | None = None,
    visible: str | None = None,
) -> gpumon.Trace:
    """Record a while with a script as the driver and give the trace."""
    (folder / "script").write_text(script)
    for name, text in fake_nvml.environment(folder / "script", old_driver).items():
        patch.setenv(name, text)
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        patch.delenv(name, raising=False)
    if visible is not None:
        patch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with gpumon.Monitor(folder / "trace", interval=interval, gpu_ids=gpu_ids):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if (folder / "trace.jsonl").read_text().count("\n") > samples + 1:
                break
            time.sleep(interval)
    return gpumon.read(folder / "trace")


@pytest.fixture(name="play")
def play_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    return partial(played, tmp_path, monkeypatch)


def gpu(number: int, lines: str = "") -> str:
    base = fake_nvml.H200.format(gpu=number)
    return base + "\n".join(f"{number} {line}" for line in lines.strip().splitlines()) + "\n"


def row_of(trace: gpumon.Trace, phase: str = "train", device: str = "gpu0") -> Any:
    """A row of the summary."""
    return trace.summary().set_index(["phase", "device"]).loc[(phase, device)]


def reasons_of(trace: gpumon.Trace) -> dict[str, Any]:
    """By series, why it is missing."""
    return {series["key"]: series["reason"] for series in trace.metadata()["series"]}


def changes(values: list[float]) -> list[float]:
    """The values without repeats, as a script's steps come out whatever the timing."""
    values = [value for value in values if not math.isnan(value)]  # a busy machine leaves gaps
    return [v for i, v in enumerate(values) if i == 0 or v != values[i - 1]]


def said_by(chart: Any) -> str:
    """The title of a chart and its notes, on one line."""
    return " ".join(" ".join(text.get_text().split()) for text in chart.texts)


def data_of(page: str) -> dict[str, Any]:
    """What the interactive chart of a page draws."""
    found = re.search(r'<script type="application/json">(.*?)</script>', page)
    assert found is not None
    return dict(json.loads(found[1]))


def write(
    prefix: Path,
    gpus: dict[str, list[float | None]],
    *,
    step: float = 1.0,
    spans: Spans = (),
    start: float = START,
    unix: float = 1.8e9,
    boot: str | None = "boot-a",
    host: str = "node",
    rank: int | None = None,
    power: float | None = 100.0,
    energy: list[float | None] | None = None,
    process: int = 7,
    without: Sequence[int] = (),
    events: Sequence[dict[str, Any]] = (),
    more: dict[str, list[float | None]] | None = None,
) -> Path:
    """A trace of GPUs with the given utilisation a step, and of a host at 50 %.

    energy: the counter of every GPU, if they have one. without: samples that were not written.
    more: further series, by their keys.
    """
    keys: list[str] = []
    devices: list[dict[str, Any]] = []
    for name in gpus:
        keys += [f"{name}/utilisation (%)", f"{name}/memory used (MiB)", f"{name}/power (W)"]
        devices.append(
            {
                "name": name,
                "kind": "gpu",
                "uuid": f"GPU-{host}-{name}",
                "product": "NVIDIA H200",
                "memory total (MiB)": 1000,
                "power limit (W)": 700.0,
            }
        )
    keys += ["host/cpu (%)", "host/memory used (MiB)"]
    devices.append({"name": "host", "kind": "host", "cores": 4, "memory total (MiB)": 8000})
    header: dict[str, Any] = {
        "gpumon": 1,
        "version": "0",
        "host": host,
        "system": "Linux",
        "boot": boot,
        "rank": rank,
        "program": "p",
        "sampler": zlib.crc32(bytes(prefix)),  # each has its own
        "interval (s)": step,
        "nvml": {"available": True} if gpus else {"available": False, "reason": "no driver"},
        "devices": devices,
        "series": [{"key": key, "api": "", "every (s)": 0, "reason": None} for key in keys],
        "start (monotonic s)": start,
        "start (unix s)": unix,
    }
    for name in gpus if energy else ():
        header["series"].append({"key": f"{name}/energy (J)", "api": "", "reason": None})
    for key in more or {}:
        header["series"].append({"key": key, "api": "", "reason": None})
    count = max((len(values) for values in gpus.values()), default=4)
    lines = [json.dumps(header), *map(json.dumps, events)]
    for number in range(count):
        if number in without:
            continue
        row: list[Any] = [number * step]
        for place, values in enumerate(gpus.values()):
            row += [3 * place, values[number], 3 * place + 1, 100 + number, 3 * place + 2, power]
        row += [len(keys) - 2, 50, len(keys) - 1, 4000]
        for place in range(len(gpus) if energy else 0):
            row += [len(keys) + place, (energy or [])[number]]
        for place, values in enumerate(
            (more or {}).values(), len(header["series"]) - len(more or {})
        ):
            row += [place, values[number]]
        lines.append(json.dumps(row))
    end = {"t": count * step, "event": "end", "why": "closed"}
    end |= {"sampler cpu (s)": 0.01, "sampler memory (MiB)": 30}
    lines.append(json.dumps(end))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_name(prefix.name + ".jsonl").write_text("\n".join(lines) + "\n")
    text = ['{"gpumon phases": 1}']
    for number, (name, begin, stop, attributes) in enumerate(spans):
        text.append(
            json.dumps(["B", int((start + begin) * 1e9), process, number, name, attributes])
        )
        text.append(json.dumps(["E", int((start + stop) * 1e9), process, number]))
    prefix.with_name(prefix.name + ".phases.jsonl").write_text("\n".join(text) + "\n")
    return prefix
