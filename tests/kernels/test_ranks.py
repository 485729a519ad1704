"""Ranks under real launchers, with functions that take no time: how a run ends when one does.

No framework takes part. The kernel is PyTorch's, whose environment has both launchers.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import faults
import psutil
import pytest
import ranks_tools as tools
import slurm_cluster

from helpers import paths
from helpers.errors import UserError
from helpers.launch import json_values, launchers, run_files
from helpers.launch.failures import RankError
from helpers.runner import rank_watch

sys.path.append(str(paths.ROOT / "benchmarks"))

import hosts

SOON = 15.0
"""Seconds in which a run has ended, whatever has happened to it."""


@pytest.mark.parametrize("launcher", tools.LAUNCHERS)
def test_each_rank_finds_torchruns_variables(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an untrusted one has left in the environment."""
    left = {"RANK": "7", "WORLD_SIZE": "9", "PMI_RANK": "5", "PMI_SIZE": "9", "PMI_FD": "77"}
    left |= {"PET_MODULE": "1", "PET_NNODES": "3", "PMIX_RANK": "3", "OMPI_COMM_WORLD_RANK": "3"}
    left |= {"MASTER_ADDR": "203.0.113.1", "TF_CONFIG": "{no", "LOCAL_RANK": "4"}
    left |= {"SLURM_JOB_ID": "7", "SLURM_NODELIST": "n[1-2]", "SLURM_NNODES": "2"}
    left |= {"SLURM_TASKS_PER_NODE": "1(x2)", "PBS_JOBID": "1", "PBS_NODEFILE": "/none"}
    for name, value in left.items():
        monkeypatch.setenv(name, value)
    if shutil.which("scontrol"):
        monkeypatch.delenv("SLURM_JOB_ID")
    cell = "import ranks_tools as tools\ntools.keep([tools.variables(), tools.modes()])"
    found = tools.run(tmp_path, cell, launcher=launcher, each=2)
    same = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    assert [each for each, _ in found] == [
        {"RANK": str(n), "LOCAL_RANK": str(n % 2), "GROUP_RANK": str(n // 2), **same}
        for n in range(4)
    ]
    assert [modes for _, modes in found] == [[0o700, 0o600]] * 4
    assert tools.nothing_is_left(tmp_path) and not list(tmp_path.glob("ranks-*"))


CAUSES = {
    "fail": "rank 1 on {host}: ValueError: no such file",
    "die": "rank 1 on {host}: killed (signal 9; out of memory?)",
    "leave_quietly": "rank 1 on {host}: ended before its notebook did (exit code 0)",
    "leave": "rank 1 on {host}: ended with exit code 3",
    "fail_and_others_abort": "rank 1 on {host}: ValueError: no such file",
    "abort": "rank 1 on {host}: killed (signal 6)",
}
ENDS = [("mpiexec", function) for function in CAUSES]
ENDS += [("torchrun", function) for function in ("fail", "leave_quietly")]
"""A launcher sees how the rank's parent ends; torchrun takes four seconds to begin."""


@pytest.mark.parametrize(("launcher", "function"), ENDS)
def test_one_rank_ends_all_and_the_earliest_cause_is_named(
    launcher: str, function: str, tmp_path: Path
) -> None:
    with pytest.raises(RankError) as caught:
        tools.run(tmp_path, tools.calls(function, 1), launcher=launcher)
    assert str(caught.value) == CAUSES[function].format(host=os.uname().nodename)
    assert tools.nothing_is_left(tmp_path)
    assert tools.seconds_since_it_went_wrong(tmp_path) < SOON
    assert not list(tmp_path.glob("ranks-*"))
    if function == "fail":
        log = (tmp_path / rank_watch.LOG).read_text()
        assert "in fail(number)" in log, "the traceback is kept"


def test_what_each_rank_shows_is_kept(tmp_path: Path) -> None:
    text = "import ranks_tools as tools\nprint('rank', tools.here().rank)\n{'a': 1}"
    picture = "class Picture:\n    _repr_png_ = lambda self: bytes([137, 80])\ndisplay(Picture())"
    tools.run(tmp_path, "x = 1", text, "x + 1", picture)
    for rank, folder in enumerate([tmp_path, tmp_path / "rank-1"]):
        cells = json.loads((folder / "notebook.ipynb").read_text())["cells"]
        printed, value = cells[1]["outputs"]
        assert printed == {"output_type": "stream", "name": "stdout", "text": f"rank {rank}\n"}
        assert value["data"] == {"text/plain": "{'a': 1}"}
        assert cells[2]["outputs"][0]["data"] == {"text/plain": "2"}
        assert cells[3]["outputs"][0]["data"]["image/png"] == "iVA="
        assert [cell["execution_count"] for cell in cells] == [1, 2, 3, 4]


def test_ranks_tell_each_other(tmp_path: Path) -> None:
    told = """
import time
import numpy as np
import ranks_tools as tools
from helpers.frameworks.devices import Devices  # which a rank has imported
from helpers.launch import exchange
rank = tools.here().rank
row = (Devices("cpu", ("a",)), [rank], float("nan"))
value = {1: np.arange(3, dtype=np.float16) * rank, "row": row}
each = exchange.exchange(value)
assert [found["row"][1] for found in each] == [[0], [1], [2]]
assert all(found["row"][0] == Devices("cpu", ("a",)) for found in each)
assert [found[1].tolist() for found in each] == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]
assert each[2][1].dtype == np.float16 and each[0]["row"][2] != each[0]["row"][2]
assert exchange.exchange(None) == [None] * 3 and exchange.of_first(rank) == 0
with exchange.first_rank_first():
    began = time.monotonic()
    time.sleep(0.3)
tools.keep([began, time.monotonic()])
"""
    first, *others = tools.run(tmp_path, told, nodes=3)
    assert all(began >= first[1] - 0.2 and began > first[0] for began, _ in others)


def test_a_kind_that_ranks_do_not_tell_is_refused(tmp_path: Path) -> None:
    cell = "from helpers.launch import exchange\nexchange.exchange(object())"
    with pytest.raises(RankError, match="TypeError: ranks cannot exchange a value of type object"):
        tools.run(tmp_path, cell)
    with pytest.raises(ValueError, match="no rank sends a 'os:system'"):
        json_values.decode({"kind": "os:system", "fields": {"command": "true"}})
    with pytest.raises(ValueError, match="no rank sends"):
        json_values.decode({"kind": "helpers.paths:Path", "fields": {}})


def test_a_rank_that_hangs_is_named_by_those_that_have_ended(tmp_path: Path) -> None:
    with pytest.raises(RankError) as caught:
        tools.run(tmp_path, tools.calls("hang", 2), nodes=3, stall_minutes=3 / 60)
    host = os.uname().nodename
    said = f"no step for 3 s: ranks 0 to 1 at the end; rank 2 on {host} in hang, ranks_tools.py:"
    assert str(caught.value).startswith(said)
    assert tools.nothing_is_left(tmp_path)


@pytest.mark.parametrize("victim", ["runner", "launcher"])
def test_ranks_end_with_a_process_that_is_killed(victim: str, tmp_path: Path) -> None:
    command = [sys.executable, tools.__file__, "killed", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(paths.ROOT)}
    running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    tools.until_they_run(tmp_path)
    assert len(tools.left(tmp_path)) > 2
    (launcher,) = psutil.Process(running.pid).children()
    os.kill(running.pid if victim == "runner" else launcher.pid, signal.SIGKILL)
    assert tools.nothing_is_left(tmp_path, SOON)
    said = running.communicate(timeout=SOON)[1]
    if victim == "launcher":
        assert "mpiexec ended with exit code -9" in said and not list(tmp_path.glob("ranks-*"))
        return
    assert list(tmp_path.glob("ranks-*")), "the next one takes it away"
    tools.run(tmp_path, "1")
    assert not list(tmp_path.glob("ranks-*"))


def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.alarm(3)
    with pytest.raises(KeyboardInterrupt):
        tools.run(tmp_path, tools.calls("hang", 1))
    assert tools.nothing_is_left(tmp_path, SOON)


def test_who_did_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone rank never begins."""
    monkeypatch.setattr(launchers.Launcher, "command", _one_fewer(launchers.Launcher.command))
    with pytest.raises(RankError, match=r"1 of 2 ranks have joined after 5 s; missing: rank 1"):
        tools.run(tmp_path, "1", join_seconds=5)
    assert tools.nothing_is_left(tmp_path, SOON)


def _one_fewer(command):  # type: ignore[no-untyped-def]
    def fewer(launcher: launchers.Launcher, program: list[str], ranks: int) -> list[str]:
        words = command(launcher, program, ranks)
        words[words.index("-n") + 1] = "1"
        return words

    return fewer


def test_hosts_that_were_not_asked_for_are_refused(tmp_path: Path) -> None:
    """Two real nodes, and the launcher starts both ranks on this machine."""
    host = os.uname().nodename
    real = launchers.Launcher("mpiexec", 2, False, ("127.0.0.1", "localhost"))
    words = real.command([sys.executable], 1)
    assert words[1:3] == ["-hosts", "127.0.0.1,localhost"]
    virtual = launchers.Launcher("mpiexec", 2, False)
    with pytest.raises(RankError, match=rf"^expected 2 host\(s\) with 1 rank.*on {host}, {host}"):
        tools.run(tmp_path, "1", started_by=virtual)
    assert tools.nothing_is_left(tmp_path, SOON)


def test_in_an_allocation_they_are_on_its_nodes(tmp_path: Path) -> None:
    """A real Slurm of two nodes, which are one machine: so they are virtual."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slurm-") as folder,
            slurm_cluster.cluster(Path(folder) / "c") as found,
        ):
            found.environment["PYTHONPATH"] = str(paths.ROOT)
            found.environment["SLURMD_NODENAME"] = "n1"  # as the first node's script has it
            for launcher, expected in (("auto", "srun"), ("mpiexec", "mpiexec")):
                (run := tmp_path / launcher).mkdir()
                command = [sys.executable, tools.__file__, "slurm", str(run), launcher]
                assert found.run("salloc", "--nodes=2", *command).splitlines()[-2:] == [
                    f"{expected} True n1 n2",
                    "rank 1 on n2: killed (signal 9; out of memory?)",
                ]
                assert tools.nothing_is_left(run, SOON)
    except slurm_cluster.CannotBeHad as error:
        pytest.skip(str(error))


def test_ranks_meet_over_the_network_of_their_hosts(tmp_path: Path) -> None:
    """Two hosts made of this machine; the first's runner starts a rank on each."""
    try:
        with hosts.up(2) as two:
            two.environment["PYTHONPATH"] = str(paths.ROOT)
            command = [sys.executable, tools.__file__, "slurm", str(tmp_path)]
            started = two.start(two.first, *command, stdout=subprocess.PIPE)
            said = started.communicate(timeout=60)[0].splitlines()
    except hosts.CannotBeHad as error:
        pytest.skip(str(error))
    first, second = two.addresses
    assert said == [
        f"mpiexec False {first} {second}",
        f"rank 1 on {second}: killed (signal 9; out of memory?)",
    ]
    assert tools.nothing_is_left(tmp_path, SOON)


def test_a_host_that_disappears_is_named(tmp_path: Path) -> None:
    """Its link goes down and what ran there no longer does: no rank and no launcher hears of it."""
    try:
        with hosts.up(2) as two:
            two.environment["PYTHONPATH"] = str(paths.ROOT)
            command = [sys.executable, tools.__file__, "gone", str(tmp_path)]
            started = two.start(two.first, *command, stdout=subprocess.PIPE)
            tools.until_they_run(tmp_path)
            name = list(two.addresses)[1]
            gone = [int(word) for word in hosts._quietly("ip", "netns", "pids", name).split()]
            subprocess.run(["ip", "link", "set", f"{name}o", "down"], check=True)
            signal_all(gone, signal.SIGSTOP)
            began = time.monotonic()
            said = started.communicate(timeout=60)[0]
            took = time.monotonic() - began
            signal_all(gone, signal.SIGCONT)  # it is back
            assert tools.nothing_is_left(tmp_path, SOON)
    except hosts.CannotBeHad as error:
        pytest.skip(str(error))
    silent = "has not responded for 8 s; its host is down or was suspended"
    assert said == f"rank 1 on {name}: {silent}\n"
    assert took < SOON + run_files.SILENT_SECONDS, took


def signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def test_a_disk_that_is_full_is_the_cause(tmp_path: Path) -> None:
    with faults.disk(tmp_path / "run", "size=2m") as run:
        # Rank 1 fills it; rank 0, which writes too, may be the first to meet it.
        with pytest.raises(
            RankError, match=r"^rank [01] on \S+: OSError: .*No space left on device"
        ):
            tools.run(run, tools.calls("fill_the_disk", 1))
        assert tools.nothing_is_left(run) and tools.seconds_since_it_went_wrong(run) < SOON
        Thread(target=fill_once_inside, args=[run], daemon=True).start()
        with pytest.raises(RankError, match=r"No space left on device"):
            tools.run(run, tools.calls("wait_inside"))
        assert tools.nothing_is_left(run)
        assert time.time() - (run / "more").stat().st_mtime < SOON


def fill_once_inside(run: Path) -> None:
    """Fill the disk when the ranks have met: then nobody but the runner writes much."""
    tools.until_they_run(run)
    with (run / "more").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_a_launcher_that_is_not_there_or_reaches_no_host_is_named(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RankError, match=r"^mpiexec ended with exit code \d+: see "):
        tools.run(tmp_path, "1", launcher="mpiexec:no-such-host-1,no-such-host-2")
    assert time.monotonic() - began < SOON
    with pytest.raises(UserError, match=r"launcher torchrun: it is not in this environment"):
        tools.run(tmp_path, "1", launcher="torchrun", python=tmp_path / "python")
    assert not list(tmp_path.glob("ranks-*"))
