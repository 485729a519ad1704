"""`gpumon record` under a launcher: one process a host samples, clocks are measured or unknown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpumon_tools import ROOT, Spans, said_by, write
from runner_tools import wait_for

import gpumon
from gpumon import launch
from gpumon.__main__ import main

MPIEXEC = ROOT / ".venvs" / "pytorch" / "bin" / "mpiexec"
PROGRAM = "import gpumon, time\nwith gpumon.phase('train'): time.sleep(1.5)"
RECORD = (sys.executable, "-m", "gpumon", "record", "--interval", "0.05")
RECORDED = ("--out", "t", "--", sys.executable, "-c", PROGRAM)
needs_mpiexec = pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec: make envs")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in launch.LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)


OPEN_MPI = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=2"
# What mpiexec starts in a batch script inherits the script's own place.
IN_BATCH = "SLURM_PROCID=0 SLURM_LOCALID=0 PMI_RANK=1 MPI_LOCALRANKID=1 PMI_SIZE=2"


@pytest.mark.parametrize(
    ("said", "place", "samples"),
    [
        ("", launch.RankInfo(), True),
        ("PMI_RANK=3 MPI_LOCALRANKID=1 PMI_SIZE=4", (3, 1, 4), False),
        ("PMI_RANK=2 MPI_LOCALRANKID=0 PMI_SIZE=4", (2, 0, 4), True),
        (OPEN_MPI, (1, 1, 2), False),
        ("SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NTASKS=8", (5, 1, 8), False),
        (IN_BATCH, (1, 1, 2), False),
        ("RANK=1 LOCAL_RANK=0 WORLD_SIZE=2", (1, 0, 2), True),
        ("PMI_RANK=x SLURM_PROCID=-1", launch.RankInfo(), True),
    ],
)
def test_a_processs_place_and_who_samples(
    monkeypatch: pytest.MonkeyPatch, said: str, place: Any, samples: bool
) -> None:
    for each in said.split():
        monkeypatch.setenv(*each.split("="))
    found = launch.rank_info()
    assert found == place and found.is_host_sampler == samples


def mpiexec(hosts: str, ranks: int, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(MPIEXEC), "-launcher", "fork", "-hosts", hosts, "-n", str(ranks), *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@needs_mpiexec
def test_under_mpiexec_one_process_a_host_samples_and_all_mark(tmp_path: Path) -> None:
    done = mpiexec("a1:2,a2:1", 3, *RECORD, *RECORDED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("gpumon: trace in t; see it with: gpumon plot 't*'\n") == 1
    names = ["t-rank1.jsonl", "t-rank2.jsonl", "t.jsonl"]
    files = sorted(p.name for p in tmp_path.iterdir() if not p.name.endswith(".phases.jsonl"))
    assert files == names
    sampling = [bool(json.loads((tmp_path / n).open().readline())["devices"]) for n in names]
    assert sampling == [False, True, True], "ranks 0 and 1 are on one host"
    trace = gpumon.read(tmp_path / "t*")
    trains = trace.phases().query("phase == 'command/train' or phase == 'train'")
    assert sorted(trains["rank"]) == [0, 1, 2]
    assert not trace.recording.header["clocks"], "one boot has one clock"
    processes = trace.recording.series("rank0:process/processes (count)")
    assert processes is not None and np.nanmax(processes) >= 3, "all that the launcher started"


# Rank 1's own boot, host name and monotonic clock, made of this machine.
OTHER_HOST = """
[ "${PMI_RANK:-$SLURM_PROCID}" = 1 ] || exec "$@"
exec unshare --mount --uts --time --monotonic 4000 --fork sh -c '
    mount --bind boot /proc/sys/kernel/random/boot_id && hostname other && exec "$@"' sh "$@"
"""
AHEAD_THERE = 4000


@pytest.fixture(name="on_two_hosts")
def on_two_hosts_fixture(tmp_path: Path) -> list[str]:
    """The command that records on two hosts, to be put behind a launcher's own words."""
    apart = ["unshare", "--mount", "--uts", "--time", "--fork", "true"]
    if shutil.which("unshare") is None or subprocess.run(apart, capture_output=True).returncode:
        pytest.skip("no second host can be made here: unshare needs root and time namespaces")
    (tmp_path / "boot").write_text("boot-of-the-other\n")
    return ["sh", "-c", OTHER_HOST, "sh", *RECORD, *RECORDED]


@needs_mpiexec
def test_mpiexecs_hosts_state_how_far_their_clocks_are_apart(
    tmp_path: Path, on_two_hosts: list[str]
) -> None:
    done = mpiexec("a1:1,a2:1", 2, *on_two_hosts, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(json.loads((tmp_path / f"{name}.jsonl").open().readline())["devices"]
               for name in ("t", "t-rank1"))  # fmt: skip
    trace = gpumon.read(tmp_path / "t*")
    (told,) = trace.recording.header["clocks"]
    assert told.startswith("The clock of other was ") and told.endswith("run, and is corrected.")
    lines = (tmp_path / "t-rank1.phases.jsonl").read_text().splitlines()
    (apart,) = [found["clock"] for found in map(json.loads, lines) if "clock" in found]
    assert abs(apart["ahead (s)"] - AHEAD_THERE) <= apart["within (s)"] < 1
    phases = trace.phases()
    begun = phases[phases["phase"].str.endswith("train")].set_index("rank")["start (s)"]
    assert abs(begun[0] - begun[1]) < AHEAD_THERE / 10
    assert len({device["machine"] for device in trace.devices}) == 2


@needs_mpiexec
def test_under_mpiexec_without_a_name_each_rank_says_so_and_runs_nothing(tmp_path: Path) -> None:
    done = mpiexec("a1:2,a2:1", 3, *RECORD, "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert "give one, the same for all" in done.stderr


def test_a_trace_of_phases_alone_is_no_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"PMI_RANK": "1", "MPI_LOCALRANKID": "1", "PMI_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(["record", "--out", "t", "--", "true"]) == 0
    assert gpumon.read("t-rank1").recording.gaps == []
    for command in (["plot", "t-rank1"], ["plot", "t-rank1", "-o", "t.html"]):
        capsys.readouterr()
        assert main(command) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "draw both traces together" in told
    assert main(["summary", "t-rank1"]) == 0


def test_clocks_are_measured_over_the_network(tmp_path: Path) -> None:
    with launch.compared_clocks(tmp_path / "t", 0, print):
        wait_for((tmp_path / "t.clock").exists)
        offer = json.loads((tmp_path / "t.clock").read_text())
        found = launch.measure_offset(
            offer,
            clock=lambda: time.monotonic() + 1000,
            wall=lambda: time.time() - 3,
        )
        assert found is not None
        assert abs(found["ahead (s)"] - 1000) <= found["within (s)"] < 1
        assert found["wall (s)"] == pytest.approx(-3, abs=1)
        wrong = {**offer, "token": "0" * 32, "addresses": ["127.0.0.1"]}
        assert launch.measure_offset(wrong) is None, "who has no token is not answered"
    assert not (tmp_path / "t.clock").exists()


AHEAD = {"boot": "boot-a", "ahead (s)": 4000.0, "within (s)": 0.002, "wall (s)": 100.0}


def two_hosts(folder: Path, *clocks: Any) -> gpumon.Trace:
    """n2 begins its phase at the same moment as n1; its clocks are 4000 s and 100 s ahead."""
    spans: Spans = (("train", 2.0, 5.0, {}),)
    six: list[float | None] = [10, 20, 30, 40, 50, 60]
    write(folder / "t", {"gpu0": six}, spans=spans, host="n1")
    there: dict[str, Any] = {"start": 5000.0, "unix": 1.8e9 + 100, "host": "n2", "boot": "boot-b"}
    write(folder / "t-rank1", {"gpu0": six}, rank=1, spans=spans, **there)
    with (folder / "t-rank1.phases.jsonl").open("a") as file:
        file.writelines(json.dumps({"gpumon phases": 1, "clock": clock}) + "\n" for clock in clocks)
    return gpumon.read(folder / "t*")


def test_measured_clocks_put_hosts_on_one_axis_and_say_so(tmp_path: Path) -> None:
    trace = two_hosts(tmp_path, AHEAD)
    assert list(trace.phases()["start (s)"]) == pytest.approx([2.0, 2.0])
    assert trace.recording.header["clocks"] == [
        "The clock of n2 was 100.000000 s ahead of that of n1, within 0.002000 s, measured during "
        "the run, and is corrected."
    ]
    drifted = two_hosts(tmp_path, AHEAD, {**AHEAD, "ahead (s)": 4000.008})
    assert abs(np.diff(drifted.phases()["start (s)"])[0]) == pytest.approx(0.004, abs=1e-6)
    assert "within 0.006000 s" in drifted.recording.header["clocks"][0]
    lanes = [text.get_text() for axes in trace.plot().axes for text in axes.texts]
    found = [text for text in lanes if text in ("GPU 0", "host")]
    assert found.count("GPU 0") == 2
    assert "is corrected" in said_by(trace.plot())


@pytest.mark.parametrize("clocks", [(), ({**AHEAD, "boot": "z"},)])
def test_clocks_that_none_measured_are_said_to_be_unknown(tmp_path: Path, clocks: Any) -> None:
    trace = two_hosts(tmp_path, *clocks)
    assert list(trace.phases()["start (s)"]) == pytest.approx([2.0, 102.0])
    (told,) = trace.recording.header["clocks"]
    assert told.startswith("The clock offset between n2 and n1 is not known")
    names = ["n1:gpu0", "n2:gpu0", "n1:host", "n2:host"]
    assert [device["name"] for device in trace.devices] == names


def test_a_trace_named_twice_counts_once(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"gpu0": [10.0] * 4}, spans=(("train", 0, 4, {"items": 8}),))
    for other in (path, path.with_name("t.jsonl"), f"{path}*"):
        names = [path, other]
        trace = gpumon.read(names)
        assert trace.summary()["items"].unique().tolist() == [8], names


def test_a_pattern_may_be_of_folders(tmp_path: Path) -> None:
    for name in ("node10", "node2", "node[1]"):
        write(tmp_path / "all [1]" / name / "trace", {"gpu0": [10.0] * 4}, host=name, boot=name)
    trace = gpumon.read(tmp_path / "all [1]" / "node*" / "trace")
    names = ["node2", "node10", "node[1]"]
    assert [device["machine"] for device in trace.devices if device["kind"] == "gpu"] == names
