"""This module starts gpumon's processes, knows this one's rank, and compares clocks of hosts.

Rank 0's recorder answers queries for its clock over UDP, and writes its address to ``PATH.clock``.
An answer was given between query and arrival: of many answers, the narrowest bounds count.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from gpumon.errors import MonitorError
from gpumon.trace_files import write_atomically

ROUNDS = 20
ANSWER_SECONDS = 0.5
ASK_SECONDS = 60.0
"""For how long the first rank is waited for, as hosts do not begin at once; and after which its
clock is asked for again."""
ClockOffset = dict[str, Any]
"""``boot``: whose clock is the reference; ``ahead (s)``: of this host's monotonic clock before it,
within ``within (s)``; ``wall (s)``: the same of the wall clock."""
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


def start(
    module: str, config: dict[str, Any], stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Run a module of gpumon, wherever gpumon lies; its standard input ends when we do.

    Its separate session keeps an interrupt of the program away from it.
    """
    here = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, json.dumps(config)],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": here + (os.pathsep + known if known else "")},
        start_new_session=True,
    )


class RankInfo(NamedTuple):
    """This process's rank in its job and on its host; None if no launcher sets it."""

    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None

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
        rank, local, size = map(_count, names)
        if rank is None:
            continue
        if local is None and _count("SLURM_PROCID") == rank:
            local = _count("SLURM_LOCALID")  # srun --mpi=pmi2
        return RankInfo(rank, local, size)
    return RankInfo()


def _count(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def program_root(rank: int | None) -> int:
    """The process whose descendants are the program's own: this one, or all ranks' launcher."""
    parent = os.getppid()
    return parent if rank is not None and parent > 1 else os.getpid()


def boot_id() -> str | None:
    """An identity of this boot: processes of one boot share their monotonic clock."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return None


@contextlib.contextmanager
def compared_clocks(
    first: Path, rank: int, report: Callable[[ClockOffset], object]
) -> Iterator[None]:
    """Compare this host's clock with rank 0's, whose trace is ``first``, in a thread.

    Rank 0 answers; the others pass the measured offset to ``report``, every minute.
    """
    ended, file = threading.Event(), first.with_name(first.name + ".clock")
    work = functools.partial(_query if rank else _answer, file, ended)
    thread = threading.Thread(target=work, args=(report,) if rank else (), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _answer(file: Path, ended: threading.Event) -> None:
    import psutil  # not needed to read traces

    cards = psutil.net_if_addrs().values()
    found = [each.address for card in cards for each in card if each.family == socket.AF_INET]
    found.sort(key=lambda address: address.startswith("127."))  # for two containers of one machine
    token = os.urandom(16).hex()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with server, contextlib.suppress(MonitorError):
        server.bind(("", 0))
        server.settimeout(0.2)
        port = server.getsockname()[1]
        offer = json.dumps({"boot": boot_id(), "addresses": found, "port": port, "token": token})
        write_atomically(file, lambda part: part.write_text(offer, encoding="utf-8"))
        while not ended.is_set():
            with contextlib.suppress(OSError):
                data, sender = server.recvfrom(256)
                asked, _, count = data.partition(b" ")
                if asked == token.encode():
                    text = f"{count.decode()} {time.monotonic():.9f} {time.time():.9f}"
                    server.sendto(text.encode(), sender)
    file.unlink(missing_ok=True)


def _query(file: Path, ended: threading.Event, report: Callable[[ClockOffset], object]) -> None:
    deadline, pause = time.monotonic() + ASK_SECONDS, ANSWER_SECONDS
    while not ended.is_set() and time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            offer = json.loads(file.read_text(encoding="utf-8"))
            if offer["boot"] == boot_id():
                return  # one clock
            if found := measure_offset(offer):
                report(found)
                deadline, pause = float("inf"), ASK_SECONDS
        ended.wait(pause)


def measure_offset(
    offer: dict[str, Any],
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> ClockOffset | None:
    """How far this host's clocks are ahead of those that made the offer; None without an answer."""
    least, most, walls = -float("inf"), float("inf"), 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(ANSWER_SECONDS)
        for address in offer["addresses"]:
            with contextlib.suppress(OSError):
                for count in range(ROUNDS):
                    asked, heading = clock(), f"{count} ".encode()
                    client.sendto(f"{offer['token']} {count}".encode(), (address, offer["port"]))
                    while not (data := client.recv(256)).startswith(heading):
                        pass  # a late answer to another
                    heard, now = clock(), wall()
                    theirs, their_wall = map(float, data.split()[1:])
                    least, most = max(least, asked - theirs), min(most, heard - theirs)
                    walls = (now - heard) - (their_wall - theirs)
            if most < float("inf"):
                ahead = (least + most) / 2
                found = {"boot": str(offer["boot"]), "ahead (s)": ahead}
                return found | {"within (s)": (most - least) / 2, "wall (s)": walls + ahead}
    return None
