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


def test_errors_of_the_hardware_are_marks_with_their_meaning(play: Play) -> None:
    script = gpu(
        0,
        "utilisation 50\nevent 8 79 8 31 8 4242\nthrottle 4\n"
        # The first reading (of rows the first two) is a probe's, from which the counts begin.
        "ecc_corrected 7 9\necc_uncorrected 0\nrows 3 3 4\nrows_pending 0 0 1",
    )
    trace = play(script, samples=20)
    events = [e for e in trace.metadata()["events"] if e["event"] not in ("gap", "failed")]
    assert [e["xid"] for e in events if e["event"] == "xid"] == [79, 31, 4242]
    (ecc,) = [e for e in events if e["event"] == "ecc"]
    assert (ecc["kind"], ecc["count"]) == ("corrected", 2)
    assert {(e["kind"], e["count"]) for e in events if e["event"] == "remapped"} == {
        ("done", 1),
        ("pending", 1),
    }
    picture, page = in_the_picture(trace), in_the_page(trace)
    assert picture["notes"] == page["notes"] and picture["lanes"] == page["lanes"]
    for said in (
        "GPU 0: XID 79, the GPU has fallen off the bus",
        "XID 4242, see NVIDIA's catalogue",
        "2 corrected memory errors (ECC)",
        "1 row of memory to be replaced at the next reset",
        "GPU 0: clocks throttled (power cap) for",
    ):
        assert said in picture["notes"], picture["notes"]
    assert {"XID 79", "ECC corrected", "power cap"} <= picture["lanes"]


def test_pages_are_told_of_where_there_are_no_spare_rows(play: Play) -> None:
    trace = play(gpu(0, "utilisation 50\nfield29 3 5\nfield30 1\nfield31 0 1"), samples=20)
    events = [e for e in trace.metadata()["events"] if e["event"] == "retired"]
    assert {(e["kind"], e["count"]) for e in events} == {("done", 2), ("pending", 1)}
    assert not any("remapped" in key for key in trace.recording.keys)
    picture, page = in_the_picture(trace), in_the_page(trace)
    assert picture["notes"] == page["notes"] and "page retired" in picture["lanes"]
    for said in ("2 pages of memory taken out of use", "1 page of memory to be taken out of use"):
        assert said in picture["notes"], picture["notes"]
