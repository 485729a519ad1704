"""The host's series: what psutil tells, nothing counted twice."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpumon import host
from gpumon.series import Source, Unavailable

Disk = namedtuple("Disk", "read_bytes write_bytes")
Card = namedtuple("Card", "bytes_recv bytes_sent")
MIB = 2**20


@pytest.fixture
def a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes from one reading to the next."""
    moments = iter(range(100))
    monkeypatch.setattr(host.time, "monotonic", lambda: float(next(moments)))


def answer(monkeypatch: pytest.MonkeyPatch, name: str, values: Iterable[Any]) -> None:
    """What psutil's function gives, call by call."""
    left = iter(values)
    monkeypatch.setattr(psutil, name, lambda **_: next(left))


def second(source: Source) -> tuple[Any, ...]:
    """What the second reading tells."""
    source.read()
    return tuple(source.read())


def test_waiting_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [{0: (0.0, 0.0), 1: (5.0, 9.0)}, {0: (60.0, 200.0), 1: (5.0, 9.0)}]
    left = iter(shown)
    monkeypatch.setattr(host, "busy_and_total", lambda _: dict(next(left)))
    assert list(host._cpu().read()) == [30.0, 30.0, None]


def test_a_disks_bytes_count_once(monkeypatch: pytest.MonkeyPatch, a_second: None) -> None:
    monkeypatch.setattr(host, "_physical", host._physical.__wrapped__)
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "sda1")
    names = ("sda", "sda1", "nvme0n1", "dm-0", "md127", "loop3", "zram0")
    shown = [{name: Disk(n * MIB, 2 * n * MIB) for name in names} for n in (1, 4)]
    answer(monkeypatch, "disk_io_counters", shown)
    assert second(host._disk()) == (6.0, 12.0)


def test_the_loopback_is_no_network(monkeypatch: pytest.MonkeyPatch, a_second: None) -> None:
    shown = [{"lo": Card(0, 9**n), "eth0": Card(n * MIB, 0)} for n in (1, 3)]
    answer(monkeypatch, "net_io_counters", shown)
    assert second(host._network()) == (2.0, 0.0)


@pytest.mark.parametrize("shown", [None, FileNotFoundError])
def test_a_container_without_disks_says_so(monkeypatch: pytest.MonkeyPatch, shown: Any) -> None:
    def counters(**_: Any) -> None:
        if shown is not None:
            raise shown

    monkeypatch.setattr(psutil, "disk_io_counters", counters)
    with pytest.raises(Unavailable, match="no such device"):
        host._disk().read()
