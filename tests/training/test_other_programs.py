"""What other programs use of a run's cores: from the system's counters to the record."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from helpers.frameworks import rank_info
from helpers.frameworks.cpu_cores import CpuDevice
from helpers.frameworks.rank_info import Place
from helpers.training import other_programs
from helpers.training.other_programs import Watch

TWO = (CpuDevice((0,), 1), CpuDevice((1, 2), 1))
"""The second has two hardware threads of a core."""


def test_busy_time_that_is_not_the_runs_is_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a part that is measured again counts once."""
    watch = Watch(TWO)
    for _ in range(2):
        # clock, busy, own
        counts = iter([np.array([5.0, 100, 40]), np.array([15.0, 111.5, 45.5])])
        monkeypatch.setattr(other_programs, "counters", lambda cores, root, c=counts: next(c))
        with watch.during("epochs"):
            pass
    assert watch.used() == {"cores": 3, "used": 0.6, "reason": None}


@pytest.mark.parametrize(
    ("devices", "cores", "used", "why"),
    [
        ((CpuDevice((10**6,), 1),), 1, None, "does not tell"),  # a container's own list
        ((), 0, 0.0, "None"),
    ],
)
def test_cores_that_are_not_known_are_not_looked_at(
    devices: tuple[CpuDevice, ...], cores: int, used: float | None, why: str
) -> None:
    watch = Watch(devices)
    with watch.during("epochs"):
        pass
    found = other_programs.as_record([watch.used()])
    assert (found["cores"], found["used"]) == (cores, used) and why in str(found["reason"])


def test_this_systems_counters_are_understood() -> None:
    core = min(os.sched_getaffinity(0))
    before = other_programs.counters([core], os.getpid())
    work = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    clock, busy, own = other_programs.counters([core], os.getpid()) - before
    assert 0.45 < own < 5 and 0 <= busy <= clock + 0.1


def test_ranks_have_cores_of_their_own_and_replicas_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    each: list[dict[str, Any]] = [
        {"cores": 1, "used": 0.25, "reason": None},
        {"cores": 1, "used": 0.5, "reason": None},
    ]
    assert other_programs.as_record(each) == each[0]
    names, none = ("a", "b"), ("",) * 2
    place = Place(0, 2, 2, False, 1, "cpu", names, none, none, 1)
    monkeypatch.setattr(rank_info._Here, "place", place)
    assert other_programs.as_record(each) == {"cores": 2, "used": 0.75, "reason": None}
    each[0] |= {"used": None, "reason": "no /proc"}
    found = other_programs.as_record(each)
    assert found == {"cores": 2, "used": None, "reason": "no /proc"}
