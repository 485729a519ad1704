"""Who may be the best: by simulated runs whose truth is known, and in every place of a report."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import records

from helpers.frameworks import ROWS
from helpers.results import best, charts, comparison, comparison_tables, conclusions
from helpers.results.best import order
from helpers.results.runs import frame

Values = dict[str, list[float]]


def drawn(random: np.random.Generator, spreads: list[float], runs: int, lead: float) -> Values:
    """Rates of A, B, ...; A is ahead by ``lead``."""
    found = {}
    for place, spread in enumerate(spreads):
        logs = random.normal(np.log1p(lead) if place == 0 else 0.0, spread, runs)
        found[chr(ord("A") + place)] = list(100 * np.exp(logs))
    return found


def test_who_is_named_is_always_the_head_of_the_order() -> None:
    random = np.random.default_rng(1)
    for number in range(200):
        spreads = list(random.uniform(0.005, 0.25, random.integers(2, 8)))
        values = drawn(random, spreads, 6, 0.05)
        values = {label: each[: random.integers(1, 6)] for label, each in values.items()}
        more = bool(number % 2)
        found = order(values, more=more)
        assert {*found.labels, *found.noisy} == {*values}
        means = [np.log(values[label]).mean() for label in found.labels]
        assert all((a >= b) if more else (a <= b) for a, b in pairwise(means))
        assert found.best == found.labels[: found.named]


@pytest.mark.parametrize(("runs", "alone"), [(1, 0.05), (3, 0.45), (5, 0.85)])
def test_the_truth_is_among_the_named(runs: int, alone: float) -> None:
    random = np.random.default_rng(2)
    level = [order(drawn(random, [0.03] * 7, runs, 0.0), more=True) for _ in range(400)]
    assert np.mean(["A" in found.best for found in level]) > 0.93
    ahead = [order(drawn(random, [0.03] * 7, runs, 0.1), more=True) for _ in range(400)]
    assert np.mean(["A" in found.best for found in ahead]) > 0.98
    assert np.mean([found.best == ("A",) for found in ahead]) > alone


def test_noise_wins_nothing_and_costs_the_others_nothing() -> None:
    values = {"A": [100.0, 101, 99], "B": [90.0, 91, 89], "C": [98.0, 99, 100]}
    alone = order(values, more=True)
    assert alone.best == ("A", "C")
    found = order(values | {"Noisy": [80.0, 100, 125]}, more=True)
    assert found.noisy == ("Noisy",) and found.best == alone.best
    assert found.lead == pytest.approx(alone.lead)
    behind = order(values | {"Noisy": [10.0, 12, 15]}, more=True)
    assert behind.noisy == () and behind.labels[-1] == "Noisy" and behind.best == alone.best
    ahead = order(values | {"Noisy": [1000.0, 1200, 1500]}, more=True)
    assert ahead.best == ("Noisy",)
    none = order({"A": [80.0, 100, 125], "B": [70.0, 99, 130]}, more=True)
    assert none.best == () and set(none.noisy) == {"A", "B"}


def test_a_framework_that_was_measured_once() -> None:
    """By an assumed spread; it leads only by far, and more seeds are asked for."""
    near = order({"A": [10.0], "B": [10.5], "C": [14.0]}, more=False)
    assert near.once and near.best == ("A", "B") and near.seeds in (5, 10)
    many = {f"other {number}": [115.0] for number in range(6)}
    assert order({"A": [100.0]} | many, more=False).best == ("A",)
    seven = order({"A": [107.0]} | many, more=False)
    assert len(seven.best) == 7 and seven.lead == pytest.approx(0.11, abs=0.005)
    assert order({"A": [100.0], "B": [100.0]}, more=True).seeds is None  # no number would do


NAMES = tuple(dict.fromkeys(row.framework for row in ROWS))[:5]


def experiment(folder: Path, random: np.random.Generator, seeds: int) -> comparison.Comparison:
    """``--devices 1,2``: frameworks that compile long or not, are near each other, some noisy."""
    for name in NAMES:
        rate, compiling = random.uniform(90, 120), float(random.choice([0.5, 5, 30]))
        noise = random.choice([0.01, 0.03, 0.15])
        for count in (1, 2):
            faster = 1 if count == 1 else random.uniform(0.9, 2)
            for seed in range(seeds):
                speed = rate * faster * float(np.exp(random.normal(0, noise)))
                content = records.make(name, count, cores=1, speed=speed)
                content["files"] = records.rounds(speed * random.uniform(0.85, 1.1))
                content["recipe"] |= {"seed": seed, "quality_targets": [0.65]}
                content["run"]["variant"] = f"seed{seed}"
                content["epochs"][0]["train_seconds"] += compiling
                content["training"]["seconds"] += compiling
                records.save(folder / f"{name}{count}{seed}", content)
    return comparison.load(sorted(folder.iterdir()))


@pytest.mark.parametrize(("number", "seeds"), [(0, 1), (1, 1), (2, 3), (3, 3), (4, 3)])
def test_no_place_of_a_report_contradicts_another(number: int, seeds: int, tmp_path: Path) -> None:
    compared = experiment(tmp_path, np.random.default_rng(number), seeds)
    found = best.orders(frame(compared))
    time, steady = found["seconds"], found["images_per_second"]
    answer, line = conclusions.fastest(compared), conclusions.headline(compared)
    in_time, _, in_steady = line.partition("steady state")

    def first(text: str) -> str:
        at = {name: text.index(name) for name in NAMES if name in text}
        return min(at, key=lambda name: at[name])

    if 0 < time.named < 3:
        assert first(in_time) == time.labels[0]
    if time.named:
        assert answer.verdict == conclusions.listed(time.best)
    if 0 < steady.named < 3 and {*steady.best} != {*time.best}:
        assert first(in_steady) == steady.labels[0]
    table = comparison_tables.runs(compared).frame
    picture: Any = charts.parts(compared)
    if time.labels:
        assert first(table.index[0]) == first(picture.alt) == time.labels[0]
    shown = {
        name: float(str(text).split()[0])
        for name, text in table["training (s)"].items()
        if name in time.labels
    }
    assert list(shown.values()) == sorted(shown.values())
    more = conclusions.answers(compared)[-1]
    assert more.question == "More devices"
    assert answer.text.count("Measured once") == (seeds == 1)
