"""A real Slurm on this machine, for tests: a controller and two nodes, from Debian's packages.

The packages are unpacked, not installed, once per machine, into a folder of the user's cache;
daemons, ports, keys and state are the test's own. Where that cannot be had, tests skip with the
reason.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "libmunge2",
    "libhwloc15",
    "libpmix2",
    "libevent-core-2.1-7",
    "libevent-pthreads-2.1-7",
)
"""Debian 12's; others are skipped."""
UNPACKED = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "slurm-for-tests"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/slurm-wlm")
NODES = ("n1", "n2")
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
"""Started by these names, as where they are installed: by any other they count no GPUs."""
BEGIN = 30.0
"""Seconds within which the nodes are there."""
AGAIN = 10
"""Seconds for which a requeued job waits, and for which the right to start a job is good: Slurm's
own number is 120. By then nothing that is still said of the first start can reach the second, as it
can where a test lets the job go at once (``StartTime=now``)."""

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
    daemons: dict[str, subprocess.Popen[bytes]]
    environment: dict[str, str]
    """What a user's shell has there: PATH, SLURM_CONF, …"""

    def run(self, *words: str, input: str | None = None) -> str:
        """What a command such as ``sinfo`` prints."""
        done = subprocess.run(
            words,
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
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

    def told(self) -> str:
        """The last lines of the daemons' logs, for a test that fails."""
        logs = sorted((self.folder / "log").glob("*.log"))
        last = {log.name: log.read_text(errors="replace").splitlines()[-30:] for log in logs}
        return "\n".join(f"{name}: {line}" for name, lines in last.items() for line in lines)

    @contextmanager
    def dead(self, node: str) -> Iterator[None]:
        """Inside, a node is as after a power cut: its daemon is gone, and all that ran there."""
        daemon = self.daemons[node]
        daemon.kill()
        daemon.wait()
        conf = self.environment["SLURM_CONF"]
        there = _with_environment({"SLURM_CONF": conf, "SLURMD_NODENAME": node})
        # First what would tell the controller that the rest has ended.
        steps = {process.parent() for process in there}
        for process in [each for each in steps if each and "slurmstepd" in each.name()] + there:
            with suppress(psutil.Error):
                process.kill()
        try:
            yield
        finally:
            self.daemons[node] = start(self, node, node_command(self.folder, node))


def unpacked() -> Path:
    """The folder with Debian's Slurm, unpacked once.

    Raises:
        CannotBeHad: these are not Debian's packages, or cannot be fetched.
    """
    if os.geteuid() != 0:
        raise CannotBeHad("slurmd of several nodes on one machine needs root")
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise CannotBeHad(f"no {program} here: Slurm is taken from Debian's packages")
    if UNPACKED.exists():
        return UNPACKED
    part = UNPACKED.with_name(f"{UNPACKED.name}.{os.getpid()}")
    (part / "debs").mkdir(parents=True)
    try:
        fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *PACKAGES]
        try:
            done = subprocess.run(
                fetch, cwd=part / "debs", capture_output=True, text=True, timeout=120, check=False
            )
        except subprocess.TimeoutExpired:
            raise CannotBeHad("apt-get download took longer than two minutes") from None
        if done.returncode:
            raise CannotBeHad(f"apt-get download: {done.stderr.strip().splitlines()[-1]}")
        for package in (part / "debs").glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, part], check=True)
        shutil.rmtree(part / "debs")
        part.rename(UNPACKED)
    except OSError:  # another test was quicker
        if not UNPACKED.exists():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return UNPACKED


@contextmanager
def cluster(
    folder: Path, conf: str = CONF, node: str = NODE, first: Sequence[str] = ()
) -> Iterator[Cluster]:
    """A cluster whose files are in ``folder``, whose path must be short; it ends with the block.

    Args:
        folder: made where it is not there.
        conf: its settings.
        node: the line of each of its nodes.
        first: words before a node's daemon, with ``{name}`` and ``{folder}``.

    Raises:
        CannotBeHad: with the reason to skip.
    """
    packages, host = unpacked(), socket.gethostname()
    ports = _free_ports(1 + len(NODES))
    for name in ("state", "log", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    lines = conf.format(host=host, folder=folder, packages=packages, ports=ports, again=AGAIN)
    for name, port in zip(NODES, ports[1:], strict=True):
        lines += node.format(name=name, host=host, port=port)
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
        words = [word.format(name=name, folder=folder) for word in first]
        programs[name] = [*words, *node_command(folder, name)]
    daemons: dict[str, subprocess.Popen[bytes]] = {}
    found = Cluster(folder, daemons, environment)
    try:
        for name, words in programs.items():
            daemons[name] = start(found, name, words)
            if name == "munged":
                _until((folder / "munge.sock").exists, "munged made no socket", daemons)
        _until(lambda: "idle 2" in _nodes(found), "the nodes are not idle", daemons)
        yield found
    finally:
        for daemon in daemons.values():  # not in order: a node would wait for a job that still ends
            daemon.kill()
            daemon.wait()
        _end_jobs(environment["SLURM_CONF"])


def node_command(folder: Path, name: str) -> list[str]:
    """What starts a node's daemon."""
    return ["slurmd", "-D", "-N", name, "-d", str(folder / "bin" / "slurmstepd")]


def _end_jobs(configuration: str) -> None:
    """What outlives the daemons: a job's step, and all that it has started."""
    for process in _with_environment({"SLURM_CONF": configuration}):
        with suppress(psutil.Error):
            process.kill()


def _with_environment(wanted: Mapping[str, str]) -> list[psutil.Process]:
    """All other processes that have these variables."""
    lines, found = {f"{name}={value}".encode() for name, value in wanted.items()}, []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            # psutil reads none of slurmstepd's, which writes its title over the first of them.
            said = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if lines <= set(said) and process.pid != os.getpid():
                found.append(process)
    return found


def start(cluster: Cluster, name: str, words: list[str]) -> subprocess.Popen[bytes]:
    """One of its daemons."""
    with (cluster.folder / "log" / f"{name}.out").open("wb") as out:
        return subprocess.Popen(words, env=cluster.environment, stdout=out, stderr=out)


def _nodes(cluster: Cluster) -> str:
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%T %D"],
        env=cluster.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


def _until(done: object, what: str, daemons: dict[str, subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + BEGIN
    while not done():  # type: ignore[operator]
        ended = [name for name, daemon in daemons.items() if daemon.poll() is not None]
        if ended or time.monotonic() > until:
            raise CannotBeHad(f"{what}{f': {ended[0]} has ended' if ended else ''}")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody has just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
