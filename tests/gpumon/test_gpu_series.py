"""What newer GPUs tell, whose a GPU is, and which GPU is which."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import gpumon_tools
import psutil
import pytest
from gpumon_tools import Play, changes, gpu, play_fixture, reasons_of  # noqa: F401 (a fixture)
from test_charts import in_the_page, in_the_picture

import gpumon
from gpumon import launch

GONE = 2**22 + 1
"""Above what Linux numbers processes with, as a container's view of another's process."""


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


def test_a_shared_gpu_is_told_everywhere(play: Play) -> None:
    me, other = os.getpid(), os.getppid()
    script = gpu(0, f"utilisation 70\nprocesses {me} 100 {other} 3000\nuse {me} 20 {other} 50")
    alone = gpu(1, f"utilisation 10\nprocesses {me} 50\nuse {me} 10")
    away = gpu(2, f"utilisation 10\nprocesses {GONE} 50\nuse {GONE} 10")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trace = play(script + alone + away)
    frame = trace.to_pandas()
    for key, value in (("memory mine (MiB)", 100), ("memory others (MiB)", 3000)):
        assert set(frame[f"gpu0/{key}"].dropna()) == {value}
    for key, value in (("SM use mine (%)", 20), ("SM use others (%)", 50)):
        assert set(frame[f"gpu0/{key}"].dropna()) == {value}
    assert set(frame["gpu1/memory others (MiB)"].dropna()) == {0}
    assert frame["gpu2/memory mine (MiB)"].isna().all()
    assert frame["gpu2/memory others (MiB)"].isna().all()

    (event,) = [e for e in trace.metadata()["events"] if e["event"] == "shared"]
    name = psutil.Process(other).name()
    assert (event["device"], event["process"], event["name"]) == ("gpu0", other, name)
    said = f"GPU 0 is shared with {name} ({other}, 2.9 GiB): its numbers"
    (warning,) = [warning for warning in told if said in str(warning.message)]
    assert Path(warning.filename) == Path(gpumon_tools.__file__)  # where the program calls
    rows = trace.summary().set_index(["phase", "device"])
    row = rows.loc[("(all)", "gpu0")]
    assert row["others' memory peak (MiB)"] == 3000
    assert row["others' SM use mean (%)"] == pytest.approx(50)  # weighted by time
    assert rows.loc[("(all)", ["gpu1", "gpu2"]), "others' memory peak (MiB)"].isna().all()
    picture, page = in_the_picture(trace), in_the_page(trace)
    for what in ("lanes", "notes", "legend"):
        assert picture[what] == page[what]
    assert f"with {name} ({other}, 2.9 GiB)" in picture["notes"]


def test_ranks_of_one_launcher_are_no_untrusteds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 4242)  # that of these tests may be init itself
    assert (launch.program_root(None), launch.program_root(3)) == (os.getpid(), 4242)
    monkeypatch.setattr(os, "getppid", lambda: 1)  # the launcher is gone
    assert launch.program_root(3) == os.getpid()


def numbers(trace: gpumon.Trace) -> dict[str, int | None]:
    return {d["name"]: d["cuda"] for d in trace.devices if d["kind"] != "host"}


def test_indices_are_cudas_own(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    equal = "".join(gpu(n, f"utilisation {n}") for n in range(7))
    trace = play(equal, samples=1, visible="6,2")
    assert numbers(trace) == {"gpu2": 1, "gpu6": 0}
    words = in_the_picture(trace)["lanes"]
    assert words == in_the_page(trace)["lanes"]
    assert {"GPU 6", "cuda:0, H200", "GPU 2", "cuda:1, H200"} <= words
    assert numbers(play(equal, samples=1, gpu_ids=[2, 3], visible="2")) == {"gpu2": 0, "gpu3": None}

    # CUDA puts the fastest of different GPUs first, unless it is told to go by the bus.
    mixed = "".join(gpu(n, f"utilisation {n}") + f"{n} name GPU of kind {n}\n" for n in range(3))
    said = "set CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert said in in_the_picture(play(mixed, samples=1, visible="0,2"))["notes"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    trace = play(mixed, samples=1, visible="0,2")
    assert numbers(trace) == {"gpu0": 0, "gpu2": 1} and said not in in_the_picture(trace)["notes"]


def test_a_gpu_in_mig_mode_is_named_and_not_recorded(play: Play) -> None:
    script = gpu(0, "power 300000\nmig 1") + "0.0 uuid MIG-0\n0.0 name NVIDIA H200 MIG 1g\n"
    said = "is in MIG mode, which gpumon does not record"
    trace = play(script + gpu(1, "utilisation 60"), samples=1)
    assert [device["name"] for device in trace.devices] == ["gpu0", "gpu1", "host"]
    assert f"H200 {said}" in in_the_picture(trace)["lanes"]
    alone = play(script, samples=1, visible="MIG-0")
    assert said in in_the_picture(alone)["notes"]
