"""Ranks under real engines, with functions that take no time: how a run ends when one of them does.

No framework takes part. The kernel is PyTorch's, whose environment has both engines.
"""

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import faults
import numpy as np
import pytest
import ranks_tools as tools
import slurm_cluster

from helpers import paths
from helpers.errors import UserError
from helpers.launch import coordinator, engines, letters
from helpers.launch.causes import RankError

sys.path.append(str(paths.ROOT / "benchmarks"))

import hosts

SOON = 15.0
"""Seconds in which a run has ended, whatever has happened to it."""


@pytest.mark.parametrize("engine", tools.ENGINES)
def test_each_rank_finds_torchruns_variables(engine: str, tmp_path: Path) -> None:
    ranks = tools.start(tmp_path, engine, nodes=2, each=2)
    try:
        found = ranks.call(tools.variables)
        assert ranks.call(tools.variables) == found, "they live from call to call"
        assert stat.S_IMODE(ranks.folder.stat().st_mode) == 0o700
        there = [path for path in ranks.folder.iterdir() if not path.name.startswith(".")]
        assert {stat.S_IMODE(path.stat().st_mode) for path in there} == {0o600}
    finally:
        ranks.end()
    same = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    assert found == [
        {"RANK": str(n), "LOCAL_RANK": str(n % 2), "GROUP_RANK": str(n // 2), **same}
        for n in range(4)
    ]
    assert tools.nobody_is_left(tmp_path) and not ranks.folder.exists()


@pytest.mark.parametrize("engine", tools.ENGINES)
@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (tools.fail, "rank 1 on {host}: ValueError: no such file"),
        (tools.die, "rank 1 on {host}: killed (signal 9; out of memory?)"),
        (tools.leave, "rank 1 on {host}: ended with exit code 3"),
    ],
)
def test_one_rank_ends_all_and_the_earliest_cause_is_named(
    engine: str, function: object, cause: str, tmp_path: Path
) -> None:
    ranks = tools.start(tmp_path, engine)
    began = time.monotonic()
    with pytest.raises(RankError) as caught:
        ranks.call(function, 1)  # type: ignore[arg-type]
    assert str(caught.value) == cause.format(host=os.uname().nodename)
    assert tools.nobody_is_left(tmp_path) and time.monotonic() - began < SOON
    assert ranks.ended and not ranks.folder.exists()
    if function is tools.fail:
        assert "in fail\n" in (tmp_path / coordinator.LOG).read_text(), "the traceback is kept"


def test_a_rank_that_hangs_is_named_by_those_that_have_answered(tmp_path: Path) -> None:
    ranks = tools.start(tmp_path, nodes=3, hang_minutes=3 / 60)
    with pytest.raises(RankError) as caught:
        ranks.call(tools.hang, 2)
    host = os.uname().nodename
    said = f"no answer for 3 s: ranks 0 to 1 wait for rank 2 on {host} (in hang, ranks_tools.py:"
    assert str(caught.value).startswith(said)
    assert tools.nobody_is_left(tmp_path)


def test_a_rank_that_hangs_is_named_where_the_others_wait_elsewhere(tmp_path: Path) -> None:
    ranks = tools.start(tmp_path, nodes=3, hang_minutes=3 / 60)
    with pytest.raises(RankError, match=r"ranks 0, 2 wait for rank 1 on \S+ \(in behind, "):
        ranks.call(tools.behind, 1)
    assert tools.nobody_is_left(tmp_path)


def test_ranks_end_with_a_coordinator_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, tools.__file__, "killed", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(paths.ROOT)}
    killed = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None and killed.stdout.readline() == "ready\n"
    assert len(tools.left(tmp_path)) > 2
    killed.kill()
    killed.wait()
    assert tools.nobody_is_left(tmp_path, SOON)
    assert list(tmp_path.glob("ranks-*")), "the next one takes it away"
    tools.start(tmp_path).end()
    assert not list(tmp_path.glob("ranks-*"))


def test_an_interrupted_call_ends_all(tmp_path: Path) -> None:
    ranks = tools.start(tmp_path)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.alarm(1)
    with pytest.raises(KeyboardInterrupt):
        ranks.call(tools.hang, 1)
    assert tools.nobody_is_left(tmp_path, SOON)


def test_what_rank_0_tells_is_heard_in_order(tmp_path: Path) -> None:
    ranks = tools.start(tmp_path)
    heard: list[int] = []
    assert ranks.call(tools.count, 20, heard=heard.append) == [20, 20]
    ranks.end()
    assert heard == list(range(20))


def test_an_error_in_a_cell_is_the_cause(tmp_path: Path) -> None:
    ranks = tools.start(tmp_path, cells=[("cell 7", "unknown + 1")])
    with pytest.raises(RankError, match=r"rank [01] on \S+: NameError: name 'unknown' is not def"):
        ranks.call(tools.variables)
    assert 'File "cell 7", line 1' in (tmp_path / coordinator.LOG).read_text()
    ranks = tools.start(tmp_path, cells=[("cell 7", "this = 1")])
    with pytest.raises(RankError, match=r"the cells ended before this_run.rehearse"):
        ranks.call(tools.variables)


def test_who_did_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone rank never begins."""
    alone = engines.Engine("mpiexec", 1, True)
    monkeypatch.setattr(alone.__class__, "command", _one_fewer(alone.__class__.command))
    with pytest.raises(RankError, match=r"1 of 2 ranks are in after 5 s; missing: rank 1 "):
        tools.start(tmp_path, join_seconds=5)
    assert tools.nobody_is_left(tmp_path, SOON)


def _one_fewer(command):  # type: ignore[no-untyped-def]
    def fewer(engine: engines.Engine, program: list[str], ranks: int) -> list[str]:
        words = command(engine, program, ranks)
        words[words.index("-n") + 1] = "1"
        return words

    return fewer


def test_hosts_that_were_not_asked_for_are_refused(tmp_path: Path) -> None:
    """Two real nodes, and the engine starts both ranks on this machine."""
    host = os.uname().nodename
    real = engines.Engine("mpiexec", 2, False, ("127.0.0.1", "localhost"))
    words = real.command(["program"], 1)
    assert words[1:3] == ["-hosts", "127.0.0.1,localhost"]
    order = coordinator.Order(tools.CELLS, 2, 1)
    virtual = engines.Engine("torchrun", 2, False)
    with pytest.raises(UserError, match=rf"2 host\(s\) with 1 rank.*on {host}, {host}"):
        coordinator.Ranks(tmp_path, order, virtual)
    assert tools.nobody_is_left(tmp_path, SOON)


@pytest.mark.parametrize(("launcher", "engine"), [("auto", "srun"), ("mpiexec", "mpiexec")])
def test_in_an_allocation_they_are_on_its_nodes(launcher: str, engine: str, tmp_path: Path) -> None:
    """A real Slurm of two nodes, which are one machine: so they are virtual."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slurm-") as folder,
            slurm_cluster.cluster(Path(folder) / "c") as found,
        ):
            found.environment["PYTHONPATH"] = str(paths.ROOT)
            found.environment["SLURMD_NODENAME"] = "n1"  # as the first node's script has it
            command = [sys.executable, tools.__file__, "slurm", str(tmp_path), launcher]
            said = found.run("salloc", "--nodes=2", *command).splitlines()
    except slurm_cluster.CannotBeHad as error:
        pytest.skip(str(error))
    assert said[-2:] == [
        f"{engine} True n1 n2 1",
        "rank 1 on n2: killed (signal 9; out of memory?)",
    ]
    assert tools.nobody_is_left(tmp_path, SOON)


def test_ranks_meet_over_the_network_of_their_hosts(tmp_path: Path) -> None:
    """Two hosts made of this machine; the first's coordinator starts a rank on each."""
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
        f"mpiexec False {first} {second} 1",
        f"rank 1 on {second}: killed (signal 9; out of memory?)",
    ]
    assert tools.nobody_is_left(tmp_path, SOON)


def test_a_host_that_disappears_is_named(tmp_path: Path) -> None:
    """Its link goes down and what ran there no longer does: no rank and no engine hears of it."""
    try:
        with hosts.up(2) as two:
            two.environment["PYTHONPATH"] = str(paths.ROOT)
            command = [sys.executable, tools.__file__, "gone", str(tmp_path)]
            started = two.start(two.first, *command, stdout=subprocess.PIPE)
            assert started.stdout is not None and started.stdout.readline() == "ready\n"
            name = list(two.addresses)[1]
            gone = [int(word) for word in hosts._quietly("ip", "netns", "pids", name).split()]
            subprocess.run(["ip", "link", "set", f"{name}o", "down"], check=True)
            signal_all(gone, signal.SIGSTOP)
            began = time.monotonic()
            said = started.communicate(timeout=60)[0]
            took = time.monotonic() - began
            signal_all(gone, signal.SIGCONT)  # it is back
            assert tools.nobody_is_left(tmp_path, SOON)
    except hosts.CannotBeHad as error:
        pytest.skip(str(error))
    silent = "no sign of life for 8 s; its host is gone, or was stopped"
    assert said == f"rank 1 on {name}: {silent}\n"
    assert took < SOON, took


def signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def test_a_disk_that_is_full_is_the_cause(tmp_path: Path) -> None:
    with faults.disk(tmp_path / "run", "size=2m") as run:
        ranks = tools.start(run)
        began = time.monotonic()
        with pytest.raises(RankError, match=r"^rank 1 on \S+: OSError: .*No space left on device$"):
            ranks.call(tools.fill_the_disk, 1)
        assert tools.nobody_is_left(run) and time.monotonic() - began < SOON
        ranks = tools.start(run)
        Thread(target=fill_once_inside, args=[run], daemon=True).start()
        began = time.monotonic()
        with pytest.raises(RankError, match=r"^coordinator on .*alive: No space left on device$"):
            ranks.call(tools.wait_inside)
        assert tools.nobody_is_left(run) and time.monotonic() - began < SOON


def fill_once_inside(run: Path) -> None:
    """Fill the disk when the ranks have met: then nobody but the coordinator writes much."""
    while not list(run.glob("ranks-*/port-0")):
        time.sleep(0.01)
    with (run / "more").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_an_engine_that_is_not_there_or_reaches_no_host_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    with pytest.raises(RankError, match=r"^mpiexec ended with exit code \d+: see "):
        tools.start(tmp_path, "mpiexec:no-such-host-1,no-such-host-2")
    assert time.monotonic() - began < SOON
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match=r"launcher torchrun: it is not in this environment"):
        tools.start(tmp_path, "torchrun")
    assert not list(tmp_path.glob("ranks-*"))


def test_what_a_stranger_left_in_the_environment_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {"RANK": "7", "WORLD_SIZE": "9", "PMI_RANK": "5", "PMI_SIZE": "9", "PMI_FD": "77"}
    left |= {"MASTER_ADDR": "203.0.113.1", "TF_CONFIG": "{no", "LOCAL_RANK": "4"}
    left |= {"SLURM_JOB_ID": "7", "SLURM_NODELIST": "n[1-2]", "SLURM_NNODES": "2"}
    left |= {"SLURM_TASKS_PER_NODE": "1(x2)", "PBS_JOBID": "1", "PBS_NODEFILE": "/none"}
    for name, value in left.items():
        monkeypatch.setenv(name, value)
    if shutil.which("scontrol"):
        monkeypatch.delenv("SLURM_JOB_ID")
    ranks = tools.start(tmp_path)
    found = ranks.call(tools.variables)
    ranks.end()
    assert [each["RANK"] for each in found] == ["0", "1"]
    assert {each["WORLD_SIZE"] for each in found} == {"2"}
    assert {each["MASTER_ADDR"] for each in found} == {"127.0.0.1"}


def test_two_runs_in_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    first, second = tools.start(tmp_path), tools.start(tmp_path)
    assert len(first.call(tools.variables)) == len(second.call(tools.variables)) == 2
    second.end()
    assert len(first.call(tools.variables)) == 2
    first.end()
    assert not list(tmp_path.glob("ranks-*"))


def test_nobody_is_a_rank_whom_no_launcher_started(tmp_path: Path) -> None:
    folder = letters.make_folder(tmp_path)
    letters.send(folder / "order", {"rank in": "RANK"})
    command = [sys.executable, "-m", "helpers.launch.rank", str(folder)]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "only a launcher starts it" in done.stderr


@pytest.mark.slow
def test_ranks_killed_at_random_moments(tmp_path: Path) -> None:
    """One line, nobody left, and the same command goes on to the weights of an undisturbed run."""
    import rank_kills  # which takes a framework's imports

    kills = int(os.environ.get("COMPARE_KILLS", "20"))
    seed = int(os.environ.get("COMPARE_SEED", random.randrange(10**6)))
    print(f"seed {seed}")
    batch, draws, done = rank_kills.prepare(tmp_path), random.Random(seed), 0
    for whole in (tmp_path / "first", tmp_path / "whole"):  # later runs start sooner than the first
        whole.mkdir()
        expected, pace = rank_kills.undisturbed(batch.start(whole), whole)
        print(
            f"undisturbed: {pace.first_epoch:.1f} s to the first checkpoint, {pace.epoch:.2f} more"
        )
    number = 0
    while done < kills:
        (folder := tmp_path / f"run{number}").mkdir()
        number += 1
        assert number < 3 * kills, "most kills come too late"
        took = rank_kills.kill_one(batch.start(folder), folder, draws, pace)
        done += bool(took)
        found = rank_kills.finish(batch.start(folder, resume=True), folder)
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], array) for name, array in expected.items()), number
        print(f"kill {done}: {took or 'it had ended'}; {rank_kills.resumed(folder)}", flush=True)
