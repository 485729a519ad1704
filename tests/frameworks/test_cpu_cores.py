"""Which cores a CPU device has, on machines that Linux describes in text files."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import cpu_cores
from helpers.frameworks.cpu_cores import CpuDevice

Usable = Callable[[Collection[int]], None]


@pytest.fixture
def eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Usable:
    """Eight cores with two hardware threads each: 0 and 8 are one core. Some may be used."""
    for core in range(16):
        folder = tmp_path / f"cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 8},{core % 8 + 8}\n")
    monkeypatch.setattr(cpu_cores, "SYSTEM", tmp_path)
    monkeypatch.setattr(cpu_cores, "_at_first", cpu_cores._at_first.__wrapped__)
    monkeypatch.setattr(cpu_cores, "core_limit", lambda: float("inf"))

    def usable(cores: Collection[int]) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(cores))

    return usable


def test_a_core_is_a_physical_one_with_the_threads_that_may_be_used(eight: Usable) -> None:
    eight(range(16))
    assert cpu_cores.machine()[:2] == [(0, 8), (1, 9)]
    eight({1, 3, 9, 12})
    assert cpu_cores.machine() == [(1, 9), (3,), (12,)]


@pytest.mark.parametrize(("limit", "cores"), [(0.5, 1), (1.5, 1), (2.0, 2), (float("inf"), 3)])
def test_a_container_has_as_many_cores_as_it_may_use_whole(
    limit: float, cores: int, eight: Usable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of 1.5 CPUs, a second device could use half a core only."""
    eight({1, 3, 4})
    monkeypatch.setattr(cpu_cores, "core_limit", lambda: limit)
    assert len(cpu_cores.machine()) == cores


@pytest.mark.parametrize("count", range(1, 9))
def test_sets_are_equal_and_disjoint(count: int, eight: Usable) -> None:
    eight(range(16))
    found = cpu_cores.divided(count, None)
    used = [core for cpu in found for core in cpu.cores]
    assert len(found) == count and len(set(used)) == len(used)
    assert len({(cpu.threads, len(cpu.cores)) for cpu in found}) == 1


def test_a_device_has_neighbouring_cores_with_all_their_threads(eight: Usable) -> None:
    eight(range(16))
    assert cpu_cores.divided(2, None)[1] == CpuDevice((4, 5, 6, 7, 12, 13, 14, 15), 4)
    assert cpu_cores.divided(2, 1) == (CpuDevice((0, 8), 1), CpuDevice((1, 9), 1))


@pytest.mark.parametrize(
    ("count", "each", "told"),
    [
        (3, None, r"3 of 1 core\(s\): this process may use 2 core\(s\); give 2 at most"),
        (2, 2, r"2 of 2 core\(s\): this process may use 2 core\(s\); give 1 at most"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(
    count: int, each: int | None, told: str, eight: Usable
) -> None:
    eight({0, 1})
    with pytest.raises(UserError, match=told):
        cpu_cores.divided(count, each)


CONFINED = """
import os, threading
from multiprocessing import get_context
from helpers.frameworks import cpu_cores
usable = sorted(os.sched_getaffinity(0))
waiting = threading.Event()
threading.Thread(target=waiting.wait, daemon=True).start()
machine = cpu_cores.machine()
cpu_cores.confine([cpu_cores.CpuDevice((usable[0],), 1)])
assert cpu_cores.pinned() == (usable[0],), cpu_cores.pinned()
assert cpu_cores.machine() == machine, "what the process may use is what it might at first"
with get_context("fork").Pool(1) as pool:
    assert pool.apply(os.sched_getaffinity, (0,)) == {usable[0]}
cpu_cores.confine([cpu_cores.CpuDevice(tuple(usable), len(usable))])
assert cpu_cores.pinned() == tuple(usable)
"""


def test_a_process_with_all_its_threads_and_workers_is_put_in_its_place() -> None:
    """In a process of its own, which stays pinned."""
    subprocess.run([sys.executable, "-c", CONFINED], cwd=paths.ROOT, check=True)
