"""The studies' last words, from numbers made up for them."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import publish_results
import pytest

from helpers import paths
from helpers.all_reduce import grids, measure
from helpers.errors import UserError
from helpers.results import intervals
from helpers.runner.notebook_code import run_cells

ROUNDS = 5
# Chance between rounds or seeds: not the same from one to the next, 0 on average.
NOISE = np.array([0.03, -0.04, 0.05, -0.03, -0.01])


def run_only(notebook: str, *anchors: str, **names: Any) -> dict[str, Any]:
    """Runs the parameters cell and those that hold an anchor, with these names in place."""
    common = {"np": np, "pd": pd, "math": math, "intervals": intervals}
    return run_cells(
        notebook,
        wanted=lambda text: (
            text.startswith(PARAMETERS[notebook]) or any(a in text for a in anchors)
        ),
        **common | names,
    )


PARAMETERS = {
    "Study_Linear_Scaling": "devices = [",
    "Study_Loader": "images = ",
    "Study_Loss_Placement": "devices = ",
}


def loader(rates: dict[tuple[str, int], tuple[float, float]]) -> None:
    """Prints Study_Loader's section 7, from images/s alone and in training."""
    rows = []
    for number, (key, (alone, trained)) in enumerate(rates.items()):
        for turn, chance in enumerate(1 + np.roll(NOISE, number)):
            rows.append((*key, turn, alone, trained * chance))
    columns = ["format", "workers", "round", "alone", "in training"]
    measured = pd.DataFrame(rows, columns=columns).set_index(columns[:3]).sort_index()
    run_only(
        "Study_Loader", "near = ", measured=measured, counts=sorted({k for _, k in rates}),
        medians=measured.groupby(["format", "workers"]).median(),
    )  # fmt: skip


def test_the_loader_with_most_in_reserve_and_fewest_workers_is_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rates = {("none", 0): (math.nan, 520.0)}
    for name, alone in (("png", 3000.0), ("jpeg", 3500.0), ("packed", 20000.0)):
        rates[name, 0] = (1.3 * alone, 300.0)
        rates[name, 2] = (alone, 470.0)
        rates[name, 4] = (1.01 * alone, 465.0)  # no more than two deliver
        rates[name, 8] = (0.7 * alone, 350.0)
    loader(rates)
    whole, files = re.split(r"^Of png, jpeg: ", capsys.readouterr().out, flags=re.M)
    assert "Of png, jpeg, packed: packed, workers: 2." in whole
    assert files.startswith("jpeg, workers: 2.")
    assert re.search(r"- training without a loader: -(9|10|11) % \(", files)
    assert re.search(r"- 0 workers: \+5\d % \(", files) and "- 2 workers" not in files
    assert re.search(r"- 8 workers: \+3\d % \(", files)


def placement(count: int, times: dict[str, float]) -> None:
    """Prints Study_Loss_Placement's section 6; how long gathering takes, relative to not."""
    rows = []
    for output, factor in times.items():
        for number, loss in enumerate(("gathered", "on each")):
            chance = 1 + np.roll(NOISE, 2 * number)
            base = 100 * (factor if loss == "gathered" else 1)
            rows += [(output, loss, turn, base * chance[turn]) for turn in range(ROUNDS)]
    run_only(
        "Study_Loss_Placement", "def gathered_against_each(",
        runs=pd.DataFrame(rows, columns=["output", "loss", "round", "ms a step"]),
        n=count, difference=0.0, OUTPUTS=dict.fromkeys(times),
        moved=dict.fromkeys(times, 0.0036 * (count - 1)),
    )  # fmt: skip


def test_where_the_loss_is_better_is_said_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    placement(2, {"14 numbers": 1.0, "a map": 1.0})
    assert "these rounds show no difference in time" in capsys.readouterr().out
    placement(2, {"14 numbers": 1.0, "a map": 1.4})
    told = capsys.readouterr().out
    assert re.search(r"a map: .*\n.*\n  On this machine a loss on each wins", told)
    placement(2, {"14 numbers": 0.6, "a map": 1.0})
    told = capsys.readouterr().out
    assert re.search(r"14 numbers: .*\n.* -4\d % \(-\d+ to -\d+\).\n.* gathering wins", told)
    assert told.count("wins") == 1


def test_scaling_gives_every_rule_and_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    rules = ["base rate", "linear", "linear + warm-up", "square root"]
    rows = []
    for rule in rules:
        for n in (1, 8) if rule == "base rate" else (8,):
            for seed in range(4):
                end = 0.9 + NOISE[seed] / 10
                if (rule, n, seed) == ("linear + warm-up", 8, 3):
                    end = 0.6  # never gets there
                for at, auc in ((5, 0.5), (40 if n == 1 else 20, end)):
                    rows.append((rule, n, seed, at, auc))
    columns = ["rule", "devices", "seed", "updates", "auc"]
    run_only(
        "Study_Linear_Scaling", "def updates_to_target(",
        runs=pd.DataFrame(rows, columns=columns), RULES=rules, MANY=8, devices=[1, 8],
        seeds=[0, 1, 2, 3],
    )  # fmt: skip
    told = capsys.readouterr().out
    one, nothing = told.partition("relative to doing nothing")[::2]
    assert re.findall(r"^- (.*): AUC", one, re.M) == rules
    assert re.findall(r"^- (.*): AUC", nothing, re.M) == rules[1:]
    assert re.search(r"- base rate: .*no significant.*\n +AUC 0.80 1\.\d \(.*\) times as soon", one)
    assert re.search(r"- linear \+ warm-up: .*\n.* 1 of 4 runs never arrived\)", one)


STEPS = {"plain": 6, "ring": 14, "rsaa 2x4": 8, "rsap 4x2": 6}
"""The steps of some ways on eight ranks; all others take 20."""


def test_a_grid_is_compared_with_mpis_own_at_each_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(ranks: int, sizes: list[int], rounds: int, *_: Any) -> list[dict[str, Any]]:
        """Each step takes 50 us, each byte the same for all."""
        found = []
        for way in grids.NAMES:
            for shape in grids.of(ranks) if way in grids.OVER_GRIDS else [(1, ranks)]:
                name = f"{way} {grids.in_words(shape)}" if way in grids.OVER_GRIDS else way
                alone = 50e-6 * STEPS.get(name, 20)
                about = {"method": way, "rows": shape[0], "columns": shape[1]}
                found += [
                    about | {"bytes": size, "round": turn, "seconds": (alone + 8e-8 * size) * wave}
                    for turn, wave in enumerate(1 + NOISE)
                    for size in sizes
                ]
        return found

    monkeypatch.setattr(measure, "run", run)
    shown: list[Any] = []
    run_cells("Study_AllReduce", display=shown.append, largest=1 << 24)
    told = capsys.readouterr().out
    assert "a ring of 8: 14 steps; rank 0 sent 1,400 numbers" in told
    assert "a grid of 2x4: 8 steps; rank 0 sent 1,400 numbers" in told
    small, *_, large = re.split(r"^(?=\d[\d,]* bytes: )", told, flags=re.M)[1:]
    assert re.match(r"4 bytes: (MPI's own|rsap 4x2) is the fastest \(0.000297 s\)\n", small)
    assert "- rsaa 2x4, against MPI's own: +33 % (+33 to +33)" in small
    assert re.search(r"- rsap 4x2, against MPI's own: [+-]0 % .*: no significant diff", small)
    assert "16,777,216 bytes" in large and "- rsaa 2x4, against MPI's own: +0 %" in large


def test_a_way_faster_than_its_link_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(ranks: int, sizes: list[int], *_: Any) -> list[dict[str, Any]]:
        about = {"method": "plain", "rows": 1, "columns": ranks, "round": 0}
        return [about | {"bytes": size, "seconds": 0.1} for size in sizes]

    monkeypatch.setattr(measure, "run", run)
    # 1.75 times 16 MB in 0.1 s are 2,349 Mbit/s.
    with pytest.raises(AssertionError, match="faster than its link"):
        run_cells("Study_AllReduce", until="## 5.", largest=1 << 24, link_mbit=2200)
    run_cells("Study_AllReduce", until="## 5.", largest=1 << 24, link_mbit=2400)


def test_what_cannot_be_measured_is_one_line() -> None:
    for ranks, size in ((1, 4), (2, 6), (2, 0)):
        with pytest.raises(UserError, match=r"give at least 2, and multiples of 4 bytes$"):
            measure.run(ranks, [size], 1, 0.1)


def test_a_published_notebook_names_no_machine_and_its_links_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to the study beside a notebook leads to the study that is published."""
    monkeypatch.setattr(publish_results, "STUDIES", tmp_path)
    said = [f"{paths.ROOT}/data\n", "see [a study](Study_Loader.ipynb)\n"]
    cell = {"cell_type": "markdown", "metadata": {"papermill": {}}, "source": said}
    (tmp_path / "executed.ipynb").write_text(json.dumps({"metadata": {}, "cells": [cell]}))
    (tmp_path / "demo" / "run").mkdir(parents=True)
    (tmp_path / "Study_Loader.ipynb").touch()
    for place, link in (("demo/run/notebook", "../../Study_Loader"), ("Study_A", "Study_Loader")):
        target = tmp_path / f"{place}.ipynb"
        publish_results._copy_notebook(tmp_path / "executed.ipynb", target)
        (copied,) = json.loads(target.read_text())["cells"]
        assert "".join(copied["source"]) == f"data\nsee [a study]({link}.ipynb)\n"
        assert copied["metadata"] == {}
