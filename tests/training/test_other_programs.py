"""What other programs use of a run's cores: from the system's counters to the record."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon import process
from helpers.frameworks import rank_info
from helpers.frameworks.cpu_cores import CpuDevice
from helpers.frameworks.rank_info import Place
from helpers.training import other_programs
from helpers.training.other_programs import Counters, Used, Watch

TWO = (CpuDevice((0,), 1, (0,)), CpuDevice((1,), 1, (2,)))
"""Their loader workers use a third core."""


class System:
    """A folder in the place of ``/proc``, and a clock; times are in ticks of 10 ms."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.clock = folder, 0.0
        patch.setattr(process, "PROC", folder)
        patch.setattr(process, "TICK", 0.01)
        patch.setattr(other_programs, "time", SimpleNamespace(monotonic=lambda: self.clock))

    def shows(self, cores: Mapping[int, str], processes: Mapping[int, str]) -> None:
        """user, nice, system, idle, iowait, irq, softirq, steal and guest of each core.

        And of each process user and system time, those of ended children, and its children.
        """
        lines = [f"cpu{number} {times} 0" for number, times in cores.items()]
        (self.folder / "stat").write_text("\n".join(["cpu  9 9 9", *lines, "intr 1"]))
        for number, said in processes.items():
            *times, children = said.split(" ", 4)
            thread = self.folder / f"{number}/task/{number}"
            thread.mkdir(parents=True, exist_ok=True)
            (thread / "children").write_text(children)
            stat = f"{number} (a) 9 b) S {' '.join('0' * 10)} {' '.join(times)} 20 0"
            (self.folder / str(number) / "stat").write_text(stat)


@pytest.fixture(name="system")
def system_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


IDLE = "0 0 0 1000 0 0 0 0 0"


def test_busy_time_that_is_not_the_runs_is_of_others(system: System) -> None:
    """With steal and interrupts; guests are in user time, and another core's work is no matter."""
    me = os.getpid()
    watch = Watch(TWO)
    system.shows(dict.fromkeys(range(4), IDLE), {me: "50 0 0 0 8", 8: "100 0 0 0 "})
    with watch.during("epochs"):
        system.clock = 10.0
        cores = {
            0: "400 100 50 1300 50 20 30 50 0",  # 6.5 s
            1: "500 0 0 1500 0 0 0 0 300",
            2: IDLE,
            3: "1000 0 0 1000 0 0 0 0 0",
        }
        system.shows(cores, {me: "150 50 0 0 8", 8: "500 0 0 0 "})
    cores_used = (6.5 + 5 - 5.5) / 10
    found = watch.used()
    assert (found.cores, found.used) == (3, pytest.approx(cores_used))


def test_a_process_that_ends_stays_the_runs(system: System) -> None:
    """And a part that is measured again counts once."""
    me, watch = os.getpid(), Watch(TWO)
    busy = {0: "700 0 0 1300 0 0 0 0 0", 1: IDLE, 2: IDLE}
    for _ in range(2):
        system.clock = 0.0
        system.shows(dict.fromkeys(range(3), IDLE), {me: "0 0 0 0 8", 8: "200 0 0 0 "})
        with watch.during("rounds"):
            system.clock = 10.0
            system.shows(busy, {me: "100 0 700 100 8"})  # it took 6 s more, and ended
            (system.folder / "8" / "stat").unlink()
    assert watch.used() == Used(3, 0.0)


def test_what_a_system_does_not_tell_is_not_known(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> str:
        watch = Watch(TWO)
        with watch.during("epochs"):
            pass
        found = other_programs.as_record([watch.used()])
        assert found["used"] is None
        return str(found["reason"])

    assert "No such file" in said()
    system.shows({0: IDLE, 1: IDLE}, {os.getpid(): "0 0 0 0 "})  # a container's own list
    assert "does not list core 2" in said()
    system.shows(dict.fromkeys(range(3), "0 0 0 0 0 0 0 0 0"), {})
    assert "does not count" in said()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_systems_counters_are_understood() -> None:
    core = min(os.sched_getaffinity(0))
    before = other_programs.counters([core], os.getpid())
    work = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    after = other_programs.counters([core], os.getpid())
    assert 0.45 < after.own - before.own < 5
    assert 0 <= after.busy - before.busy <= after.clock - before.clock + 0.1


def test_devices_without_cores_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Counters:
        raise AssertionError

    monkeypatch.setattr(other_programs, "counters", refuse)
    watch = Watch(())
    with watch.during("epochs"):
        pass
    assert other_programs.as_record([watch.used()])["cores"] == 0


def test_of_several_hosts_the_worst_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has two ranks, which look at cores of their own."""
    names, none = ("a", "a", "b", "b"), ("",) * 4
    place = Place(0, 4, 2, False, 2, "cpu", names, none, none, 1)
    monkeypatch.setattr(rank_info._Here, "place", place)
    each = [Used(1, 0.3), Used(1, 0.1), Used(1, 0.5), Used(1, 0.25)]
    found = other_programs.as_record(each)
    assert found == {"cores": 2, "used": 0.75, "reason": None, "host": "b"}
    each[0] = Used(1, None, "no /proc")
    assert other_programs.as_record(each)["reason"] == "no /proc"
