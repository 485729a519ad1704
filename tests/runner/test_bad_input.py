"""`compare` on data that is wrong: one line that names it, exit code 2, and nothing started."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from data_prep_tools import make_folder
from runner_tools import BEGIN, FINISH, Suite

from helpers import paths

FIRST = "00000001_000.png"


@pytest.mark.parametrize(
    ("patients", "damage", "named"),
    [
        (40, lambda folder: (folder / "Data_Entry_2017.csv").unlink(), "label file"),
        (40, lambda folder: os.truncate(folder / "images" / FIRST, 100), FIRST),
        (10, lambda folder: None, "do not fill one global batch"),
    ],
)
def test_broken_data(
    patients: int,
    damage: Callable[[Path], None],
    named: str,
    suite: Suite,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    folder = make_folder(suite.folder / "damaged", patients, images=3, size=38)
    damage(folder)
    assert suite.compare("--data", str(folder)) == 2
    printed = capsys.readouterr().err.strip()
    assert printed.startswith("error: ") and "\n" not in printed and named in printed
    assert not list(paths.RUNS.glob("[!.]*/*")), "an experiment was begun"
