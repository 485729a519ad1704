"""The GPU series, read by the real sampler through pynvml from a fake driver that replays."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import fake_nvml
import pytest
from gpumon_tools import Play, Spans, changes, gpu, played, python, reasons_of, said_by, write
from gpumon_tools import play_fixture as play_fixture

import gpumon
from gpumon.words import reasons as names_of


def test_series_come_out_exactly_as_the_driver_gave_them(play: Play) -> None:
    trace = play(
        gpu(
            0,
            """
            utilisation 0 10 20 30 100
            memory_utilisation 0 1 2 3 4
            memory 600 600 600 700 800 900
            power 71500 100250 200000 300000
            energy 5000000 5001000 5002500 5004000
            """,
        ),
        samples=64,  # memory is read every 0.5 s
    )
    frame = trace.to_pandas()
    # The first reading (for memory the first three) comes before the first sample.
    assert changes(list(frame["gpu0/utilisation (%)"])) == [10, 20, 30, 100]
    assert changes(list(frame["gpu0/memory utilisation (%)"])) == [1, 2, 3, 4]
    assert changes(list(frame["gpu0/memory used (MiB)"])) == [700, 800, 900]
    assert changes(list(frame["gpu0/power (W)"])) == [100.2, 200.0, 300.0]
    assert changes(list(frame["gpu0/energy (J)"])) == [1.0, 2.5, 4.0]
    assert set(frame["gpu0/temperature (C)"].dropna()) == {41.0}
    assert set(frame["gpu0/SM clock (MHz)"].dropna()) == {1980.0}
    assert set(frame["gpu0/memory clock (MHz)"].dropna()) == {3201.0}
    assert trace.metadata()["nvml"]["driver"] == "570.00"


@pytest.fixture(scope="module", name="mixed")
def mixed_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gpumon.Trace]:
    """GPUs of which each can tell something else, and one that cannot be reached."""
    script = gpu(0, "utilisation 50\nmemory 100\nthrottle 4\npower 100000\nfield186 250000")
    script += gpu(1, "memory 100\npower 90000\nthrottle 1") + gpu(2, "utilisation 1")
    with pytest.MonkeyPatch.context() as patch:
        yield played(tmp_path_factory.mktemp("mixed"), patch, script + "3 handle E15\n")


def test_unsupported_series_is_nan_with_its_reason_and_harms_no_other(mixed: gpumon.Trace) -> None:
    frame, reasons = mixed.to_pandas(), reasons_of(mixed)
    for key, call in (("gpu1/utilisation (%)", "UtilizationRates"), ("gpu2/power (W)", "Power")):
        assert frame[key].isna().all()
        assert "Not Supported" in reasons[key] and f"nvmlDeviceGet{call}" in reasons[key]
    assert set(frame["gpu0/utilisation (%)"].dropna()) == {50.0}
    assert not reasons["gpu0/utilisation (%)"]
    assert set(frame["gpu1/power (W)"].dropna()) == {90.0}


def test_throttling_is_kept_as_bits_and_summed_up_as_time(mixed: gpumon.Trace) -> None:
    assert set(mixed.to_pandas()["gpu0/throttle reasons (bits)"].dropna()) == {4.0}
    slowed = mixed.summary().set_index("device")["throttled share (%)"]
    assert slowed["gpu0"] == pytest.approx(100) and slowed["gpu1"] == 0
    assert names_of(0x24) == ["power cap", "thermal slowdown (software)"]
    assert names_of(0x1000) == ["0x1000"] and names_of(0) == []
    texts = [text.get_text() for axes in mixed.plot().axes for text in axes.texts]
    assert texts.count(" power cap") == 1


def test_instant_power_is_preferred_and_labelled(mixed: gpumon.Trace) -> None:
    assert set(mixed.to_pandas()["gpu0/power (W)"].dropna()) == {250.0}
    apis = {s["key"]: s["api"] for s in mixed.metadata()["series"]}
    assert "instant" in apis["gpu0/power (W)"] and "mean" in apis["gpu1/power (W)"]


def test_gpu_that_cannot_be_reached_at_the_start(mixed: gpumon.Trace) -> None:
    names = ["gpu0", "gpu1", "gpu2", "gpu3", "host"]
    assert [device["name"] for device in mixed.devices] == names
    assert "unreachable" in mixed.devices[3]["product"]


def test_old_driver_without_functions(play: Play) -> None:
    trace = play(gpu(0, "utilisation 50\nmemory 100\npower 100000"), old_driver=True)
    reasons = reasons_of(trace)
    apis = {s["key"]: s["api"] for s in trace.metadata()["series"]}
    assert "Function Not Found" in reasons["gpu0/energy (J)"]
    assert set(trace.to_pandas()["gpu0/memory used (MiB)"].dropna()) == {100.0}
    assert "reserve" in apis["gpu0/memory used (MiB)"]
    # Energy then is the integral of power, and says so; it has none of a gap on a busy machine.
    row = trace.summary().query("phase == '(all)' and device == 'gpu0'").iloc[0]
    known = row["seconds"] - sum(gap["seconds"] for gap in trace.recording.gaps)
    assert row["energy (J)"] == pytest.approx(100 * known, rel=0.1)
    assert trace.metadata()["energy"] == {"gpu0": "integrated power"}


def test_a_counter_that_goes_wild_spoils_no_other(play: Play) -> None:
    """A value that no trace may have would have its whole sample left out by a reader."""
    wild = 18 * 10**18
    trace = play(
        gpu(0, f"utilisation 7\nenergy 5000000 5001000 {wild} 5004000"), samples=26, interval=0.1
    )
    energy = list(trace.to_pandas()["gpu0/energy (J)"])
    assert changes(energy) == [1.0, 4.0]
    # A busy machine may take several samples between two readings, which then hold one value.
    assert any(math.isnan(value) for value in energy[energy.index(1.0) : energy.index(4.0)])
    assert set(trace.to_pandas()["gpu0/utilisation (%)"].dropna()) == {7.0}
    assert not trace.recording.damaged


def test_gpu_lost_in_the_middle_is_marked_and_the_other_goes_on(play: Play) -> None:
    trace = play(
        gpu(0, "utilisation 50 50 50 50 E15\nmemory 100\npower 90000")
        + gpu(1, "utilisation 60\nmemory 100\npower 90000"),
        samples=70,
    )
    frame = trace.to_pandas()
    lost = [e for e in trace.metadata()["events"] if e["event"] == "device lost"]
    assert [event["device"] for event in lost] == ["gpu0"]
    assert frame["gpu0/utilisation (%)"].dropna().iloc[0] == 50  # a busy machine begins late
    last = frame.iloc[-1]
    assert last[[c for c in frame if c.startswith("gpu0/")]].isna().all()
    assert last["gpu1/utilisation (%)"] == 60 and last["host/memory used (MiB)"] > 0
    words = [text.get_text() for axes in trace.plot().axes for text in axes.texts]
    assert sum("lost at" in word for word in words) == 1
    summary = trace.summary().set_index(["phase", "device"])
    assert summary.loc[("(all)", "gpu0"), "energy (J)"] > 0
    assert math.isnan(summary.loc[("(all)", "gpus"), "energy (J)"])


def test_a_lost_gpus_part_is_in_no_sum(tmp_path: Path) -> None:
    lost = {"t": 4.0, "event": "device lost", "device": "gpu0", "reason": "GPU is lost"}
    energies: tuple[list[float | None] | None, ...] = (None, [100.0 * n for n in range(10)])
    for name, energy in zip("ab", energies, strict=True):
        spans: Spans = (("early", 0.0, 3.0, {"items": 30}), ("late", 3.0, 10.0, {"items": 70}))
        gpus: dict[str, list[float | None]] = {"gpu0": [50.0] * 10, "gpu1": [50.0] * 10}
        path = write(tmp_path / name, gpus, energy=energy, events=[lost], spans=spans)
        lines = path.with_name(f"{name}.jsonl").read_text().splitlines()
        places = (0, 1, 2, 8) if energy else (0, 1, 2)  # gpu0's series, from 4 s on
        for number in range(6, 12):
            sample = json.loads(lines[number])
            for place in places:
                sample[2 * place + 2] = None
            lines[number] = json.dumps(sample)
        path.with_name(f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        trace = gpumon.read(path)
        table = trace.summary().set_index(["phase", "device"])
        early, late = table.loc[("early", "gpus")], table.loc[("late", "gpus")]
        assert early["energy (J)"] == pytest.approx(600)
        assert early["items/J"] == pytest.approx(30 / 600)
        for key in ("energy (J)", "items/J", "power mean (W)", "memory peak (MiB)"):
            assert math.isnan(late[key]), key
            assert math.isnan(table.loc[("(all)", "gpus"), key]), key
        # The device's own numbers say how much of the phase they are of.
        own = table.loc[("late", "gpu0")]
        assert (own["measured (s)"], own["seconds"]) == (1, 7)
        assert own["energy covers (s)"] == (0 if energy else 1)
        assert table.loc[("late", "gpu1"), "energy (J)"] == pytest.approx(700, abs=101)


@pytest.mark.parametrize(
    ("script", "words"),
    [("init 9\n" + gpu(0), "not loaded"), ("", "sees no GPU")],
)
def test_no_gpu_says_why_in_trace_and_figure(play: Play, script: str, words: str) -> None:
    trace = play(script, samples=2)
    assert words in trace.metadata()["nvml"]["reason"]
    assert [device["name"] for device in trace.devices] == ["host"]
    texts = said_by(trace.plot())
    assert words in texts


def test_a_driver_that_does_not_start_is_no_machine_without_gpus(
    play: Play, tmp_path: Path
) -> None:
    """The host is watched all the same, and each reader of the trace is told."""
    trace = play("init 18\n" + gpu(0), samples=60)
    assert trace.to_pandas()["host/cpu (%)"].notna().any()
    said = (
        "No GPU was watched: the NVIDIA driver does not start: Driver/library version mismatch "
        "(NVML error 18)"
    )
    assert said in said_by(trace.plot())
    for words, told in (
        (("summary", tmp_path / "trace"), f"gpumon: {said}"),
        (("devices",), "GPUs: unknown. the NVIDIA driver does not start"),
    ):
        done = python("-m", "gpumon", *words)
        assert (done.stderr or done.stdout).startswith(told)
    with pytest.raises(gpumon.MonitorError, match=r"^no GPU 0: the NVIDIA driver does not start"):
        play("init 18\n" + gpu(0), samples=2, gpu_ids=[0])


def test_only_the_runs_own_gpus(play: Play, tmp_path: Path) -> None:
    script = "".join(gpu(n, f"utilisation {n}\nmemory 1") for n in range(8))
    uuid = "GPU-50000000-aaaa-bbbb-cccc-dddddddddddd"
    with pytest.raises(gpumon.MonitorError, match=r"no GPU 12.*gpu7"):
        play(script, gpu_ids=[12])
    assert not list(tmp_path.glob("trace*")), "nothing half-written"
    choices = {
        (None, None): "01234567",
        (None, "6,2"): "26",
        (None, f"{uuid},1"): "15",
        (None, "GPU-5"): "5",
        (None, "3,99,4"): "3",  # CUDA stops at what it cannot find
        (None, ""): "",
        ((7, uuid), "0"): "57",
    }
    code = f"""
from gpumon.nvml import find_devices, open_nvml
open_nvml()
for choice in {list(choices)}:
    print(*(device.name[3:] for device in find_devices(*choice)), sep="")
"""
    assert python("-c", code).stdout.splitlines() == list(choices.values())


def test_eight_gpus_imbalance_and_energy(play: Play) -> None:
    script = gpu(0, "utilisation 80\nmemory 2000\npower 100000")
    script += "".join(gpu(n, "utilisation 40\nmemory 500\npower 100000") for n in range(1, 8))
    summary = play(script).summary()
    together = summary.query("device == 'gpus'").iloc[0]
    assert together["utilisation mean (%)"] == pytest.approx(45)
    assert together["utilisation imbalance (%)"] == pytest.approx(50)
    assert together["memory imbalance (%)"] == pytest.approx(75)
    assert together["memory peak (MiB)"] == 2000 + 7 * 500
    assert together["power mean (W)"] == pytest.approx(800)


def test_an_old_or_foreign_pynvml_is_named_with_the_cure(tmp_path: Path) -> None:
    """The package pynvml up to 11.4.1 has a folder that hides the module of nvidia-ml-py."""
    file = tmp_path / "pynvml" / "__init__.py"
    file.parent.mkdir()
    file.write_text("def nvmlInit():\n    pass\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom gpumon import nvml\nnvml.nvml()"
    )
    done = python("-c", code)
    assert (
        f"{file} is not the pynvml of nvidia-ml-py 13.615 or newer; run: pip uninstall pynvml; "
        "pip install --upgrade --force-reinstall nvidia-ml-py"
    ) in done.stderr


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "lines", ["", "0 memory 5 E3\n0 memory_total 0\n0 limit 0\n0 power 9000 E3"]
)
def test_a_gpu_without_memory_of_its_own_or_a_list_of_processes(
    play: Play, tmp_path: Path, lines: str
) -> None:
    trace = play(fake_nvml.JETSON + lines)
    device = trace.metadata()["devices"][0]
    assert (device["uuid"], device["memory total (MiB)"]) == (
        "54fe8d62-aaaa-bbbb-cccc-dddddddddddd",
        None,
    )
    reasons = reasons_of(trace)
    for name in ("memory used (MiB)", "memory others (MiB)", "other processes (count)"):
        assert "Not Supported" in reasons[f"gpu0/{name}"]
    row = trace.summary().query("phase == '(all)' and device == 'gpu0'").iloc[0]
    assert row["utilisation mean (%)"] == pytest.approx(50)
    assert math.isnan(row["memory peak (MiB)"])
    trace.plot().savefig(tmp_path / "chart.png")
