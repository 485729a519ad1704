"""What the report says of runs that differ in how their steps were executed."""

from pathlib import Path
from typing import Any

import pytest
import records

from helpers.results import comparison, execution_modes

HOW = {"default": "eager", "eager": "eager", "compiled": "compiled (torch.compile)"}


def run(folder: Path, execution: str, first: float, later: float, seed: int = 0) -> None:
    """A run whose epochs take so many seconds; its rounds are as fast as its later epochs."""
    content: dict[str, Any] = records.make(speed=1000 / later)
    content["recipe"] |= {"execution": execution, "seed": seed}
    content["training"] |= {"execution": HOW[execution], "images_per_second": 1000 / later}
    for epoch in content["epochs"]:
        epoch["train_seconds"] = (first if epoch["epoch"] == 1 else later) - 1
        epoch["valid_seconds"] = 1.0
    records.save(folder / f"{execution}{seed}", content)


def said(folder: Path) -> list[str]:
    return execution_modes.break_even(comparison.load(sorted(folder.iterdir())))


def test_compiling_pays_after_as_many_epochs_as_its_cost_is_gains(tmp_path: Path) -> None:
    for seed in (0, 1):
        run(tmp_path, "default", first=12, later=10, seed=seed)
        run(tmp_path, "compiled", first=38, later=8, seed=seed)
    (line,) = said(tmp_path)
    assert "PyTorch compiled" in line and "against eager" in line
    assert "1.25 (1.25 to 1.25) times as fast" in line
    # 30 s more than its other epochs, of which the eager run takes 2 too: 28 s, at 2 s an epoch
    assert "compiling takes 28.0 (28.0 to 28.0) s and pays after 14.0 (14.0 to 14.0) epochs" in line


def test_what_is_slower_compiled_never_pays(tmp_path: Path) -> None:
    run(tmp_path, "eager", first=10, later=10)
    run(tmp_path, "compiled", first=40, later=11)
    (line,) = said(tmp_path)
    assert "single runs" in line and "does not pay" in line


def test_the_pair_of_a_compiled_run_is_the_eager_one_of_its_seed(tmp_path: Path) -> None:
    run(tmp_path, "default", first=10, later=10)
    run(tmp_path, "eager", first=20, later=20)
    run(tmp_path, "compiled", first=30, later=10)
    run(tmp_path, "compiled", first=30, later=1, seed=1)
    (line,) = said(tmp_path)
    assert "2.00 times as fast" in line


@pytest.mark.parametrize("execution", HOW)
def test_runs_that_were_executed_alike_are_not_compared(tmp_path: Path, execution: str) -> None:
    run(tmp_path, execution, first=10, later=10)
    run(tmp_path, execution, first=10, later=10, seed=1)
    assert not said(tmp_path)
