"""Build the command lines that start a run's ranks with mpiexec, srun or torchrun.

``mpiexec`` comes with the environment of the run (package ``mpich``). Given hosts,
``mpiexec:node1,node2``, it starts the ranks by ssh. ``srun`` starts them on the nodes of a Slurm
allocation, ``torchrun`` on this machine. Without other hosts all nodes are *simulated*: processes
of this machine.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from helpers import network
from helpers.errors import UserError

LAUNCHERS = ("mpiexec", "srun", "torchrun")
RANK_IN = {"mpiexec": "PMI_RANK", "srun": "SLURM_PROCID", "torchrun": "RANK"}
"""The variable in which each launcher gives a process its rank."""
HOST_FILE = "HYDRA_HOST_FILE"
"""The variable that gives MPICH's process manager, Hydra, its hosts."""
MOST_NODES = 1024
MOST_SIMULATED = 16
"""Nodes that one machine can stand for, before their processes fill its memory."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?")
_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
_WORD = rf"[A-Za-z0-9](?:[A-Za-z0-9._-]|\[{_RANGE}(?:,{_RANGE})*\])*"
_LISTED_WORD = re.compile(_WORD)
_LISTED = re.compile(rf"{_WORD}(?:,{_WORD})*")
"""Hosts as Slurm lists them."""


@dataclass(frozen=True)
class Launcher:
    """What starts the ranks of so many nodes."""

    name: str
    nodes: int
    virtual: bool
    """Whether all nodes are this machine."""
    hosts: tuple[str, ...] = ()
    """Their names, where the launcher needs them."""
    interface: str = ""
    """The network interface that the user named."""
    asked: str = "auto"
    """What it was chosen by."""

    def command(self, program: list[str], ranks_a_node: int) -> list[str]:
        """The command line that runs ``program``, Python's first, once for each rank."""
        start = _program(self.name, Path(program[0]).parent)
        return [start, *_OPTIONS[self.name](self, ranks_a_node), *program]

    def version(self, python: Path) -> str:
        """The version that the launcher reports, in the environment of this Python."""
        asked = [_program(self.name, python.parent), "--version"]
        if self.name == "torchrun":
            asked = [str(python), "-c", "from importlib.metadata import *; print(version('torch'))"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        words = said.replace("Version:", "").split()
        return next((word for word in words if word[0].isdigit()), "unknown")


def check(launcher: str) -> str:
    """A launcher as a user gave it."""
    name, colon, listed = str(launcher).partition(":")
    hosts = _split(listed)
    if name not in ("auto", *LAUNCHERS) or (colon and (name != "mpiexec" or not hosts)):
        raise UserError(
            f"launcher is {str(launcher)[:100]!r}: give auto, {', '.join(LAUNCHERS)}, or "
            "mpiexec:HOST,HOST,..."
        )
    for host in hosts:  # it goes to mpiexec, and from there to ssh
        if not _HOST.fullmatch(host):
            raise UserError(f"launcher: {host[:100]!r} is not a valid host name")
    if twice := [host for host in hosts if hosts.count(host) > 1]:
        raise UserError(f"launcher: {twice[0]} is named twice; give each node a different host")
    return launcher


def _split(listed: str) -> tuple[str, ...]:
    return tuple(host.strip() for host in listed.split(",") if host.strip())


def choose(
    launcher: str, nodes: int, *, mpi: bool = False, environment: Mapping[str, str] = os.environ
) -> Launcher:
    """Choose the launcher for so many nodes.

    Args:
        launcher: ``auto``, a launcher's name, or ``mpiexec:node1,node2``. ``auto`` is ``srun`` in
            a Slurm allocation, else ``mpiexec``.
        mpi: whether ranks talk by MPI, to which only ``mpiexec`` introduces them.
        environment: the variables of the process that asks.
    """
    name, _, listed = check(launcher).partition(":")
    in_slurm = "SLURM_JOB_ID" in environment
    if name == "auto":
        name = "srun" if in_slurm and not mpi else "mpiexec"
    if mpi and name != "mpiexec":
        raise UserError(f"launcher {name}: this framework's ranks use MPI; give mpiexec")
    if name == "srun" and not in_slurm:
        raise UserError(
            "launcher srun: this process is not in a Slurm allocation; "
            "get one with salloc or sbatch"
        )
    interface = next((environment[each] for each in network.NAMED if environment.get(each)), "")
    hosts = _split(listed)
    if not hosts and name == "mpiexec" and environment.get(HOST_FILE):
        hosts = _listed(Path(environment[HOST_FILE]))
    if hosts and len(hosts) < nodes:
        raise UserError(f"launcher {launcher}: {len(hosts)} hosts for {nodes} nodes; name {nodes}")
    if not hosts and in_slurm and name != "torchrun" and nodes > 1:
        leftover = launcher == "mpiexec" and not _is_in_job(environment)
        hosts = () if leftover else _allocated(nodes, environment)
    hosts = hosts[:nodes]
    virtual = len(set(hosts)) < 2
    if virtual and nodes > MOST_SIMULATED:
        raise UserError(
            f"nodes {nodes}: one machine can simulate at most {MOST_SIMULATED} nodes; give fewer, "
            "name the machines (launcher), or run in a Slurm allocation"
        )
    return Launcher(name, nodes, virtual, hosts, interface, launcher)


def _listed(path: Path) -> tuple[str, ...]:
    """The hosts in a file as Hydra reads it: one a line, ``node1`` or ``node1:4``."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{HOST_FILE}={path}: it cannot be read ({error})") from None
    words = [line.partition("#")[0].split() for line in lines]
    return tuple(dict.fromkeys(found[0].partition(":")[0] for found in words if found))


def _is_in_job(environment: Mapping[str, str]) -> bool:
    """Whether this machine is one of the job's nodes.

    A job's variables outlive its allocation, and travel to where there is no Slurm.
    """
    here = {os.uname().nodename.partition(".")[0], environment.get("SLURMD_NODENAME")}
    with suppress(UserError):
        hosts = expanded(environment.get("SLURM_JOB_NODELIST", ""))
        return any(host.partition(".")[0] in here for host in hosts)
    return False


def _allocated(nodes: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of the Slurm allocation; none where it is one machine, with simulated nodes."""
    hosts = expanded(environment.get("SLURM_JOB_NODELIST", ""))
    if len(hosts) == 1:
        return ()
    if len(hosts) < nodes:
        raise UserError(
            f"nodes {nodes}: this allocation has {len(hosts)}; ask Slurm for --nodes={nodes}"
        )
    return hosts


def expanded(listed: str) -> tuple[str, ...]:
    """The hosts of one of Slurm's lists: ``n[08-10,12],gpu1`` is n08, n09, n10, n12 and gpu1.

    Containers and the compute nodes of some sites have no ``scontrol`` that would say so.

    Raises:
        UserError: it is no such list, or one of more than ``MOST_NODES`` hosts.
    """
    wrong = UserError(
        f"SLURM_JOB_NODELIST={listed[:100]!r} is no list of nodes: outside of Slurm, unset "
        "SLURM_JOB_ID"
    )
    if not _LISTED.fullmatch(listed):
        raise wrong
    found: list[str] = []
    for word in _LISTED_WORD.findall(listed):
        hosts = [""]
        for text, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]+)\]", word):
            parts = list(_numbers(ranges, wrong)) if ranges else [text]
            if len(found) + len(hosts) * len(parts) > MOST_NODES:
                raise wrong
            hosts = [host + part for host in hosts for part in parts]
        found += hosts
    return tuple(found)


def _numbers(ranges: str, wrong: UserError) -> Iterator[str]:
    """Those of ``08-10,12``, with their leading zeros."""
    for each in ranges.split(","):
        first, dash, last = each.partition("-")
        numbers = range(int(first), int(last if dash else first) + 1)
        if len(numbers) > MOST_NODES:
            raise wrong
        yield from (str(number).zfill(len(first)) for number in numbers)


def _program(name: str, folder: Path) -> str:
    here = str(folder / name) if (folder / name).exists() else None
    found = shutil.which(name) if name == "srun" else here
    if found is None:
        fix = "run 'make envs'" if name == "mpiexec" else "give another launcher"
        raise UserError(f"launcher {name}: it is not in this environment ({folder}); {fix}")
    return found


def _mpiexec(launcher: Launcher, ranks_a_node: int) -> list[str]:
    where = ["-hosts", ",".join(launcher.hosts)] if not launcher.virtual else []
    # On one machine nothing of it listens where another could reach it.
    interface = network.loopback(network.addresses())[0] if launcher.virtual else launcher.interface
    by = ["-iface", interface] if interface else []
    if launcher.virtual:  # whatever an allocation has left in the environment
        by += ["-rmk", "user", "-launcher", "fork"]
    number = ["-n", str(launcher.nodes * ranks_a_node), "-ppn", str(ranks_a_node)]
    return [*where, *by, *number]


def _srun(launcher: Launcher, ranks_a_node: int) -> list[str]:
    nodes = 1 if launcher.virtual else launcher.nodes
    ranks = launcher.nodes * ranks_a_node
    return [
        f"--nodes={nodes}",
        f"--ntasks={ranks}",
        f"--ntasks-per-node={ranks // nodes}",
        *_cores(ranks // nodes, os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")),
        *([f"--nodelist={','.join(launcher.hosts)}"] if launcher.hosts else []),
        "--distribution=block",
        "--kill-on-bad-exit=1",
        "--export=ALL",  # some sites have SLURM_EXPORT_ENV=NONE
        "--mpi=none",
        "--cpu-bind=none",
        "--overlap",
        "--unbuffered",
    ]


def _cores(ranks: int, given: str) -> list[str]:
    """Each rank's share of a node's cores, which srun no longer takes from the job (Slurm 22.05).

    Slurm says the cores of each node as ``16(x2),8``.
    """
    counts = [int(count) for count in re.findall(r"(\d+)(?:\(x\d+\))?(?:,|$)", given)]
    share = min(counts, default=0) // ranks
    return [f"--cpus-per-task={share}"] if share else []


def _torchrun(launcher: Launcher, ranks_a_node: int) -> list[str]:
    ranks = launcher.nodes * ranks_a_node
    # --rdzv-endpoint: by default its store listens on all interfaces.
    options = ["--nnodes=1", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d"]
    options += ["--rdzv-endpoint=127.0.0.1:0", "--max-restarts=0"]
    return [*options, "--no-python"]


_OPTIONS = {"mpiexec": _mpiexec, "srun": _srun, "torchrun": _torchrun}
