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

Times = namedtuple("Times", "user system idle iowait guest guest_nice")
Disk = namedtuple("Disk", "read_bytes write_bytes")
Card = namedtuple("Card", "bytes_recv bytes_sent")


@pytest.fixture
def a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes from one reading to the next."""
    moments = iter(range(100))
    monkeypatch.setattr(host.time, "monotonic", lambda: float(next(moments)))


def answer(monkeypatch: pytest.MonkeyPatch, name: str, answers: Iterable[Any]) -> None:
    """Have psutil's ``name`` answer one after the other."""
    waiting = iter(answers)
    monkeypatch.setattr(psutil, name, lambda **_: next(waiting))


def second(source: Source) -> tuple[Any, ...]:
    """What the second reading tells."""
    source.read()
    return tuple(source.read())


def test_waiting_is_idle_and_guests_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = Times(0, 0, 0, 0, 0, 0), Times(40, 20, 100, 40, 30, 10)
    answer(monkeypatch, "cpu_times", [before, after])
    assert host._cpu().read() == (30.0,)


def test_a_disks_bytes_count_once(monkeypatch: pytest.MonkeyPatch, a_second: None) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "sda1")
    host._physical.cache_clear()
    names = ("sda", "sda1", "nvme0n1", "dm-0", "md127", "loop3", "zram0")
    shown = [{name: Disk(n * 2**20, 2 * n * 2**20) for name in names} for n in (1, 4)]
    answer(monkeypatch, "disk_io_counters", shown)
    assert second(host._disk()) == (6.0, 12.0)
    host._physical.cache_clear()


def test_the_loopback_is_no_network(monkeypatch: pytest.MonkeyPatch, a_second: None) -> None:
    shown = [{"lo": Card(0, 9**n), "eth0": Card(n * 2**20, 0)} for n in (1, 3)]
    answer(monkeypatch, "net_io_counters", shown)
    assert second(host._network()) == (2.0, 0.0)


def test_a_container_without_disks_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: None)
    with pytest.raises(Unavailable, match="no such device"):
        host._disk().read()
