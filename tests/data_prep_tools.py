"""What the data_prep tests share: small data folders, and the command line as a user meets it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from data_prep import open_reader, resize_folder
from data_prep.__main__ import main
from data_prep.synthetic_shapes import generate_cifar10, generate_imagefolder

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)


def row(image: str, findings: str = "No Finding", followup: object = 0, patient: object = 1) -> str:
    """One line of a label file as the NIH writes it."""
    return f"{image},{findings},{followup},{patient},58,M,PA,2500,2048,0.168,0.168"


def make_folder(folder: Path, patients: int = 12, images: int = 2, size: int = 16) -> Path:
    """A data folder of `patients` x `images` small grey pictures with a few findings."""
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(3)
    lines = [HEADER]
    for patient in range(1, patients + 1):
        for followup in range(images):
            name = f"{patient:08d}_{followup:03d}.png"
            pixels = rng.integers(0, 256, (size, size), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name)
            findings = ("No Finding", "Mass", "Edema|Effusion")[(patient + followup) % 3]
            lines.append(row(name, findings, followup, patient))
    (folder / "Data_Entry_2017.csv").write_text("\n".join(lines) + "\n")
    return folder


def picture(
    path: Path, shape: tuple[int, ...] = (4, 4, 3), seed: int = 0, format: str | None = None
) -> None:
    """An image of noise, of other noise for each seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path, format)


def lay(folder: Path, *names: str) -> Path:
    """A folder with these images, no two of which are the same."""
    for seed, name in enumerate(names):
        picture(folder / name, seed=seed)
    return folder


def make_table(folder: Path, images: int = 60, size: int = 24) -> Path:
    """A data folder as CheXpert's: a column per finding, with uncertain and missing labels."""
    rng = np.random.default_rng(4)
    lines = ["Path,Sex,Edema,Mass,Fracture"]
    for at in range(images):
        path = f"train/patient{at // 2:05d}/study{at % 2 + 1}/view1_frontal.jpg"
        picture(folder / path, (size, size), at)
        lines.append(",".join([path, "Male", *rng.choice(["1.0", "0.0", "-1.0", ""], 3)]))
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    (folder / "table.toml").write_text(
        'file = "train.csv"\npath = "Path"\ngroup = "Path"\ngroup_pattern = "patient[0-9]+"\n'
        'findings = ["Edema", "Mass", "Fracture"]\n'
    )
    return folder


def table_of(folder: Path, **options: Any) -> pd.DataFrame:
    """The images of a folder in the NIH's format, one a row."""
    return open_reader("nih", folder, channels=1, **options).table()


def quiet(source: Path, target: Path, **options: Any) -> dict[str, Any]:
    """`resize_folder` without a progress bar, to 8 px."""
    return resize_folder(source, target, **{"size": 8, "progress": False} | options)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`data-prep` with these arguments, in this process: a new one takes a second to start."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as said,
        contextlib.redirect_stderr(io.StringIO()) as complained,
    ):
        code = main([str(argument) for argument in arguments])
    return subprocess.CompletedProcess([], code, said.getvalue(), complained.getvalue())


QUIET: dict[str, Any] = {"progress": False, "num_workers": 1}

MAKERS: dict[str, Callable[[Path], object]] = {
    "nih": make_folder,
    "table": make_table,
    "imagefolder": lambda folder: generate_imagefolder(folder, images=60, size=20, **QUIET),
    "cifar10": lambda folder: generate_cifar10(folder, images=120, **QUIET),
}
"""What makes a small data set of each format: those of the readers."""


def start(*arguments: object) -> subprocess.Popen[bytes]:
    """A running `python -m data_prep`, the leader of a process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "data_prep", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_until(ready: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    """Wait until something is so, or the process has ended."""
    until = time.monotonic() + 300
    while running.poll() is None and time.monotonic() < until and not ready():
        time.sleep(0.002)


def the_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one error line of a command that failed as a user error; fails if there is more."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    # The progress bar shares stderr; it writes with carriage returns and never says data-prep.
    lines = [line for line in done.stderr.replace("\r", "\n").splitlines() if "data-prep:" in line]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return lines[0]


def digest(folder: Path) -> dict[str, str]:
    """Relative path to hash of every file under a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


needs_sample = pytest.mark.skipif(not (SHARED / "nih-sample").is_dir(), reason="no nih-sample")
of_samples = pytest.mark.parametrize(
    "kind", ["generated", pytest.param("real", marks=needs_sample)]
)


def sample_of(kind: str, folder: Path) -> tuple[Path, int]:
    """A folder of X-rays of 64 px, and how many they are."""
    if kind == "real":
        return SHARED / "nih-sample", 749
    return make_folder(folder / "sample", patients=50, size=64), 100
