"""Which launcher starts the ranks, with which command line."""

import subprocess
from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.launch import launchers
from helpers.launch.launchers import Launcher, choose

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "gpu[01-03]"}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every launcher is there, and no scontrol: some sites have none on compute nodes."""
    for name in ("mpiexec", "torchrun", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_outside_an_allocation_nodes_are_virtual() -> None:
    assert choose("auto", 2, environment={}) == Launcher("mpiexec", 2, True)
    assert choose("torchrun", 2, environment=SLURM).virtual


def test_in_an_allocation_srun_starts_them_on_its_nodes(programs: Path) -> None:
    found = choose("auto", 2, environment=SLURM)
    assert (found.name, found.virtual, found.hosts) == ("srun", False, ("gpu01", "gpu02"))
    command = found.command([f"{programs}/python", "folder"], 4)
    assert command[0] == str(programs / "srun") and command[-2:] == [f"{programs}/python", "folder"]
    assert {"--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--nodelist=gpu01,gpu02"} <= {
        *command
    }
    assert {"--kill-on-bad-exit=1", "--export=ALL"} <= {*command}
    assert "--distribution=block" in command
    assert not [word for word in command if word.startswith("--cpus-per-task")]


@pytest.mark.parametrize(
    ("given", "ranks", "share"),
    [("16(x2)", 4, "4"), ("16", 3, "5"), ("16(x2),8", 2, "4"), ("1(x2)", 2, None), ("?", 1, None)],
)
def test_a_rank_has_its_share_of_the_smallest_nodes_cores(
    given: str, ranks: int, share: str | None, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", given)
    command = choose("auto", 2, environment=SLURM).command([f"{programs}/python"], ranks)
    found = [word for word in command if word.startswith("--cpus-per-task=")]
    assert found == ([f"--cpus-per-task={share}"] if share else [])


def test_ranks_that_talk_by_mpi_are_started_by_mpiexec_there_too(programs: Path) -> None:
    found = choose("auto", 3, mpi=True, environment=SLURM)
    assert (found.name, found.hosts) == ("mpiexec", ("gpu01", "gpu02", "gpu03"))
    with pytest.raises(UserError, match="launcher srun: this framework's ranks use MPI"):
        choose("srun", 2, mpi=True, environment=SLURM)


def test_one_node_asks_slurm_for_nothing() -> None:
    assert choose("auto", 1, environment=SLURM | {"SLURM_JOB_NODELIST": "?"}).virtual


def test_an_allocation_has_to_have_the_nodes(programs: Path) -> None:
    with pytest.raises(UserError, match="nodes 4: this allocation has 3; ask Slurm for --nodes=4"):
        choose("auto", 4, environment=SLURM)
    with pytest.raises(
        UserError, match=r"='' is no list of nodes: outside of Slurm, unset SLURM_J"
    ):
        choose("auto", 2, environment={"SLURM_JOB_ID": "7"})
    with pytest.raises(UserError, match="this process is not in a Slurm allocation"):
        choose("srun", 2, environment={})


@pytest.mark.parametrize(
    ("listed", "hosts"),
    [
        ("n1", "n1"),
        ("n1,n2.site.org", "n1 n2.site.org"),
        ("n[08-10,12],gpu1", "n08 n09 n10 n12 gpu1"),
        ("rack[1-2]n[1-2]", "rack1n1 rack1n2 rack2n1 rack2n2"),
        ("n[9-10]-ib", "n9-ib n10-ib"),
    ],
)
def test_slurms_lists_are_read_without_scontrol(listed: str, hosts: str) -> None:
    """As ``scontrol show hostnames`` prints them."""
    assert launchers.expanded(listed) == tuple(hosts.split())


@pytest.mark.parametrize(
    "listed",
    ["", "n[1-", "n[1-x]", "n[1-999999999]", "n[1-99][1-99]", "n[]", "-oProxyCommand=x", "n 1;rm"],
)
def test_what_is_no_list_of_slurms_is_refused(listed: str) -> None:
    with pytest.raises(UserError, match="is no list of nodes: outside of Slurm, unset SLURM_JOB_"):
        launchers.expanded(listed)


def test_what_an_allocation_has_left_in_the_environment_is_no_allocation() -> None:
    """On another machine, whoever asks for mpiexec gets it."""
    assert choose("mpiexec", 2, environment=SLURM) == Launcher("mpiexec", 2, True, asked="mpiexec")
    unlisted = {"SLURM_JOB_ID": "7"}
    assert choose("mpiexec", 2, environment=unlisted).virtual
    here = {"SLURMD_NODENAME": "gpu01"}
    assert choose("mpiexec", 2, environment=SLURM | here).hosts == ("gpu01", "gpu02")


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("mpiexec:a,-oProxyCommand", "'-oProxyCommand' is not a valid host name"),
        ("mpiexec:a;true,b", "'a;true' is not a valid host name"),
        ("mpiexec:a\n,b c", "'b c' is not a valid host name"),
        ("mpiexec:a,b,a", "a is named twice"),
        ("mpiexec:,", "launcher is 'mpiexec:,': give auto"),
        ("ssh" * 9999, "give auto, mpiexec"),
    ],
)
def test_what_is_no_list_of_hosts_is_refused(launcher: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        launchers.check(launcher)
    assert said in str(refused.value) and len(str(refused.value)) < 250


def test_mpiexec_takes_hosts_and_a_named_interface(programs: Path) -> None:
    named = {"GLOO_SOCKET_IFNAME": "eth1"}
    found = choose("mpiexec:node1, node2,node3", 2, environment=named)
    assert (found.hosts, found.virtual) == (("node1", "node2"), False)
    words = " ".join(found.command([f"{programs}/python"], 4))
    assert "-hosts node1,node2 -iface eth1 -n 8 -ppn 4 " in words


def test_hydras_own_list_of_hosts_is_taken(programs: Path) -> None:
    listed = programs / "hosts"
    listed.write_text("10.99.0.1:2 # the first\n\n10.99.0.2\n10.99.0.2\n")
    named = {"HYDRA_HOST_FILE": str(listed)}
    found = choose("auto", 2, environment=named)
    assert (found.hosts, found.virtual) == (("10.99.0.1", "10.99.0.2"), False)
    assert choose("torchrun", 2, environment=named).virtual
    with pytest.raises(UserError, match="2 hosts for 3 nodes"):
        choose("auto", 3, environment=named)
    with pytest.raises(UserError, match=r"HYDRA_HOST_FILE=.*it cannot be read"):
        choose("auto", 2, environment={"HYDRA_HOST_FILE": str(programs / "none")})


def test_on_one_machine_nothing_listens_elsewhere(programs: Path) -> None:
    words = choose("mpiexec", 2, environment={}).command([f"{programs}/python"], 1)
    assert words[1:7] == ["-iface", "lo", "-rmk", "user", "-launcher", "fork"]
    assert words[7:] == ["-n", "2", "-ppn", "1", f"{programs}/python"]
    torchrun = choose("torchrun", 2, environment={}).command([f"{programs}/python"], 2)
    assert "--nproc-per-node=4" in torchrun and "--rdzv-endpoint=127.0.0.1:0" in torchrun


def test_a_launcher_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mpiexec: it is not in this environment .*'make envs'"):
        Launcher("mpiexec", 2, True).command([f"{tmp_path}/python"], 1)


def test_the_version_is_what_the_launcher_reports(programs: Path) -> None:
    for name, said in {
        "mpiexec": "HYDRA build details:\n  Version:  5.0.2",
        "srun": "slurm 23.11",
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nprintf "{said}\\n"\n')
    python = programs / "python"
    assert Launcher("mpiexec", 2, True).version(python) == "5.0.2"
    assert Launcher("srun", 2, True).version(python) == "23.11"
    assert set(launchers.RANK_IN) == set(launchers.LAUNCHERS)
    assert subprocess.run([programs / "srun"], check=True).returncode == 0
