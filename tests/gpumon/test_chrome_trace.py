"""Chrome traces, and phases as decorators."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpumon_tools import Marks, python, write

import gpumon
from gpumon import export

MARKS: Marks = (("train", 1.0, 3.0, {"epoch": 1}), ("train/step", 1.0, 2.0, {}))


def test_chromes_trace_has_slices_and_counters(tmp_path: Path) -> None:
    marks: Marks = (*MARKS, ("crossing", 2.5, 4.0, {}))
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [10, 10, None, 40]}, marks=marks))
    content = json.loads(trace.export(tmp_path / "t.json").read_text())
    assert content[export.BASE] == 1_800_000_000_000_000_000
    slices = {e["name"]: e for e in content["traceEvents"] if e["ph"] == "X"}
    assert (slices["train"]["ts"], slices["train"]["dur"]) == (1e6, 2e6)
    assert slices["train"]["tid"] == slices["train/step"]["tid"] != slices["crossing"]["tid"]
    busy = [e for e in content["traceEvents"] if e["name"] == "utilisation (%)"]
    assert [(e["ts"], e["args"]["value"]) for e in busy] == [(0, 10), (3e6, 40)]


def test_a_phase_decorates_functions_and_coroutines(tmp_path: Path) -> None:
    marker = gpumon.Marker(tmp_path / "marks")

    @marker.phase("load", kind="fast")
    def load(depth: int) -> int:
        return 1 + (load(depth - 1) if depth else 0)

    @marker.phase("fetch")
    async def fetch(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return marker.current

    async def both() -> list[str]:
        with marker.phase("run"):
            return list(await asyncio.gather(fetch(0.02), fetch(0.01)))

    assert load(1) == 2 and load.__name__ == "load"
    assert asyncio.run(both()) == ["run/fetch", "run/fetch"]
    with pytest.raises(gpumon.MonitorError, match="cannot decorate a generator"):

        @marker.phase("batches")
        def batches() -> Iterator[int]:
            yield 1

    lines = [json.loads(line) for line in (tmp_path / "marks").read_text().splitlines()]
    opened = [(line[4], line[5]) for line in lines if line[0] == "B"]
    assert opened[:2] == [("load", {"kind": "fast"}), ("load/load", {"kind": "fast"})]
    assert [name for name, _ in opened[2:]] == ["run", "run/fetch", "run/fetch"]
    assert len(lines) == 10


def test_without_a_recorder_a_phase_decorates_nothing() -> None:
    code = "import gpumon\n@gpumon.phase('x')\ndef f(): return 3\nprint(f())"
    done = python("-c", code, GPUMON_TRACE="")
    assert done.stdout == "3\n", done.stderr
