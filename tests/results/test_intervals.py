"""What the studies' sentences are computed by."""

import math

import pytest
from scipy import stats

from helpers.results import intervals
from helpers.results.intervals import Interval


def test_an_interval_is_students() -> None:
    values = [0.734, 0.700, 0.633, 0.650, 0.712]
    found = intervals.interval(values)
    low, high = stats.t.interval(0.95, 4, found.mean, stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.text(".3f") == "0.686 (0.633 to 0.739)"


def test_one_value_has_no_interval_and_tells_nothing_apart() -> None:
    found = intervals.interval([0.7])
    assert found.mean == 0.7 and math.isnan(found.low)
    assert found.text() == "0.70 (no interval)"
    assert not intervals.excludes(found, 0.0)
    assert intervals.change(intervals.ratio([3.0], [2.0])) == "+50 %, one round"


def test_a_ratio_is_of_pairs() -> None:
    """Rounds differ by a factor of ten, the ratio within each is the same."""
    found = intervals.ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert found == pytest.approx((2, 2, 2))
    turned = intervals.ratio([1.0, 10.0, 100.0], [2.0, 20.0, 200.0])
    assert turned == pytest.approx((0.5, 0.5, 0.5))


def test_a_change_that_may_be_none_says_so() -> None:
    assert intervals.change(Interval(0.68, 0.59, 0.79)) == "-32 % (-41 to -21)"
    assert (
        intervals.change(Interval(1.02, 0.90, 1.16))
        == "+2 % (-10 to +16): no significant difference"
    )
    assert Interval(0.22, 0.2, 0.25).text(".0%") == "22 % (20 % to 25 %)"


@pytest.mark.parametrize(
    ("target", "middle", "end", "updates"),
    [(0.8, 0.7, 0.9, 3), (0.8, 0.9, 0.6, 1.5), (0.4, 0.7, 0.9, 0), (0.95, 0.7, 0.9, math.inf)],
)
def test_updates_to_a_target(target: float, middle: float, end: float, updates: float) -> None:
    found = intervals.updates_to(target, [0, 2, 4], [0.5, middle, end])
    assert found == pytest.approx(updates)


def test_arrivals_are_compared_in_pairs_and_a_run_without_one_takes_the_interval_away() -> None:
    paired = intervals.ratio([40, 44, 36], [20, 20, 20]).text(".1f")
    assert intervals.soon([40, 44, 36], [20, 20, 20]) == f"{paired} times as soon"
    found = intervals.soon([40, 40, 40, 40], [20, 40, 80, math.inf])
    assert found == "0.8 times as soon (median; no interval, 1 of 4 runs never arrived)"
    half = intervals.soon([40, 40], [20, math.inf])
    assert half == "1 of 2 runs never arrived, so there is no time to give"
    nothing = intervals.soon([40, math.inf], [20, 20])
    assert "not comparable" in nothing
