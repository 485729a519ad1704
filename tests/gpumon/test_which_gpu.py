"""Which GPU is which, and which are not recorded."""

from __future__ import annotations

import pytest
from gpumon_tools import Play, gpu, play_fixture, write  # noqa: F401 (a fixture)
from test_charts import in_the_page, in_the_picture

import gpumon


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
