"""The model of an all-reduce, on times whose law is known."""

import numpy as np
import pandas as pd
import pytest

from helpers.all_reduce import grids
from helpers.errors import UserError
from helpers.results import all_reduce_model as models
from helpers.results import intervals

LAW = np.array([50e-6, 1 / 12.5e6, 2e-9])  # 50 us a message, 100 Mbit/s, 0.5 GB/s
SIZES = (4, 4096, 1 << 20, 16 << 20)


def times(way: str, shapes: list[grids.Shape], chance: float = 0.03, seed: int = 0) -> pd.DataFrame:
    """The times of a known law, with chance from one measurement to the next."""
    random = np.random.default_rng(seed)
    rows = [
        (*shape, size, turn, (models.terms(way, shape, size) @ LAW) * (1 + noise))
        for turn in range(8)
        for shape in shapes
        for size, noise in zip(SIZES, chance * random.standard_normal(len(SIZES)), strict=True)
    ]
    return pd.DataFrame(rows, columns=models.COLUMNS)


def test_steps_and_bytes_are_those_of_the_ring_and_of_the_grid() -> None:
    assert list(models.terms("ring", (2, 4), 800)) == [14, 1400, 800]
    assert list(models.terms("rsaa", (2, 4), 800)) == [8, 1400, 800]
    assert list(models.terms("rsap", (1, 8), 800)) == [14, 1400, 800]
    assert list(models.terms("plain", (2, 4), 800)) == [6, 1400, 800]
    assert list(models.terms("ring", (1, 1), 800)) == [0, 0, 800]


@pytest.mark.parametrize("way", [*grids.NAMES, *grids.LIBRARIES])
def test_a_known_law_is_found_and_says_what_eight_ranks_take(way: str) -> None:
    fitted = models.fit(way, times(way, [(1, 2), (2, 2)]))
    for found, true in zip((fitted.alpha, fitted.beta), LAW, strict=False):
        assert found.mean == pytest.approx(true, rel=0.1) and found.low < found.high
    judged = models.judged(fitted, times(way, [(2, 4)], seed=1))
    assert len(judged) == len(SIZES) and judged["error"].abs().max() < 0.1
    assert np.allclose(judged["model"], judged["measured"] * (1 + judged["error"]))
    exact = models.fit(way, times(way, [(1, 2), (2, 2)], chance=0.0))
    assert np.allclose(exact.each, LAW, rtol=1e-6)


def test_intervals_hold_the_truth_most_of_the_time() -> None:
    """Those of 95 %: in 50 of 60 at the least."""
    held = 0
    for seed in range(60):
        found = models.fit("ring", times("ring", [(1, 2), (1, 4)], seed=seed)).alpha
        held += found.low <= LAW[0] <= found.high
    assert held >= 50


def test_another_law_is_seen_by_its_error() -> None:
    """A switch that all share: each rank more makes all slower."""
    measured = times("ring", [(1, 2), (1, 4), (1, 8)])
    measured["seconds"] *= (measured["rows"] * measured["columns"]) ** 1.5
    few = measured["columns"] < 8
    judged = models.judged(models.fit("ring", measured[few]), measured[~few])
    assert judged["error"].iloc[-1] < -0.15


def test_what_cannot_be_told_apart_is_one_line() -> None:
    for too_few in (times("ring", [(1, 4)]), times("ring", [(1, 2), (1, 4)]).query("bytes == 4")):
        with pytest.raises(UserError, match="two numbers of ranks") as caught:
            models.fit("ring", too_few)
        assert "\n" not in str(caught.value)


def test_one_round_has_no_interval() -> None:
    one = times("ring", [(1, 2), (1, 4)]).query("round == 0")
    assert "no interval" in models.fit("ring", one).seconds((1, 8), 4096).text(".1g")


def test_the_most_ranks_judge_what_the_others_say() -> None:
    measured = pd.concat(
        times("rsaa", grids.of(ranks), seed=ranks).assign(ranks=ranks) for ranks in (2, 4, 8)
    )
    # Another law for a grid that is not the squarest changes nothing.
    measured.loc[measured["columns"] == 1, "seconds"] *= 3
    found = models.verdict("rsaa", measured)
    assert len(found.errors) == len(SIZES) and set(found.errors["columns"]) == {4}
    assert found.within(0.15) and not found.within(found.worst / 2)
    assert list(found.a_step.index) == [2, 4, 8]
    assert np.allclose(found.a_step, LAW[0], rtol=0.05)
    measured.loc[measured["ranks"] == 8, "seconds"] *= 1.5
    assert not models.verdict("rsaa", measured).within(0.15)
    with pytest.raises(UserError, match="two numbers of ranks"):
        models.verdict("rsaa", measured[measured["ranks"] == 8])


def test_efficiency_is_the_share_that_computes() -> None:
    found = models.efficiency([1.0, 1.0], [0.5, 0.5], 8)
    assert found.mean == pytest.approx(1 / 1.5)
    assert models.efficiency([1.0, 1.0], [0.5, 0.5], 8, overlap=0.6).mean == pytest.approx(1.0)
    waits = models.efficiency([0.9, 1.1], [0.0, 0.0], 64).mean  # for the slower of two kinds
    assert waits == pytest.approx(1 / 1.1, rel=1e-6)


def test_jitter_is_the_expected_maximum() -> None:
    steps = [1.0, 2.0, 3.0, 4.0]
    assert models.jitter(steps, 1) == pytest.approx(0.0)
    random = np.random.default_rng(0)
    drawn = random.choice(steps, (200_000, 3)).max(1).mean() - 2.5
    assert models.jitter(steps, 3) == pytest.approx(drawn, abs=0.01)
    assert models.jitter(steps, 10_000) == pytest.approx(1.5, abs=1e-3)


def test_an_iteration_hides_what_overlaps_and_no_more() -> None:
    assert models.iteration(1.0, 0.5) == pytest.approx(1.5)
    assert models.iteration(1.0, 0.5, overlap=0.2, jitter=0.1) == pytest.approx(1.4)
    assert models.iteration(1.0, 0.5, overlap=0.7) == pytest.approx(1.0)
    rounds = models.iteration([1.0, 1.2], [0.5, 0.3], overlap=0.4)
    assert intervals.interval(rounds).mean == pytest.approx(1.15)
