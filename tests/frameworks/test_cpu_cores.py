"""Which cores a CPU device has, on machines that Linux describes in text files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import cpu_cores
from helpers.frameworks.cpu_cores import CpuDevice
from helpers.recipe.settings import LOADER_CORES, ON_DEVICE, ON_OWN, ON_SIBLINGS


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    """Eight cores with two hardware threads each: 0 and 8 are one core."""
    for core in range(16):
        folder = tmp_path / f"cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 8},{core % 8 + 8}\n")
    return tmp_path


def test_a_core_is_a_physical_one_with_the_threads_that_may_be_used(eight: Path) -> None:
    assert cpu_cores.machine(range(16), eight)[:2] == [(0, 8), (1, 9)]
    assert cpu_cores.machine({1, 3, 9, 12}, eight) == [(1, 9), (3,), (12,)]


@pytest.mark.parametrize(("limit", "cores"), [(0.5, 1), (1.5, 1), (2.0, 2), (float("inf"), 3)])
def test_a_container_has_as_many_cores_as_it_may_use_whole(
    limit: float, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of 1.5 CPUs, a second device could use half a core only."""
    monkeypatch.setattr(cpu_cores, "core_limit", lambda: limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 3, 4})
    monkeypatch.setattr(cpu_cores, "siblings", lambda core, system: set())
    monkeypatch.setattr(cpu_cores, "_at_first", cpu_cores._at_first.__wrapped__)
    assert len(cpu_cores.machine()) == cores


@pytest.mark.parametrize("count", range(1, 9))
def test_sets_are_equal_and_disjoint(count: int, eight: Path) -> None:
    machine = cpu_cores.machine(range(16), eight)
    for place in LOADER_CORES:
        if place == ON_OWN and count > 4:
            continue
        found = cpu_cores.divided(count, None, place, machine)
        used = [core for cpu in found for core in {*cpu.cores, *cpu.loader_cores}]
        assert len(found) == count and len(set(used)) == len(used)
        assert len({(cpu.threads, len(cpu.cores), len(cpu.loader_cores)) for cpu in found}) == 1


def test_loader_workers_are_put_where_the_recipe_says(eight: Path) -> None:
    machine = cpu_cores.machine(range(16), eight)
    beside = cpu_cores.divided(2, None, ON_SIBLINGS, machine)[1]
    assert beside == CpuDevice((4, 5, 6, 7), 4, (12, 13, 14, 15))
    apart = cpu_cores.divided(2, None, ON_OWN, machine)[0]
    assert apart == CpuDevice((0, 1, 2, 8, 9, 10), 3, (3, 11))


@pytest.mark.parametrize(
    ("count", "each", "place", "told"),
    [
        (3, None, ON_DEVICE, r"3 of 1 core\(s\): this process may use 2 core\(s\); give 2 at most"),
        (2, 2, ON_DEVICE, r"2 of 2 core\(s\): this process may use 2 core\(s\); give 1 at most"),
        (2, None, ON_OWN, "'own': each device has one core here"),
        (2, None, ON_SIBLINGS, "'siblings': these cores have one hardware thread each"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(
    count: int, each: int | None, place: str, told: str
) -> None:
    with pytest.raises(UserError, match=told):
        cpu_cores.divided(count, each, place, [(0,), (1,)])


def test_places_beside_a_process_that_are_not_there_are_left_out() -> None:
    assert cpu_cores.beside(0, {0, 1, 4, 5}, {4}) == {
        ON_DEVICE: {0}, ON_SIBLINGS: {4}, ON_OWN: {1, 5},
    }  # fmt: skip
    assert cpu_cores.beside(0, {0}, {4}) == {ON_DEVICE: {0}}, "the sibling may not be used"


CONFINED = """
import os, threading
from multiprocessing import get_context
from helpers.frameworks import cpu_cores
usable = sorted(os.sched_getaffinity(0))
waiting = threading.Event()
threading.Thread(target=waiting.wait, daemon=True).start()
machine = cpu_cores.machine()
cpu_cores.confine([cpu_cores.CpuDevice((usable[0],), 1, (usable[-1],))])
assert cpu_cores.pinned() == (usable[0],), cpu_cores.pinned()
assert cpu_cores.machine() == machine, "what the process may use is what it might at first"
with get_context("fork").Pool(1) as pool:
    assert pool.apply(os.sched_getaffinity, (0,)) == {usable[-1]}
cpu_cores.confine([cpu_cores.CpuDevice(tuple(usable), len(usable), tuple(usable))])
assert cpu_cores.pinned() == tuple(usable)
"""


def test_a_process_with_all_its_threads_and_workers_is_put_in_its_place() -> None:
    """In a process of its own, which stays pinned."""
    subprocess.run([sys.executable, "-c", CONFINED], cwd=paths.ROOT, check=True)


@pytest.mark.parametrize(
    "flags", ["flags\t\t: fpu avx2 avx512_bf16", "Features\t: avx2 avx512_bf16"]
)
def test_a_processor_is_described_by_its_first_core(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(cpu_cores, "INFO", info)
    assert cpu_cores.processor() == {}, "elsewhere than on Linux"
    info.write_text(f"{flags}\n\nflags\t\t: sse\n")
    assert cpu_cores.processor()["instruction_sets"] == ["avx2", "avx512_bf16"]
