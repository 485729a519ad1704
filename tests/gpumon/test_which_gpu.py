"""Which GPU is which, whole GPUs above MIG instances, and what befalls them."""

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

    # CUDA puts the fastest of different GPUs first, which only CUDA knows.
    mixed = "".join(gpu(n, f"utilisation {n}") + f"{n} name GPU of kind {n}\n" for n in range(3))
    monkeypatch.setenv("FAKE_CUDA_ORDER", "201")
    assert numbers(play(mixed, samples=1)) == {"gpu0": 1, "gpu1": 2, "gpu2": 0}
    assert numbers(play(mixed, samples=1, visible="0,2")) == {"gpu1": 1, "gpu2": 0}
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert numbers(play(mixed, samples=1, visible="0,2")) == {"gpu0": 0, "gpu2": 1}
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.delenv("FAKE_CUDA_ORDER")
    trace = play(mixed, samples=1, visible="1")
    assert numbers(trace) == {"gpu1": 0}
    assert "treated as the order of the PCI bus: CUDA does not say" in trace.devices[0]["order"]


def test_instances_share_a_lane_of_the_whole_gpu(play: Play) -> None:
    script = gpu(0, "power 300000\nenergy 1000\nmemory 900")
    for slot in range(2):
        script += f"0.{slot} uuid MIG-{slot}\n0.{slot} name NVIDIA H200 MIG 1g\n"
        script += f"0.{slot} memory 100\n0.{slot} memory_total 1000\n0.{slot} instance {slot}\n"
    trace = play(script)
    assert [d["name"] for d in trace.devices] == ["gpu0", "gpu0-mig0", "gpu0-mig1", "host"]
    words = in_the_picture(trace)["lanes"]
    assert words == in_the_page(trace)["lanes"]
    assert {"GPU 0", "H200, whole", "300 W", "temperature 41 °C", "SM clock 1980 MHz"} <= words
    rows = trace.summary().to_pandas().set_index(["phase", "device"])
    assert rows.loc[("(all)", "gpus"), "memory peak (MiB)"] == 200
    assert rows.loc[("(all)", "gpu0"), "power mean (W)"] == 300
