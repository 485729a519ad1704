"""The host's series: what the kernel or psutil tells, nothing counted twice."""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpumon import host, procfs, psutil_host
from gpumon.series import Source, Unavailable

Times = namedtuple("Times", "user system idle iowait guest guest_nice")
Disk = namedtuple("Disk", "read_bytes write_bytes")
Card = namedtuple("Card", "bytes_recv bytes_sent")
MIB = 2**20
SYSTEMS = [
    procfs,
    psutil_host,
]


@pytest.fixture
def a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes from one reading to the next."""
    moments = iter(range(100))
    monkeypatch.setattr(host.time, "monotonic", lambda: float(next(moments)))


def answer(monkeypatch: pytest.MonkeyPatch, name: str, answers: Iterable[Any]) -> None:
    """Have psutil's ``name`` answer one after the other, as on a system other than Linux."""
    waiting = iter(answers)
    monkeypatch.setattr(host, "machine", psutil_host)
    monkeypatch.setattr(psutil, name, lambda **_: next(waiting))


def file(monkeypatch: pytest.MonkeyPatch, folder: Path, *texts: str) -> None:
    """Have Linux's file be each of the texts in turn."""
    files = [folder / str(number) for number in range(len(texts))]
    for each, text in zip(files, texts, strict=True):
        each.write_text(text)
    waiting = iter(files)
    monkeypatch.setattr(host, "machine", procfs)
    monkeypatch.setattr(procfs, "_kept", lambda path: os.open(next(waiting), os.O_RDONLY))


def second(source: Source) -> tuple[Any, ...]:
    """What the second reading tells."""
    source.read()
    return tuple(source.read())


def test_waiting_is_idle_and_guests_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, after = Times(0, 0, 0, 0, 0, 0), Times(40, 20, 100, 40, 30, 10)
    answer(monkeypatch, "cpu_times", [before, after])
    assert host._cpu().read() == (30.0,)
    # user 40 with guests of 40, system 20, idle 100, waiting 40: 60 of 200 s.
    busy = f"cpu  {10 / procfs.TICK:.0f} {30 / procfs.TICK:.0f} {20 / procfs.TICK:.0f} "
    busy += f"{100 / procfs.TICK:.0f} {40 / procfs.TICK:.0f} 0 0 0 {30 / procfs.TICK:.0f} "
    busy += f"{10 / procfs.TICK:.0f}\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 1\n"
    file(monkeypatch, tmp_path, "cpu  0 0 0 0 0 0 0 0 0 0\n", busy)
    assert host._cpu().read() == (30.0,)


def test_a_disks_bytes_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, a_second: None
) -> None:
    monkeypatch.setattr(host, "_physical", host._physical.__wrapped__)
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "sda1")
    names = ("sda", "sda1", "nvme0n1", "dm-0", "md127", "loop3", "zram0")
    shown = [{name: Disk(n * MIB, 2 * n * MIB) for name in names} for n in (1, 4)]
    answer(monkeypatch, "disk_io_counters", shown)
    assert second(host._disk()) == (6.0, 12.0)
    texts = [
        "".join(f"   8  0 {name} 7 7 {2048 * n} 7 7 7 {4096 * n} 7 0 7 7\n" for name in names)
        for n in (1, 4)
    ]
    file(monkeypatch, tmp_path, *texts)
    assert second(host._disk()) == (6.0, 12.0)


def test_the_loopback_is_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, a_second: None
) -> None:
    shown = [{"lo": Card(0, 9**n), "eth0": Card(n * MIB, 0)} for n in (1, 3)]
    answer(monkeypatch, "net_io_counters", shown)
    assert second(host._network()) == (2.0, 0.0)
    rest = "1 0 0 0 0 0 0 0 1 0 0 0 0 0 0"
    texts = [
        f"Inter-| x\n face | y\n    lo: {9**n} {rest}\n eth0:{n * MIB} {rest}\n" for n in (1, 3)
    ]
    file(monkeypatch, tmp_path, *texts)
    received, sent = second(host._network())
    assert (received, sent) == (2.0, 0.0)


@pytest.mark.parametrize("machine", SYSTEMS)
def test_a_container_without_disks_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: Any
) -> None:
    monkeypatch.setattr(host, "machine", machine)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: None)
    monkeypatch.setattr(procfs, "DISKS", str(tmp_path / "nothing"))
    with pytest.raises(Unavailable, match="no such device"):
        host._disk().read()


def test_proc_and_psutil_tell_the_same() -> None:
    assert list(procfs.each_core()) == list(psutil_host.each_core())
    assert procfs.memory_used() == pytest.approx(psutil_host.memory_used(), rel=0.2)
    for ours, theirs in (
        (procfs.all_cores(), psutil_host.all_cores()),
        *zip(procfs.each_core().values(), psutil_host.each_core().values(), strict=True),
    ):
        assert ours == pytest.approx(theirs, rel=0.01)
    for ask in ("disk_bytes", "card_bytes"):
        ours, theirs = getattr(procfs, ask)(), getattr(psutil_host, ask)()
        assert ours.keys() == theirs.keys()
        for name, counts in ours.items():
            assert counts == pytest.approx(theirs[name], rel=0.05, abs=2**24)


def test_a_long_file_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file of /proc comes in pieces of a page."""
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, place: pread(file, min(size, 100), place))
    lines = "".join(f" eth{n}: {n} 0 0 0 0 0 0 0 {n} 0 0 0 0 0 0 0\n" for n in range(50))
    file(monkeypatch, tmp_path, "a\nb\n" + lines)
    assert procfs.card_bytes() == {f"eth{n}": (n, n) for n in range(50)}
