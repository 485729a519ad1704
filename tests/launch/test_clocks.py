"""Clocks of several machines: what is known of their difference holds, however slow the network."""

from collections.abc import Sequence
from random import Random

import pytest

from gpumon.clocks import boot_id
from helpers.launch import clocks
from helpers.launch.clocks import Meetings, Round

AHEAD = {"a": 0.0, "b": 5000.25, "c": -37.5}
"""By how much each process's clock is ahead of the true one."""


def meetings(rounds: int, slow: float = 0.01, boots: Sequence[str] = "abc") -> list[Meetings]:
    """Rounds as three machines see them: nobody leaves before all have entered."""
    random, now = Random(0), 100.0
    found: dict[str, list[Round]] = {name: [] for name in AHEAD}
    for _ in range(rounds):
        entered = {name: now + random.uniform(0, slow) for name in AHEAD}
        left = {name: max(entered.values()) + random.uniform(0, slow) for name in AHEAD}
        for name, ahead in AHEAD.items():
            found[name].append(Round(entered[name] + ahead, left[name] + ahead))
        now = max(left.values()) + random.uniform(0, slow)
    each = zip(boots, found.values(), strict=True)
    return [Meetings(boot, own) for boot, own in each]


def held(bounds: Sequence[clocks.Bounds], reference: float = 0.0) -> bool:
    true = [ahead - reference for ahead in AHEAD.values()]
    return all(each.least <= at <= each.most for each, at in zip(bounds, true, strict=True))


def test_the_truth_is_within_bounds_that_more_rounds_narrow() -> None:
    once, often = (
        [clocks.ahead(own, met[0]) for own in met] for met in (meetings(1), meetings(40))
    )
    assert held(once) and held(often)
    assert often[1].within < once[1].within < 0.02
    assert often[0].middle == pytest.approx(0, abs=0.01)
    assert often[1].middle == pytest.approx(5000.25, abs=0.01)


def test_meetings_take_the_rounds_asked_for() -> None:
    called: list[int] = []
    found = clocks.meet(lambda: called.append(1), rounds=3)
    assert len(found.rounds) == 3 and len(called) == 4
    assert all(each.entered <= each.left for each in found.rounds)
    assert found.boot == boot_id()
