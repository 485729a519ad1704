"""Build the command line that starts a run's ranks: ``mpiexec``, from the run's environment.

Its process manager, Hydra of MPICH, starts the ranks by ssh on the hosts that it is given
(``mpiexec:node1,node2``), and in a Slurm allocation by ``srun`` on the job's nodes. Without either,
all nodes are *simulated*: processes of this machine.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from helpers import network
from helpers.errors import UserError

HOST_FILE = "HYDRA_HOST_FILE"
"""The variable that gives Hydra its hosts."""
MOST_NODES = 1024
MOST_SIMULATED = 16
"""Nodes that one machine can stand for, before their processes fill its memory."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?")


@dataclass(frozen=True)
class Launcher:
    """The command that starts the ranks on the nodes."""

    nodes: int
    virtual: bool
    """Whether all nodes are this machine."""
    hosts: tuple[str, ...] = ()
    """Their names, where Hydra does not know them from its environment."""
    interface: str = ""
    """The network interface to use: the loopback on one machine, else what the user named."""

    def command(self, python: Path, ranks_a_node: int) -> list[str]:
        """The words before a program that run it once for each rank.

        Raises:
            UserError: the environment of this Python has no mpiexec.
        """
        program = python.with_name("mpiexec")
        if not program.exists():
            raise UserError(f"{program} is missing: run 'make envs'")
        words = [str(program), "-n", str(self.nodes * ranks_a_node), "-ppn", str(ranks_a_node)]
        if self.hosts:
            words += ["-hosts", ",".join(self.hosts)]
        if self.interface:
            words += ["-iface", self.interface]
        if self.virtual:  # whatever an allocation has left in the environment
            words += ["-rmk", "user", "-launcher", "fork"]
        return words


def check(launcher: str) -> str:
    """A launcher as a user gave it."""
    name, colon, listed = str(launcher).partition(":")
    hosts = _split(listed)
    if name not in ("auto", "mpiexec") or (colon and (name != "mpiexec" or not hosts)):
        raise UserError(
            f"launcher is {str(launcher)[:100]!r}: give auto, or mpiexec:HOST,HOST,... ; for "
            "torchrun convert the notebook to a script (docs/many-machines.md)"
        )
    for host in hosts:  # it goes to mpiexec, and from there to ssh
        if not _HOST.fullmatch(host):
            raise UserError(f"launcher: {host[:100]!r} is not a valid host name")
    if twice := [host for host in hosts if hosts.count(host) > 1]:
        raise UserError(f"launcher: {twice[0]} is named twice; give each node a different host")
    return launcher


def _split(listed: str) -> tuple[str, ...]:
    return tuple(host.strip() for host in listed.split(",") if host.strip())


def choose(launcher: str, nodes: int, *, environment: Mapping[str, str] = os.environ) -> Launcher:
    """Choose the hosts for this number of nodes.

    ``launcher`` is ``mpiexec:node1,node2``, or ``auto``: the nodes of a Slurm allocation, else the
    hosts of Hydra's file, else this machine.
    """
    hosts = _split(check(launcher).partition(":")[2])[:nodes]
    named = next((environment[each] for each in network.NAMED if environment.get(each)), "")
    allocated = int(environment.get("SLURM_JOB_NUM_NODES", 0))
    if hosts and len(hosts) < nodes:
        raise UserError(f"launcher {launcher}: {len(hosts)} hosts for {nodes} nodes; name {nodes}")
    if not hosts and 1 < allocated < nodes:
        raise UserError(
            f"nodes {nodes}: this allocation has {allocated}; ask Slurm for --nodes={nodes}"
        )
    apart = bool(hosts) or environment.get(HOST_FILE) or allocated > 1
    virtual = nodes == 1 or not apart
    if virtual and nodes > MOST_SIMULATED:
        raise UserError(
            f"nodes {nodes}: one machine can simulate at most {MOST_SIMULATED} nodes; give fewer, "
            "name the machines (launcher), or run in a Slurm allocation"
        )
    interface = network.loopback()[0] if virtual else named
    return Launcher(nodes, virtual, hosts if nodes > 1 else (), interface)
