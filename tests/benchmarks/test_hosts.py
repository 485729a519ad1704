"""Hosts made of this machine: names, links no faster than they are said to be, and no trace."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from processes import ended

from helpers import paths

sys.path.append(str(paths.ROOT / "benchmarks"))

import hosts

SEND = """
import socket, sys, time
with socket.socket() as end:
    while end.connect_ex((sys.argv[1], 7000)):
        time.sleep(0.05)
    end.sendall(bytes(1_500_000))
"""
RECEIVE = """
import socket, time
with socket.create_server(("", 7000)) as server:
    end = server.accept()[0]
    end.recv(100_000)
    began, received = time.perf_counter(), 0
    while part := end.recv(1 << 16):
        received += len(part)
    print(socket.gethostname(), received * 8e-6 / (time.perf_counter() - began))
"""


@pytest.fixture(name="two", scope="module")
def two_fixture() -> Iterator[hosts.Hosts]:
    try:
        with hosts.up(2, mbit=20) as found:
            yield found
    except hosts.CannotBeHad as error:
        pytest.skip(str(error))


def said(process: "subprocess.Popen[str]") -> str:
    told = process.communicate(timeout=60)[0]
    assert process.returncode == 0, told
    return told


def test_a_link_is_no_faster_than_it_is_said_to_be(two: hosts.Hosts) -> None:
    first, second = two.addresses
    server = two.start(first, sys.executable, "-c", RECEIVE, stdout=subprocess.PIPE)
    client = two.start(second, sys.executable, "-c", SEND, two.addresses[first])
    name, mbit = said(server).split()
    assert client.wait(60) == 0
    assert name == first
    assert 0 < float(mbit) < 21
    assert two.environment[hosts.SPEED] == "20"


def names() -> str:
    """All namespaces and links there are."""
    lists = (["ip", "netns", "list"], ["ip", "-brief", "link"])
    return "".join(subprocess.check_output(words, text=True) for words in lists)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_host_and_no_process(number: signal.Signals) -> None:
    shell = "hostname; echo $$; sleep 600"
    command = [sys.executable, hosts.__file__, "--hosts", "1", "--", "sh", "-c", shell]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as started:
        assert started.stdout is not None and started.stderr is not None
        name, process = (started.stdout.readline().strip() for _ in range(2))
        if not name:
            pytest.skip(started.stderr.read())
        assert name in names()
        started.send_signal(number)
        assert started.wait(60) == 128 + number
        assert not started.stderr.read()
    assert name not in names()
    assert ended(int(process))
