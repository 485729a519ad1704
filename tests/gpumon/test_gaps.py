"""What was not measured is shown as a gap and is in no number."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpumon_tools import Spans, data_of, row_of, said_by, write
from matplotlib.collections import PolyCollection
from runner_tools import wait_for
from test_charts import lanes

import gpumon
from gpumon.drawing import timeline

# Full until 2 s, then nothing is known until 9 s, then a fifth: the value of 2 s holds until 3 s.
STEPS: list[float | None] = [100, 100, 100, *[None] * 6, 20, 20, 20]
HOLE = range(3, 9)
GAP = (3.0, 9.0)
TRAIN: Spans = (("train", 0.0, 12.0, {"items": 600}),)


def holed(folder: Path, **more: Any) -> gpumon.Trace:
    return gpumon.read(write(folder / "t", {"gpu0": STEPS}, without=HOLE, **more))


def test_a_hole_is_nan_and_an_event(tmp_path: Path) -> None:
    trace = holed(tmp_path)
    frame = trace.to_pandas()
    assert frame.loc[3.0].isna().all() and frame.drop(index=3.0).notna().all(axis=None)
    gap = {"t": 3.0, "event": "gap", "seconds": 6.0, "reason": "there is no sample"}
    assert trace.metadata()["events"] == [gap]
    assert trace.metadata()["cadence"]["samples"] == 6


def test_a_hole_is_in_no_sum_and_no_mean(tmp_path: Path) -> None:
    found = row_of(holed(tmp_path, spans=TRAIN))
    assert (found["seconds"], found["measured (s)"]) == (12, 6)
    assert found["utilisation mean (%)"] == pytest.approx(60)
    assert found["energy (J)"] == pytest.approx(600)  # 100 W for the six seconds
    assert found["energy covers (s)"] == pytest.approx(6)
    together = row_of(holed(tmp_path, spans=TRAIN), device="gpus")
    assert together["energy (J)"] == pytest.approx(600)
    # 50 items/s at 100 W: the items of the hole are left out as its joules are.
    assert together["items/J"] == pytest.approx(0.5)


def test_the_counters_growth_in_a_hole_is_left_out_too(tmp_path: Path) -> None:
    counter: list[float | None] = [0, 100, 200, *[None] * 6, 5000, 5100, 5200]
    found = row_of(holed(tmp_path, spans=TRAIN, energy=counter))
    assert found["energy (J)"] == pytest.approx(400)
    assert found["energy covers (s)"] == pytest.approx(4)


def test_holes_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    steps: list[float | None] = [*[None] * 5, 40, 40, *[None] * 5]
    path = write(tmp_path / "t", {"gpu0": steps}, without=[*range(5), *range(7, 12)], spans=TRAIN)
    trace = gpumon.read(path)
    assert [(gap["t"], gap["seconds"]) for gap in trace.recording.gaps] == [(0, 5), (7, 5)]
    assert row_of(trace)["measured (s)"] == pytest.approx(2)
    assert row_of(trace)["energy (J)"] == pytest.approx(200)


def test_a_program_that_outlives_its_sampler_leaves_a_gap(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"gpu0": [80] * 4}, spans=(("train", 0.0, 20.0, {"items": 20}),))
    lines = path.with_name("t.jsonl").read_text().splitlines()[:-1]  # it was killed: no end
    path.with_name("t.jsonl").write_text("\n".join(lines) + "\n")
    trace = gpumon.read(path)
    assert trace.recording.end == 20 and trace.recording.gaps[0]["t"] == 4
    whole = row_of(trace, "(all)", "gpus")
    assert whole["seconds"] == 20 and whole["measured (s)"] == 4
    assert whole["items/J"] == pytest.approx(1 / 100)


def reaches_into(xs: Any, ys: Any, gap: tuple[float, float]) -> bool:
    """Whether a line has a stroke inside the gap."""
    pairs = zip(xs[:-1], xs[1:], ys[:-1], ys[1:], strict=True)
    return any(
        max(a, gap[0]) < min(b, gap[1]) for a, b, u, v in pairs if not np.isnan([u, v]).any()
    )


def test_matplotlibs_lines_and_areas_break(tmp_path: Path) -> None:
    trace = holed(tmp_path)
    for chart in (trace.plot(), gpumon.compare({"a": trace})):
        for axes in lanes(chart):
            assert len(axes.lines) and len(axes.collections)
            for line in axes.lines:
                xs, ys = np.asarray(line.get_xdata()), np.asarray(line.get_ydata(), float)
                assert not reaches_into(xs, ys, GAP)
                assert max(xs[~np.isnan(ys)]) == 12 and 3.0 in xs[~np.isnan(ys)]
            for area in axes.collections:
                assert isinstance(area, PolyCollection)
                for path in area.get_paths():
                    xs = np.asarray(path.vertices, float)[:, 0]
                    assert xs.max() <= GAP[0] or xs.min() >= GAP[1]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("dense", [1, 400])
def test_the_web_charts_lines_break(tmp_path: Path, several: bool, dense: int) -> None:
    values = [step for step in STEPS for _ in range(dense)]
    hole = range(HOLE.start * dense, HOLE.stop * dense)
    path = write(tmp_path / "t", {"gpu0": values, "gpu1": values}, step=1 / dense, without=hole)
    trace = gpumon.read(path)
    page = timeline.comparison_fragment({"a": trace.recording}) if several else trace.html()
    for lane in data_of(page)["lanes"]:
        times = lane["t"]
        assert times[-1] == 12
        for line in lane["lines"]:
            held = [(a, b) for a, b, v in zip(times, times[1:], line["v"], strict=False) if v]
            assert all(b <= GAP[0] + 0.02 or a >= GAP[1] - 0.02 for a, b in held)
            assert max(b for _, b in held) == 12


def test_merging_does_not_fill_what_one_trace_lacks(tmp_path: Path) -> None:
    a = write(tmp_path / "a", {"gpu0": [70] * 12}, without=HOLE)
    b = write(tmp_path / "b", {"gpu1": [30] * 20}, rank=1)
    c = write(tmp_path / "c", {"gpu2": [50] * 5}, rank=2)
    d = write(tmp_path / "d", {"gpu3": [50] * 20}, rank=3, without=range(3, 18))
    frame = gpumon.read([a, b]).to_pandas()["gpu0/utilisation (%)"]
    assert frame.loc[3.0:8.5].isna().all() and frame.loc[12.0:].isna().all()
    assert frame.loc[9.0:11.5].eq(70).all()
    alone = gpumon.read([c, d])  # nothing is sampled between 5 s, where c ends, and 18 s
    summary = alone.summary().set_index(["phase", "device"])
    assert summary.loc[("(all)", "gpu2"), "measured (s)"] == pytest.approx(5)
    assert summary.loc[("(all)", "gpu3"), "energy (J)"] == pytest.approx(500)
    assert [gap["seconds"] for gap in alone.recording.gaps] == [15]


def test_a_stopped_sampler_leaves_a_gap_with_its_reason(tmp_path: Path) -> None:
    with gpumon.Monitor(tmp_path / "t", interval=0.02) as monitor:
        sampler = monitor.read().header["sampler"]
        wait_for(lambda: len(monitor.read().to_pandas()) > 3)
        os.kill(sampler, signal.SIGSTOP)
        before = len(monitor.read().recording.sampled)
        time.sleep(0.4)
        os.kill(sampler, signal.SIGCONT)
        wait_for(lambda: len(monitor.read().recording.sampled) > before + 3)
    trace = monitor.read()
    gap = max(trace.recording.gaps, key=lambda gap: gap["seconds"])
    assert gap["seconds"] > 0.2 and "stopped" in gap["reason"]
    assert trace.to_pandas().loc[gap["t"]].isna().all()
    whole = trace.summary().query("phase == '(all)' and device == 'host'").iloc[0]
    assert whole["measured (s)"] <= whole["seconds"] - gap["seconds"] + 1e-3
    assert "stopped" in said_by(trace.plot())
    assert "stopped" in trace.html()
