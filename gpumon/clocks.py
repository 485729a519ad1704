"""This module identifies a machine's boot, and measures the clock offset between hosts of a job.

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
AGAIN_SECONDS = 0.5
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
def answer_queries(prefix: Path) -> Iterator[None]:
    """Answer queries for this host's clock in a thread; on failure no address is published."""
    token = os.urandom(16).hex()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        try:
            server.bind(("", 0))
            offer = {
                "boot": boot_id(),
                "addresses": _addresses(),
                "port": server.getsockname()[1],
                "token": token,
            }
            file = clock_file(prefix)
            write_atomically(
                file, lambda part: part.write_text(json.dumps(offer), encoding="utf-8")
            )
        except Exception:  # optional: recording continues without
            yield
            return
        server.settimeout(0.2)
        try:
            with _in_thread(functools.partial(_answer, server, token.encode())):
                yield
        finally:
            with contextlib.suppress(OSError):
                file.unlink()


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


def _answer(server: socket.socket, token: bytes, ended: threading.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(OSError):
            data, sender = server.recvfrom(256)
            asked, _, count = data.partition(b" ")
            if asked == token:
                text = f"{count.decode()} {time.monotonic():.9f} {time.time():.9f}"
                server.sendto(text.encode(), sender)


def _addresses() -> list[str]:
    import psutil  # not needed to read traces

    found = [
        address.address
        for card in psutil.net_if_addrs().values()
        for address in card
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    return [*found, "127.0.0.1"]  # the last: two containers of one machine


def query_reference(
    prefix: Path, report: Callable[[ClockOffset], object]
) -> contextlib.AbstractContextManager[None]:
    """Query rank 0's clock in a thread, and pass the measured offset to ``report``.

    prefix: of rank 0's trace.
    """

    def ask(ended: threading.Event) -> None:
        deadline = time.monotonic() + ASK_SECONDS
        while not ended.is_set() and time.monotonic() < deadline:
            offer = _offer(prefix)
            if offer is not None and offer["boot"] == boot_id():
                return  # one clock
            found = None if offer is None else measure_offset(offer, ended)
            if found is not None:
                report(found)
                return
            ended.wait(AGAIN_SECONDS)

    return _in_thread(ask)


def _offer(prefix: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(clock_file(prefix).read_text(encoding="utf-8"))
        if isinstance(found, dict) and {"boot", "addresses", "port", "token"} <= found.keys():
            return found
    return None


def measure_offset(
    offer: dict[str, Any],
    ended: threading.Event,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> ClockOffset | None:
    """How far this host's clocks are ahead of those that made the offer; None without an answer."""
    least, most, walls = -float("inf"), float("inf"), 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(ANSWER_SECONDS)
        for address in offer["addresses"]:
            for count in range(ROUNDS):
                if ended.is_set():
                    return None
                asked = clock()
                try:
                    client.sendto(f"{offer['token']} {count}".encode(), (address, offer["port"]))
                    data = client.recv(256)
                    while not data.startswith(f"{count} ".encode()):  # a late answer to another
                        data = client.recv(256)
                    heard, now = clock(), wall()
                    theirs, their_wall = map(float, data.split()[1:])
                except (OSError, ValueError, TypeError):
                    break
                least, most = max(least, asked - theirs), min(most, heard - theirs)
                walls = (now - heard) - (their_wall - theirs)
            if most < float("inf"):
                break
    if not least <= most < float("inf"):
        return None
    ahead = (least + most) / 2
    return {
        "boot": str(offer["boot"]),
        "ahead (s)": ahead,
        "within (s)": (most - least) / 2,
        "wall (s)": walls + ahead,
    }


def offset_sentence(offset: ClockOffset, machine: str, reference: str) -> str:
    """A measured difference, for people."""
    wall, within = offset["wall (s)"], offset["within (s)"]
    way = "ahead of" if wall >= 0 else "behind"
    return (
        f"The clock of {machine} was {abs(wall):.6f} s {way} that of {reference}, within "
        f"{within:.6f} s, measured during the run, and is corrected."
    )
