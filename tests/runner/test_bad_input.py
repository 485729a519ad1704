"""`compare` on data that is wrong: one line that names it, exit code 2, and nothing started."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import data_prep
from helpers import paths
from helpers.__main__ import main

LABELS = "Data_Entry_2017.csv"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 small images, enough for one global batch of 128."""
    folder = tmp_path_factory.mktemp("good") / "demo"
    data_prep.generate_nih(folder, images=240, size=64, progress=False)
    return folder


def keep_patients(count: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        header, *rows = (folder / LABELS).read_text().splitlines()
        kept = [row for row in rows if int(row.split(",")[3]) <= count]
        (folder / LABELS).write_text("\n".join([header, *kept]) + "\n")

    return change


def truncate(folder: Path) -> None:
    image = min((folder / "images").iterdir())
    image.write_bytes(image.read_bytes()[:100])


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no label file": (lambda folder: (folder / LABELS).unlink(), "label file"),
    "image corrupt": (truncate, "00000001_000.png"),
    "no images left in a part": (keep_patients(2), "groups"),
    "too few for a batch": (keep_patients(25), "global batch"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_data(
    case: str,
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage, named = BROKEN[case]
    folder = tmp_path / "data"
    shutil.copytree(good, folder)
    damage(folder)
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")

    assert main(["run", "--data", str(folder), "--notebooks", "PyTorch_MultiGPU"]) == 2
    printed = capsys.readouterr().err.strip()
    assert printed.startswith("error: ") and "\n" not in printed
    assert named in printed
    assert not list((tmp_path / "runs").glob("[!.]*/*")), "an experiment was begun"
