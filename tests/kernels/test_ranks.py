"""Ranks under mpiexec, with functions that take no time: how a run ends when one does.

No framework takes part.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import faults
import psutil
import pytest
import ranks_tools as tools
import slurm_cluster
from processes import own_temporary_folder

from helpers import paths
from helpers.launch import launchers
from helpers.launch.failures import RankError
from helpers.runner import hangs, ranks

sys.path.append(str(paths.ROOT / "benchmarks"))

import hosts

SOON = 15.0
"""Seconds in which a run has ended, whatever has happened to it."""


def test_each_rank_finds_torchruns_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an untrusted one has left in the environment."""
    left = {"RANK": "7", "WORLD_SIZE": "9", "PMI_RANK": "5", "PMI_SIZE": "9", "PMI_FD": "77"}
    left |= {"PMIX_RANK": "3", "OMPI_COMM_WORLD_RANK": "3"}
    left |= {"MASTER_ADDR": "203.0.113.1", "TF_CONFIG": "{no", "LOCAL_RANK": "4"}
    left |= {"SLURM_JOB_ID": "7", "SLURM_NODELIST": "n[1-2]", "SLURM_NNODES": "2"}
    left |= {"SLURM_TASKS_PER_NODE": "1(x2)", "PBS_JOBID": "1", "PBS_NODEFILE": "/none"}
    for name, value in left.items():
        monkeypatch.setenv(name, value)
    found = tools.run(tmp_path, tools.calls("variables"), each=2)
    same = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    assert found == [
        {"RANK": str(n), "LOCAL_RANK": str(n % 2), "GROUP_RANK": str(n // 2), **same}
        for n in range(4)
    ]
    assert tools.nothing_is_left(tmp_path)


CAUSES = {
    "fail": "rank 1 on {host}: ValueError: no such file",
    "die": "rank 1 on {host}: killed (signal 9; out of memory?)",
    "die 6": "rank 1 on {host}: killed (signal 6)",
    "leave 0": "rank 1 on {host}: ended with exit code 0",
    "leave 3": "rank 1 on {host}: ended with exit code 3",
    "die_unnoticed": "rank 1 on {host}: killed (signal 9; out of memory?)",
    "fail_and_others_abort": "rank 1 on {host}: ValueError: no such file",
}


@pytest.mark.parametrize("what", CAUSES)
def test_one_rank_ends_all_and_the_earliest_cause_is_named(what: str, tmp_path: Path) -> None:
    function, *how = what.split()
    with pytest.raises(RankError) as caught:
        tools.run(tmp_path, tools.calls(function, 1, *map(int, how)))
    expected = CAUSES[what].format(host=os.uname().nodename)
    assert str(caught.value) == expected
    assert tools.nothing_is_left(tmp_path)
    assert tools.seconds_since_it_went_wrong(tmp_path) < SOON
    if function == "fail":
        log = (tmp_path / ranks.LOG).read_text()
        assert "in fail" in log, "the traceback is kept"


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
from helpers.frameworks import rank_info
rank = tools.here().rank
row = (Devices("cpu", ("a",)), [rank], float("nan"))
value = {1: np.arange(3, dtype=np.float16) * rank, "row": row}
each = rank_info.exchange(value)
assert [found["row"][1] for found in each] == [[0], [1], [2]]
assert all(found["row"][0] == Devices("cpu", ("a",)) for found in each)
assert [found[1].tolist() for found in each] == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]
assert each[2][1].dtype == np.float16 and each[0]["row"][2] != each[0]["row"][2]
assert rank_info.exchange(None) == [None] * 3
with rank_info.first_rank_first():
    began = time.monotonic()
    time.sleep(0.3)
tools.keep([began, time.monotonic()])
"""
    first, *others = tools.run(tmp_path, told, nodes=3)
    assert all(began >= first[1] - 0.2 and began > first[0] for began, _ in others)


def test_ranks_that_hang_are_ended(tmp_path: Path) -> None:
    with pytest.raises(hangs.Stalled, match="stopped as hung"):
        tools.run(tmp_path, tools.calls("hang", 1), stall_minutes=3 / 60)
    assert tools.nothing_is_left(tmp_path)


@pytest.mark.parametrize("victim", ["runner", "launcher"])
def test_ranks_end_with_a_process_that_is_killed(victim: str, tmp_path: Path) -> None:
    command = [sys.executable, tools.__file__, "killed", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(paths.ROOT), "TMPDIR": own_temporary_folder()}
    running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "inside").exists():  # until all ranks have met
        time.sleep(0.05)
    assert len(tools.left(tmp_path)) > 2
    (launcher,) = (each for each in psutil.Process(running.pid).children())
    os.kill(running.pid if victim == "runner" else launcher.pid, signal.SIGKILL)
    assert tools.nothing_is_left(tmp_path, SOON)
    said = running.communicate(timeout=SOON)[1]
    if victim == "launcher":
        assert "mpiexec ended with exit code -9" in said
    else:
        tools.run(tmp_path, "1")


def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.alarm(3)
    with pytest.raises(KeyboardInterrupt):
        tools.run(tmp_path, tools.calls("hang", 1))
    assert tools.nothing_is_left(tmp_path, SOON)


def test_hosts_that_were_not_asked_for_are_refused(tmp_path: Path) -> None:
    """Two real nodes, and the launcher starts both ranks on this machine."""
    host = os.uname().nodename
    virtual = launchers.Launcher(2, False)
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
            command = [sys.executable, tools.__file__, "slurm", str(tmp_path)]
            assert found.run("salloc", "--nodes=2", *command).splitlines()[-2:] == [
                "True n1 n2",
                "rank 1 on n2: killed (signal 9; out of memory?)",
            ]
            assert tools.nothing_is_left(tmp_path, SOON)
    except slurm_cluster.CannotBeHad as error:
        pytest.skip(str(error))


MBIT = 40


def said_on_hosts(what: str, folder: Path) -> tuple[list[str], list[str]]:
    """Two simulated hosts, and what the runner on the first prints with a rank on each."""
    try:
        with hosts.up(2, MBIT) as two:
            two.environment["PYTHONPATH"] = str(paths.ROOT)
            command = [sys.executable, tools.__file__, what, str(folder)]
            started = two.start(two.first, *command, stdout=subprocess.PIPE)
            return list(two.addresses), started.communicate(timeout=300)[0].splitlines()
    except hosts.CannotBeHad as error:
        pytest.skip(str(error))


def test_ranks_on_two_hosts_use_their_link_and_are_in_one_chart(tmp_path: Path) -> None:
    names, said = said_on_hosts("network", tmp_path)
    found = json.loads(said[-1])
    assert found["interface"] == ", ".join(f"{name}e" for name in names)
    assert 0.3 < found["mbit"] / MBIT < 1.05
    assert found["devices"][-2:] == [f"{name}:host" for name in names]
    assert found["phases"] == ["all-reduce alone"] * 2, "each rank marks it on its host"


def test_ranks_meet_over_the_network_of_their_hosts(tmp_path: Path) -> None:
    (first, second), said = said_on_hosts("slurm", tmp_path)
    assert said == [
        f"False {first} {second}",
        f"rank 1 on {second}: killed (signal 9; out of memory?)",
    ]
    assert tools.nothing_is_left(tmp_path, SOON)


def test_a_disk_that_is_full_is_the_cause(tmp_path: Path) -> None:
    with faults.disk(tmp_path / "run", "size=2m") as run:
        # Rank 1 fills it; rank 0, which writes too, may be the first to meet it.
        full = r"^rank [01] on \S+: OSError: .*No space left on device"
        with pytest.raises(RankError, match=full):
            tools.run(run, tools.calls("fill_the_disk", 1))
        assert tools.nothing_is_left(run) and tools.seconds_since_it_went_wrong(run) < SOON


def test_a_host_that_is_not_reached_is_named(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RankError, match=r"^mpiexec ended with exit code \d+: see "):
        tools.run(tmp_path, "1", launcher="mpiexec:no-such-host-1,no-such-host-2")
    assert time.monotonic() - began < SOON
