"""Simulate hosts on this machine, with separate networks and links of a known speed.

COMMAND runs on the first of them. There MPI's `mpiexec` starts processes on all, as it would on a
cluster, by the variables that its process manager reads (Hydra, of MPICH):

    .venvs/lab/bin/python benchmarks/hosts.py --hosts 4 -- \\
        .venvs/lab/bin/rosetta run --nnodes 4 --devices 1 --notebooks PyTorch_MultiGPU

Hosts are network and UTS namespaces of Linux, joined by a bridge; every link has a token bucket in
both directions. Each has some of the machine's cores to itself as long as there are enough, and
they share its memory and files, so what they show is a network, not a cluster. Needs root, and
iproute2 (`ip`, `tc`).
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MOST = 8
"""On one machine more hosts wait for its cores, and no longer for their links."""
NETWORK = "10.99.{group}.{host}"
BURST, LATENCY = "64kb", "50ms"
"""The token bucket's: small, so that messages are not faster than their link."""

SPEED = "HOSTS_MBIT"
"""The variable that tells programs on them how fast the links are."""

ENTER = """\
#!/bin/sh
# Called as a remote shell is: options, the host, then a command for its shell.
while [ "${{1#-}}" != "$1" ]; do shift; done
set -- $(grep -w -- "$1" {folder}/names) "$@"
host=$1 cores=$3; shift 4
exec {enter} sh -c "$*"
"""


class CannotBeHad(Exception):
    """Why there are no such hosts here."""


@dataclass(frozen=True)
class Hosts:
    """Hosts that are up, by name, with their addresses."""

    addresses: dict[str, str]
    environment: dict[str, str]
    """With it `mpiexec` starts processes on all of them."""
    started: list[subprocess.Popen[str]]

    @property
    def first(self) -> str:
        return next(iter(self.addresses))

    def start(self, host: str, *command: str | Path, **how: object) -> subprocess.Popen[str]:
        """Begin a command on a host."""
        number = list(self.addresses).index(host)
        words = [*_enter(host, cores(number, len(self.addresses))), *map(str, command)]
        began = subprocess.Popen(words, env=self.environment, text=True, **how)  # type: ignore[call-overload]
        self.started.append(began)
        return began  # type: ignore[no-any-return]


@contextmanager
def up(count: int, mbit: float = 100.0) -> Iterator[Hosts]:
    """So many hosts; afterwards they are gone, with all that runs on them.

    Args:
        count: from 1 to 8.
        mbit: Mbit/s of every link, in each direction.

    Raises:
        CannotBeHad: the reason why not here.
    """
    if not 1 <= count <= MOST:
        raise CannotBeHad(f"{count} hosts: from 1 to {MOST} can be made of one machine")
    if not mbit > 0:
        raise CannotBeHad(f"links of {mbit} Mbit/s: give more than 0")
    if os.geteuid() != 0:
        raise CannotBeHad("network namespaces need root")
    needed = ("ip", "tc", "unshare", "taskset")
    if lacking := [name for name in needed if shutil.which(name) is None]:
        raise CannotBeHad(f"no {lacking[0]} here: install iproute2 and util-linux")
    group = _begin()  # of several at once each has names and addresses of its own
    names = [f"h{group}n{number}" for number in range(1, count + 1)]
    addresses = {
        name: NETWORK.format(group=group, host=number) for number, name in enumerate(names, 1)
    }
    bridge = f"br{group}"
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        try:
            _ip("link", "set", bridge, "up")
            for name, address in addresses.items():
                _add(name, address, bridge, mbit)
            environment = _environment(Path(folder), addresses) | {SPEED: f"{mbit:g}"}
            yield Hosts(addresses, environment, started)
        finally:
            for process in started:  # one that has just begun is not on its host yet
                process.kill()
            for name in names:
                _remove(name)
            _quietly("ip", "link", "del", bridge)


def _begin() -> int:
    """A number that no other hosts of this machine have, and its bridge."""
    for group in random.sample(range(1, 255), 20):
        made = subprocess.run(
            ["ip", "link", "add", f"br{group}", "type", "bridge"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode == 0:
            return group
    raise CannotBeHad(f"ip link add: {made.stderr.strip()}")


def _add(name: str, address: str, bridge: str, mbit: float) -> None:
    """A host, and its link to the others."""
    inside, outside = f"{name}e", f"{name}o"
    _ip("netns", "add", name)
    _ip("link", "add", inside, "type", "veth", "peer", "name", outside)
    _ip("link", "set", inside, "netns", name)
    _ip("link", "set", outside, "master", bridge, "up")
    _ip("-n", name, "addr", "add", f"{address}/24", "dev", inside)
    _ip("-n", name, "link", "set", inside, "up")
    _ip("-n", name, "link", "set", "lo", "up")
    bucket = ["tbf", "rate", f"{mbit}mbit", "burst", BURST, "latency", LATENCY]
    _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", inside, "root", *bucket)
    _run("tc", "qdisc", "add", "dev", outside, "root", *bucket)


def _remove(name: str) -> None:
    found = _quietly("ip", "netns", "pids", name)
    for process in found.split():
        with suppress(ProcessLookupError):
            os.kill(int(process), 9)
    _quietly("ip", "netns", "del", name)
    _quietly("ip", "link", "del", f"{name}o")


def cores(number: int, hosts: int) -> str:
    """The cores of one of so many hosts, as `taskset` takes them; with too few, hosts share them.

    Else each would start threads for all cores, and those of one would wait for the others'.
    """
    usable = sorted(os.sched_getaffinity(0))
    each = max(1, len(usable) // hosts)
    first = number * each % len(usable)
    return ",".join(map(str, usable[first : first + each]))


def _enter(host: str, of_host: str) -> list[str]:
    """What runs a command with the host's network, name and cores."""
    named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host]
    return ["ip", "netns", "exec", host, "taskset", "-c", of_host, *named]


def _environment(folder: Path, addresses: dict[str, str]) -> dict[str, str]:
    """For MPICH's `mpiexec`: who the hosts are, and how a process is started there."""
    enter = folder / "enter"
    lines = "".join(
        f"{name} {address} {cores(number, len(addresses))}\n"
        for number, (name, address) in enumerate(addresses.items())
    )
    (folder / "names").write_text(lines)
    (folder / "hosts").write_text("".join(f"{address}\n" for address in addresses.values()))
    words = shlex.join(_enter("HOST", "CORES")).replace("HOST", '"$host"')
    words = words.replace("CORES", '"$cores"')
    enter.write_text(ENTER.format(folder=shlex.quote(str(folder)), enter=words))
    enter.chmod(0o755)
    first = next(iter(addresses))
    return dict(os.environ) | {
        "HYDRA_HOST_FILE": str(folder / "hosts"),
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(enter),
        "HYDRA_IFACE": f"{first}e",
        "UCX_TLS": "tcp,self",  # else MPICH finds that all is one machine, and uses its memory
        # Messages are sent without being announced, which took a third of these links' speed.
        "UCX_RNDV_THRESH": "inf",
    }


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBeHad(f"{' '.join(words)}: {done.stderr.strip()}")


def _quietly(*words: str) -> str:
    """What a command prints, whether it succeeds or not: what it is to remove may be gone."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2, help=f"how many, up to {MOST}")
    parser.add_argument("--mbit", type=float, default=100.0, help="speed of each link in Mbit/s")
    parser.add_argument("command", nargs="+", help="command to run on the first host, after --")
    given = parser.parse_args()
    try:
        with up(given.hosts, given.mbit) as hosts:
            return hosts.start(hosts.first, *given.command).wait()
    except CannotBeHad as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    # A signal is an end like others, with which the hosts go, and what runs on them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
