"""This module starts gpumon's own processes, and knows the rank and the system of this one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, NamedTuple


def environment() -> dict[str, str]:
    """The program's own environment, with gpumon findable however the program found it."""
    here = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": here + (os.pathsep + known if known else "")}


def start(
    module: str, config: dict[str, Any], stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Run a module of gpumon with a configuration; its standard input ends when we do.

    Its separate session keeps an interrupt of the program away from it, and no file of the working
    folder is taken for a module.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, json.dumps(config)],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env=environment(),
        start_new_session=True,
    )


LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)
"""Rank, rank among those of this host, and their number, as torchrun, Open MPI, MPICH and Intel
MPI, PMIx and Slurm name them. Slurm comes last: what a batch script starts by mpiexec inherits the
script's own variables."""


class RankInfo(NamedTuple):
    """Which of a job's processes this is; None if no launcher says it.

    local_rank: its number among those of its host. world_size: the job's processes. job_id: a name
    of this start of the job, the same for all its processes.
    """

    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    job_id: str | None = None

    @property
    def is_distributed(self) -> bool:
        return self.rank is not None and self.world_size != 1

    @property
    def is_host_sampler(self) -> bool:
        """Whether this process records its host: the host's first rank, or any without a rank."""
        return not self.is_distributed or not self.local_rank


def rank_info() -> RankInfo:
    """This process's place in a job, by its environment."""
    for names in LAUNCHERS:
        rank, local, size = (_count(os.environ.get(name, "")) for name in names)
        if rank is None:
            continue
        if local is None and _count(os.environ.get("SLURM_PROCID", "")) == rank:
            local = _count(os.environ.get("SLURM_LOCALID", ""))  # srun --mpi=pmi2
        return RankInfo(rank, local, size, _job(names[0]))
    return RankInfo()


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _job(of_rank: str) -> str | None:
    """A start of a job by its launcher's own name, where it has one; fit to name a file."""
    name = os.environ.get("PMIX_NAMESPACE", "")
    slurm = [os.environ.get(each, "") for each in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    if of_rank == "SLURM_PROCID" or (of_rank == "PMI_RANK" and "SLURM_STEP_ID" in os.environ):
        name = ".".join(filter(None, slurm))
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or None


def program_root(rank: int | None) -> int:
    """The process whose descendants are the program's own: this one, or a rank's launcher.

    All ranks of a machine have the same launcher, so they count as one program.
    """
    parent = os.getppid()
    return parent if rank is not None and parent > 1 else os.getpid()
