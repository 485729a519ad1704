"""On which hosts the ranks start, with which command line."""

from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.launch import launchers
from helpers.launch.launchers import Launcher, choose

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3"}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an environment with mpiexec."""
    (tmp_path / "mpiexec").touch()
    return tmp_path / "python"


def test_outside_an_allocation_nodes_are_simulated_and_nothing_listens_elsewhere(
    python: Path,
) -> None:
    found = choose("auto", 2, environment={})
    assert found == Launcher(2, True, (), "lo")
    words = " ".join(found.command(python, 2))
    assert words.endswith("mpiexec -n 4 -ppn 2 -iface lo -rmk user -launcher fork")


def test_in_an_allocation_hydra_asks_slurm_for_its_nodes(python: Path) -> None:
    found = choose("auto", 2, environment=SLURM)
    assert not found.virtual and found.command(python, 4)[1:] == ["-n", "8", "-ppn", "4"]
    assert choose("auto", 1, environment=SLURM).virtual
    assert choose("auto", 2, environment=SLURM | {"SLURM_JOB_NUM_NODES": "1"}).virtual
    with pytest.raises(UserError, match="nodes 4: this allocation has 3; ask Slurm for --nodes=4"):
        choose("auto", 4, environment=SLURM)


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("mpiexec:a,-oProxyCommand", "'-oProxyCommand' is not a valid host name"),
        ("mpiexec:a;true,b", "'a;true' is not a valid host name"),
        ("mpiexec:a\n,b c", "'b c' is not a valid host name"),
        ("mpiexec:a,b,a", "a is named twice"),
        ("mpiexec:,", "launcher is 'mpiexec:,': give auto"),
        ("ssh" * 9999, "give auto, or mpiexec:HOST"),
    ],
)
def test_what_is_no_list_of_hosts_is_refused(launcher: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        launchers.check(launcher)
    assert said in str(refused.value) and len(str(refused.value)) < 250


def test_it_takes_hosts_and_a_named_interface(python: Path) -> None:
    named = {"GLOO_SOCKET_IFNAME": "eth1"}
    found = choose("mpiexec:node1, node2,node3", 2, environment=named)
    assert (found.hosts, found.virtual) == (("node1", "node2"), False)
    words = " ".join(found.command(python, 4))
    assert words.endswith("-n 8 -ppn 4 -hosts node1,node2 -iface eth1")
    with pytest.raises(UserError, match="1 hosts for 2 nodes"):
        choose("mpiexec:node1", 2, environment={})


def test_an_environment_without_mpiexec_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mpiexec is missing: run 'make envs'"):
        Launcher(2, True).command(tmp_path / "python", 1)
