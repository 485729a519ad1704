"""This module measures the clock offset between hosts of a job, over UDP.

The recorder of rank 0 answers queries for its clock, and writes its address to ``PATH.clock``; the
recorders of other hosts query it. An answer is given between the query and its arrival, whatever
the network does: of many answers, the narrowest bounds count. Without an answer (no shared
folder, a firewall), the offset stays unknown, and a note under the chart says so.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpumon.trace_files import write_atomically

ROUNDS = 20
ANSWER_SECONDS = 0.5
ASK_SECONDS = 60.0
"""For how long the first rank is waited for: hosts do not begin at once."""
ClockOffset = dict[str, Any]
"""``boot``: whose clock is the reference; ``ahead (s)``: of this host's monotonic clock before it,
within ``within (s)``; ``wall (s)``: the same of the wall clock."""


def boot_id() -> str | None:
    """An identity of this boot: processes of one boot share their monotonic clock."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return None


def clock_file(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".clock")


@contextlib.contextmanager
def _in_thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do some work in a thread, which is to end once the event is set."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def answer_queries(prefix: Path) -> Iterator[None]:
    """Answer queries for this host's clock in a thread, while inside."""
    import psutil  # not needed to read traces

    cards = psutil.net_if_addrs().values()
    found = [each.address for card in cards for each in card if each.family == socket.AF_INET]
    found.sort(key=lambda address: address.startswith("127."))  # for two containers of one machine
    token = os.urandom(16).hex()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("", 0))
        server.settimeout(0.2)
        port = server.getsockname()[1]
        offer = json.dumps({"boot": boot_id(), "addresses": found, "port": port, "token": token})
        write_atomically(clock_file(prefix), lambda part: part.write_text(offer, encoding="utf-8"))
        with _in_thread(functools.partial(_answer, server, token.encode())):
            yield
        clock_file(prefix).unlink(missing_ok=True)


def _answer(server: socket.socket, token: bytes, ended: threading.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(OSError):
            data, sender = server.recvfrom(256)
            asked, _, count = data.partition(b" ")
            if asked == token:
                text = f"{count.decode()} {time.monotonic():.9f} {time.time():.9f}"
                server.sendto(text.encode(), sender)


def query_reference(
    prefix: Path, report: Callable[[ClockOffset], object]
) -> contextlib.AbstractContextManager[None]:
    """Query rank 0's clock in a thread, and pass the measured offset to ``report``.

    prefix: of rank 0's trace.
    """

    def ask(ended: threading.Event) -> None:
        deadline = time.monotonic() + ASK_SECONDS
        while not ended.is_set() and time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                offer = json.loads(clock_file(prefix).read_text(encoding="utf-8"))
                if offer["boot"] == boot_id():
                    return  # one clock
                if found := measure_offset(offer):
                    report(found)
                    return
            ended.wait(ANSWER_SECONDS)

    return _in_thread(ask)


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
                return {
                    "boot": str(offer["boot"]),
                    "ahead (s)": ahead,
                    "within (s)": (most - least) / 2,
                    "wall (s)": walls + ahead,
                }
    return None
