"""Series of newer GPUs: GPM, links, sample buffers, throttling."""

from __future__ import annotations

import pytest
from gpumon_tools import Play, changes, gpu, play_fixture, reasons_of  # noqa: F401 (a fixture)

from gpumon.words import reasons


def test_gpm_beside_utilisation_with_one_metric_failing(play: Play) -> None:
    trace = play(
        gpu(0, "utilisation 100\ngpm 1\ngpm2 30\ngpm3 E3\ngpm5 12.5\ngpm10 44\ngpm20 900\ngpm61 7"),
        samples=6,
        interval=0.1,
    )
    last = trace.to_pandas().iloc[-1]
    assert last["gpu0/utilisation (%)"] == 100
    assert last["gpu0/SM activity (%)"] == 30
    assert last["gpu0/tensor activity (%)"] == 12.5
    assert last["gpu0/DRAM bandwidth (%)"] == 44
    assert last["gpu0/PCIe sent (MiB/s)"] == 900
    assert last["gpu0/NVLink sent (MiB/s)"] == 7
    assert trace.to_pandas()["gpu0/SM occupancy (%)"].isna().all()
    assert "Not Supported" in str(reasons_of(trace)["gpu0/SM occupancy (%)"])
    row = trace.summary().query("device == 'gpu0'").iloc[0]
    assert row["SM activity mean (%)"] == pytest.approx(30)
    chart = trace.plot()
    words = [text.get_text() for axes in chart.axes for text in axes.texts]
    assert "100 % busy" in words and "30 % SM active" in words


def test_activity_that_fails_for_a_while_or_is_no_number_is_missing(play: Play) -> None:
    script = gpu(0, "utilisation 9\ngpm 1\ngpm2 30 30 nan 31 E999 32")
    trace = play(script, samples=42, interval=0.1)
    values = trace.to_pandas()["gpu0/SM activity (%)"]
    assert changes(list(values)) == [30.0, 31.0, 32.0]
    before, after = values[values == 31].index.max(), values[values == 32].index.min()
    assert after - before > 0.9  # asked again after a second
    place = trace.recording.keys.index("gpu0/SM activity (%)")
    told = [e["event"] for e in trace.metadata()["events"] if place in e.get("series", ())]
    assert told == ["failed", "back"]


def test_without_gpm_the_counters_of_the_links(play: Play) -> None:
    mib = 2**20
    trace = play(
        gpu(
            0, f"utilisation 1\nfield197 0 {mib} {100 * mib}\nfield198 0\nfield138 5 5\nfield139 E3"
        ),
        samples=10,
        interval=0.1,
    )
    frame = trace.to_pandas()
    assert frame["gpu0/PCIe sent (MiB/s)"].max() > 50
    assert frame["gpu0/PCIe received (MiB/s)"].max() == 0
    found = reasons_of(trace)
    assert "field 139" in str(found["gpu0/NVLink sent (MiB/s)"])
    assert "Hopper" in str(found["gpu0/SM activity (%)"])
    assert frame["gpu0/SM activity (%)"].isna().all()
    # Another call would tell too, and block.
    without = play(gpu(0, "utilisation 1\npcie_tx 100\npcie_rx 100"), samples=2)
    assert "blocks for 20 ms" in str(reasons_of(without)["gpu0/PCIe sent (MiB/s)"])


def test_throttling_is_kept_as_bits_and_summed_up_as_time(play: Play) -> None:
    trace = play(gpu(0, "utilisation 1\nthrottle 4") + gpu(1, "utilisation 1\nthrottle 1"))
    assert set(trace.to_pandas()["gpu0/throttle reasons (bits)"].dropna()) == {4.0}
    slowed = trace.summary().set_index("device")["throttled share (%)"]
    assert slowed["gpu0"] == pytest.approx(100) and slowed["gpu1"] == 0
    assert reasons(0x24) == ["power cap", "thermal slowdown (software)"]
    assert reasons(0x1000) == ["0x1000"] and reasons(0) == []


def test_instant_power_is_preferred_and_labelled(play: Play) -> None:
    trace = play(gpu(0, "power 100000\nfield186 250000") + gpu(1, "power 100000"), samples=3)
    assert set(trace.to_pandas()["gpu0/power (W)"].dropna()) == {250.0}
    assert set(trace.to_pandas()["gpu1/power (W)"].dropna()) == {100.0}
    apis = {s["key"]: s["api"] for s in trace.metadata()["series"]}
    assert "instant" in apis["gpu0/power (W)"] and "mean" in apis["gpu1/power (W)"]


def test_the_hosts_own_series(play: Play) -> None:
    trace = play("init 9\n", samples=30, interval=0.1)
    last = trace.to_pandas().iloc[-1]
    cores = trace.devices[-1]["cores"]
    assert 0 <= last[f"host/cpu{cores - 1} (%)"] <= 100
    for key in ("network received (MiB/s)", "network sent (MiB/s)"):
        assert last[f"host/{key}"] >= 0
    assert last["process/memory (MiB)"] > 20  # this test's own process, imports and all
    assert last["process/cpu (%)"] >= 0 and last["process/processes (count)"] >= 1
    assert last["sampler/cpu (%)"] >= 0
