"""Reading back: numbers over time, merging, exports, charts, on traces written by hand."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from gpumon_tools import START, Spans, row_of, write
from hypothesis import given, settings
from hypothesis import strategies as st

import gpumon
from gpumon import stats


def test_means_are_over_time_within_the_phases_own_edges(tmp_path: Path) -> None:
    write(tmp_path / "t", {"gpu0": [0, 100, 50, 0]}, spans=(("train", 0.5, 2.5, {"items": 20}),))
    trace = gpumon.read(tmp_path / "t")
    row = row_of(trace, "train", "gpu0")
    assert row["seconds"] == pytest.approx(2)
    # half a second of 0, one of 100, half of 50
    assert row["utilisation mean (%)"] == pytest.approx((0 * 0.5 + 100 + 50 * 0.5) / 2)
    assert row["idle share (%)"] == pytest.approx(25)
    assert row["memory peak (MiB)"] == 102
    assert row["energy (J)"] == pytest.approx(200)  # no counter: power times time
    assert row["items/s"] == pytest.approx(10)
    assert row_of(trace, "train", "gpus")["items/J"] == pytest.approx(0.1)
    assert row_of(trace, "(all)", "gpu0")["utilisation mean (%)"] == pytest.approx(37.5)
    assert row_of(trace, "train", "host")["utilisation mean (%)"] == pytest.approx(50)


def test_missing_values_are_neither_zero_nor_time(tmp_path: Path) -> None:
    write(tmp_path / "t", {"gpu0": [80, None, None, 80], "gpu1": [40, 40, 40, 40]}, power=None)
    trace = gpumon.read(tmp_path / "t")
    assert row_of(trace, "(all)", "gpu0")["utilisation mean (%)"] == pytest.approx(80)
    assert row_of(trace, "(all)", "gpu0")["idle share (%)"] == 0
    assert math.isnan(row_of(trace, "(all)", "gpus")["energy (J)"])
    assert trace.metadata()["energy"] == {"gpu0": "not available", "gpu1": "not available"}


def test_repeats_join_or_stand_apart_and_items_count_once(tmp_path: Path) -> None:
    spans: Spans = (
        ("train", 0.0, 1.0, {"epoch": 1, "items": 10}),
        ("train/step", 0.0, 0.5, {"items": 4}),
        ("train", 2.0, 3.0, {"epoch": 2, "items": 30}),
    )
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [0, 0, 100, 0]}, spans=spans))
    row = row_of(trace, "train", "gpu0")
    assert (row["count"], row["seconds"], row["items"]) == (2, 2, 40)
    assert row_of(trace, "(all)", "gpu0")["items"] == 40
    each = trace.summary(by="repeat").query("device == 'gpu0' and phase == 'train'")
    assert list(each["utilisation mean (%)"]) == [0, 100]


spans = st.lists(
    st.tuples(st.floats(0, 50), st.floats(0, 50)).map(lambda pair: (min(pair), max(pair))),
    min_size=1,
    max_size=6,
)


@settings(max_examples=50)
@given(spans=spans, values=st.lists(st.floats(0, 100), min_size=2, max_size=30))
def test_weights_share_out_exactly_the_spans(
    spans: list[tuple[float, float]], values: list[float]
) -> None:
    times = [float(moment) for moment in range(len(values))]
    joined = stats.union(spans)
    weights = stats.weights(times, 50.0, joined)
    assert (weights.seconds > 0).all() and (np.diff(weights.places) > 0).all()
    total = weights.seconds.sum()
    assert total == pytest.approx(sum(end - start for start, end in joined), abs=1e-6)
    if total > 1e-6:
        known = stats.known(np.array(values), weights)
        assert min(known.values) - 1e-6 <= known.mean() <= known.peak() + 1e-6
        # What held for less than a rounding error may be left out, nothing else.
        lasting = known.values[known.seconds > 1e-6].max()
        assert lasting <= known.quantile(1.0) <= known.peak()


def test_ranks_of_one_machine_merge_exactly_and_shared_devices_once(tmp_path: Path) -> None:
    # One boot: the monotonic clock counts, whatever wall time says.
    spans: Spans = (("train", 0, 3, {"items": 5}),)
    a = write(tmp_path / "a", {"gpu0": [10, 10, 10]}, rank=0, spans=spans)
    b = write(
        tmp_path / "b",
        {"gpu0": [99, 99, 99], "gpu1": [30, 30, 30]},
        start=START + 1,
        unix=1.8e9 + 77,
        rank=1,
        process=8,
        spans=spans,
    )
    trace = gpumon.read([a, b])
    assert [device["name"] for device in trace.devices] == ["gpu0", "gpu1", "host"]
    frame = trace.to_pandas()
    assert list(frame.index) == [0, 1, 2, 3]
    assert frame["gpu0/utilisation (%)"].dropna().eq(10).all()
    assert math.isnan(frame["gpu1/utilisation (%)"].iloc[0])
    assert frame["gpu1/utilisation (%)"].iloc[1] == 30
    phases = trace.phases()
    assert list(phases["start (s)"]) == pytest.approx([0, 1], abs=1e-6)
    assert list(phases["rank"]) == [0, 1]
    assert row_of(trace, "train", "gpu1")["items"] == 10
    assert len(trace.metadata()["parts"]) == 2
    assert trace.header["clocks"] == [], "one boot has one clock"
    trace.plot()


def test_csv_round_trip(tmp_path: Path) -> None:
    spans: Spans = (("train", 1.0, 2.0, {}),)
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [1, None, 3]}, spans=spans))
    table = pd.read_csv(trace.export(tmp_path / "t.csv"), index_col=0)
    assert list(table["gpu0/utilisation (%)"].fillna(-1)) == [1, -1, 3]
    assert list(table["phase"].fillna("")) == ["", "train", ""]
    assert pd.Timestamp(table["wall time"].iloc[1]).timestamp() == pytest.approx(1.8e9 + 1)


def test_chromes_trace_has_slices_and_counters(tmp_path: Path) -> None:
    spans: Spans = (
        ("train", 1.0, 3.0, {"epoch": 1}),
        ("train/step", 1.0, 2.0, {}),
        ("crossing", 2.5, 4.0, {}),
    )
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [10, 10, None, 40]}, spans=spans))
    content = json.loads(trace.export(tmp_path / "t.json").read_text())
    assert content["baseTimeNanoseconds"] == 1_800_000_000_000_000_000
    slices = {e["name"]: e for e in content["traceEvents"] if e["ph"] == "X"}
    assert (slices["train"]["ts"], slices["train"]["dur"]) == (1e6, 2e6)
    assert slices["train"]["tid"] == slices["train/step"]["tid"] != slices["crossing"]["tid"]
    busy = [e for e in content["traceEvents"] if e["name"] == "utilisation (%)"]
    assert [(e["ts"], e["args"]["value"]) for e in busy] == [(0, 10), (3e6, 40)]


def test_export_errors_name_the_way_out(tmp_path: Path) -> None:
    trace = gpumon.read(write(tmp_path / "t", {}))
    with pytest.raises(gpumon.MonitorError, match=r"use \.csv or \.json"):
        trace.export(tmp_path / "t.xlsx")
    with pytest.raises(gpumon.MonitorError, match="cannot write"):
        trace.export(tmp_path / "nowhere" / "t.csv")
    never = gpumon.read(write(tmp_path / "never", {}, unix=1e15))
    with pytest.raises(gpumon.MonitorError, match="which is not a date"):
        never.export(tmp_path / "t.csv")
    assert not list(tmp_path.glob(".*"))


def test_a_chart_has_a_lane_a_device_and_shows_itself_once(tmp_path: Path) -> None:
    gpus: dict[str, list[float | None]] = {f"gpu{n}": [0.0, 90.0, 90.0, 10.0] for n in range(8)}
    spans: Spans = (("train", 0.0, 3.0, {"epoch": 1}), ("train/step", 0.0, 1.0, {}))
    trace = gpumon.read(write(tmp_path / "t", gpus, spans=spans))
    chart = trace.plot(theme="dark", title="A run")
    assert len(chart.axes) == 1 + 8 + 1  # the ribbon, the lanes
    assert chart._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    words = [text.get_text() for axes in chart.axes for text in axes.texts]
    assert {"train, epoch 1", "step", "GPU 0"} <= set(words)
    assert plt.get_fignums() == []
    assert len(trace.plot(devices=["host"]).axes) == 2
    with pytest.raises(gpumon.MonitorError, match="the trace has"):
        trace.plot(devices=["gpu99"])


@pytest.fixture(scope="module", name="sound")
def sound_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace that has samples, spans and events."""
    folder = tmp_path_factory.mktemp("sound")
    lost = {"t": 90.0, "event": "device lost", "device": "gpu0", "reason": "off the bus"}
    busy: list[float | None] = [float(number % 7) for number in range(150)]
    spans: Spans = (("train", 1.0, 20.0, {"items": 8, "epoch": 1}), ("train/step", 2.0, 3.0, {}))
    write(folder / "t", {"gpu0": busy}, spans=spans, events=[lost])
    return folder


def known(trace: gpumon.Trace) -> set[tuple[str, float, float]]:
    """Every value that the trace says was measured: its series, moment and size."""
    read = trace.recording
    return {(key, moment, value) for (moment, key), value in read.frame.stack().dropna().items()}


@pytest.mark.parametrize("name", ["t.jsonl", "t.phases.jsonl"])
def test_of_a_file_that_is_cut_off_anywhere_nothing_is_made_up(
    tmp_path: Path, sound: Path, name: str
) -> None:
    """As a kill or a full disk leaves it."""
    whole = gpumon.read(sound / "t")
    everything, phases = known(whole), {span.name for span in whole.recording.spans}
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    content = (sound / name).read_bytes()
    header = content.find(b"\n") + 1 if name == "t.jsonl" else 0
    for length in [*range(header, len(content), max(1, len(content) // 60)), len(content) - 1]:
        (tmp_path / name).write_bytes(content[:length])
        cut = gpumon.read(tmp_path / "t")
        assert known(cut) <= everything, length
        assert {span.name for span in cut.recording.spans} <= phases
        assert name == "t.jsonl" or known(cut) == everything
