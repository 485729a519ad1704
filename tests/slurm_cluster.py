"""A real Slurm on this machine, for tests: a controller and two nodes, from Debian's packages.

The packages are unpacked, not installed, into a folder of the user's cache, once. Where that cannot
be had, tests skip with the reason.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "libmunge2"),
    *("libhwloc15", "libpmix2", "libevent-core-2.1-7", "libevent-pthreads-2.1-7"),
)
"""Debian 12's; others are skipped."""
UNPACKED = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "slurm-for-tests"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/slurm-wlm")
NODES = ("n1", "n2")
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")  # by any other name they count no GPUs
BEGIN = 30.0  # seconds within which the nodes are there
AGAIN = 10
"""Seconds for which a requeued job waits, so that nothing still said of its first start can reach
the second. Slurm's own number is 120."""

CONF = """\
ClusterName=t
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire={again}
CredType=cred/munge
PluginDir={packages}/usr/lib/x86_64-linux-gnu/slurm-wlm
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldPort={ports[0]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
JobRequeue=1
KillWait=3
SlurmdTimeout=60
RebootProgram=/bin/true
SchedulerParameters=sched_interval=1,bf_interval=1
"""
NODE = "NodeName={name} NodeHostname={host} Port={port} CPUs=2 State=UNKNOWN\n"
PARTITION = "PartitionName=p Nodes={names} Default=YES MaxTime=INFINITE State=UP\n"


class CannotBeHad(Exception):
    """Why there is no Slurm here."""


@dataclass(frozen=True)
class Cluster:
    """A controller and its nodes, as daemons of this test."""

    folder: Path
    environment: dict[str, str]
    """What a user's shell has there: PATH, SLURM_CONF, …"""

    def run(self, *words: str, input: str | None = None) -> str:
        """What a command such as ``sinfo`` prints."""
        how: dict[str, Any] = {"env": self.environment, "input": input, "timeout": 120}
        done = subprocess.run(words, capture_output=True, text=True, **how)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        """A job's state: ``RUNNING``, ``COMPLETED``, …"""
        shown = self.run("scontrol", "--oneliner", "show", "job", job)
        return next(word[9:] for word in shown.split() if word.startswith("JobState="))

    def wait(self, job: str, *states: str, seconds: float = 60.0) -> str:
        """The job's state, once it is one of these."""
        until = time.monotonic() + seconds
        while (found := self.state(job)) not in states:
            assert time.monotonic() < until, f"job {job} is {found}, not {' or '.join(states)}"
            time.sleep(0.2)
        return found


def unpacked() -> Path:
    """The folder with Debian's Slurm, unpacked once."""
    if os.geteuid() != 0:
        raise CannotBeHad("slurmd of several nodes on one machine needs root")
    if not shutil.which("apt-get"):
        raise CannotBeHad("no apt-get here: Slurm is taken from Debian's packages")
    if UNPACKED.exists():
        return UNPACKED
    part = UNPACKED.with_name(f"{UNPACKED.name}.{os.getpid()}")
    (part / "debs").mkdir(parents=True)
    fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *PACKAGES]
    try:
        subprocess.run(fetch, cwd=part / "debs", capture_output=True, timeout=120, check=True)
        for package in (part / "debs").glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, part], check=True)
        shutil.rmtree(part / "debs")
        part.rename(UNPACKED)
    except subprocess.SubprocessError as error:
        raise CannotBeHad(f"apt-get download: {error}") from None
    except OSError:  # another test was quicker
        if not UNPACKED.exists():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return UNPACKED


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose files are in ``folder``, whose path must be short; it ends with the block."""
    packages, host = unpacked(), socket.gethostname()
    with ExitStack() as held:  # ports that no process has now
        sockets = [held.enter_context(socket.create_server(("", 0))) for _ in (host, *NODES)]
        ports = [one.getsockname()[1] for one in sockets]
    for name in ("state", "log", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    lines = CONF.format(host=host, folder=folder, packages=packages, ports=ports, again=AGAIN)
    for name, port in zip(NODES, ports[1:], strict=True):
        lines += NODE.format(name=name, host=host, port=port)
    (folder / "slurm.conf").write_text(lines + PARTITION.format(names=",".join(NODES)))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    (folder / "bin").mkdir()
    for name in DAEMONS:
        (folder / "bin" / name).symlink_to(packages / "usr/sbin" / f"{name}-wlm")
    places = [folder / "bin", *(packages / place for place in ("usr/sbin", "usr/bin"))]
    environment = dict(os.environ) | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": os.pathsep.join([*map(str, places), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(str(packages / place) for place in LIBRARIES),
    }
    munge = [f"--{what}-file={folder}/munge.{what}" for what in ("pid", "log", "seed")]
    programs: dict[str, list[str]] = {
        "munged": ["munged", "--force", "--foreground", f"--socket={folder}/munge.sock",
                   f"--key-file={key}", *munge],
        "slurmctld": ["slurmctld", "-D"],
    }  # fmt: skip
    for name in NODES:
        programs[name] = ["slurmd", "-D", "-N", name, "-d", f"{folder}/bin/slurmstepd"]
    daemons: list[subprocess.Popen[bytes]] = []
    found = Cluster(folder, environment)
    try:
        for name, words in programs.items():
            with (folder / "log" / f"{name}.out").open("wb") as out:
                started = subprocess.Popen(words, env=environment, stdout=out, stderr=out)
            daemons.append(started)
            if name == "munged":
                _until((folder / "munge.sock").exists, "munged made no socket", daemons)
        asks = ("sh", "-c", "sinfo --noheader '--format=%T %D' || true")
        _until(lambda: "idle 2" in found.run(*asks), "the nodes are not idle", daemons)
        yield found
    finally:
        for daemon in daemons:  # not in order: a node would wait for a job that still ends
            daemon.kill()
            daemon.wait()
        _end_jobs(f"SLURM_CONF={environment['SLURM_CONF']}")


def _end_jobs(variable: str) -> None:
    """What outlives the daemons: a job's step, and all that it has started."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # psutil reads none of slurmstepd's, which writes its title over the first of them.
            said = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if variable.encode() in said and process.pid != os.getpid():
                process.kill()


def _until(done: Callable[[], bool], what: str, daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + BEGIN
    while not done():
        if time.monotonic() > until or any(daemon.poll() is not None for daemon in daemons):
            raise CannotBeHad(what)
        time.sleep(0.1)
