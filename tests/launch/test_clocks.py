"""Clocks of several machines: what is known of their difference holds, however slow the network."""

from collections.abc import Sequence
from random import Random

import pytest

from gpumon.boot import boot
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


def test_the_truth_is_within_bounds_that_more_rounds_narrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clocks, "boot", lambda: "a")
    caller = Round(0.0, 1e6)  # by letters it would be known to a million seconds
    once, often = (clocks.of_each(meetings(rounds), caller) for rounds in (1, 40))
    assert held(once) and held(often)
    assert often[1].within < once[1].within < 0.02
    assert often[0].middle == 0, "the process on the caller's own machine has its clock"
    assert often[1].middle == pytest.approx(5000.25, abs=0.01)


@pytest.mark.parametrize(("boots", "here"), [(("a", "b", "c"), "d"), (("", "", ""), "")])
def test_a_caller_on_a_machine_of_its_own_knows_as_much_as_letters_tell(
    boots: tuple[str, ...], here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no name of its boot shares its clock with nobody, as far as one knows."""
    monkeypatch.setattr(clocks, "boot", lambda: here)
    met = meetings(20, boots=boots)
    asked, answered = 7.0 + 99.9, 7.0 + 101.0  # the caller's clock is 7 s ahead
    found = clocks.of_each(met, Round(asked, answered))
    assert held(found, reference=7.0)
    assert 0 < found[0].within < 0.6 and found[1].within > found[0].within


def test_meetings_take_the_rounds_asked_for() -> None:
    called: list[int] = []
    found = clocks.meet(lambda: called.append(1), rounds=3)
    assert len(found.rounds) == 3 and len(called) == 4
    assert all(each.entered <= each.left for each in found.rounds)
    assert found.boot == boot()
