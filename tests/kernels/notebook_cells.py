"""Images where every crop is different, and a notebook's cells by their text."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from helpers import paths
from helpers.fairness import check_results

COLUMNS = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)


SIDE = 66
"""The side of the images in pixels; a crop is 56."""


def write_noise_images(folder: Path, patients: int = 200) -> Path:
    """A data folder of ``patients`` equal noise images: a crop is known by its corner."""
    target = folder / "noise"
    if target.exists():
        return target
    (target / "images").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
    Image.fromarray(noise).save(target / "noise.png")
    rows = [COLUMNS]
    for patient in range(1, patients + 1):
        name = f"{patient:08d}_000.png"
        (target / "images" / name).hardlink_to(target / "noise.png")
        finding = "Mass" if patient % 3 == 0 else "No Finding"
        rows.append(f"{name},{finding},0,{patient},50,M,PA,{SIDE},{SIDE},0.1,0.1")
    (target / "Data_Entry_2017.csv").write_text("\n".join(rows) + "\n")
    return target


def write_different_images(folder: Path, suffix: str) -> Path:
    """The same data folder with images of which no two are alike, as ``.png`` or ``.jpg`` files."""
    source, target = write_noise_images(folder), folder / f"different{suffix}"
    (target / "images").mkdir(parents=True)
    shutil.copy(source / "Data_Entry_2017.csv", target)
    with Image.open(source / "noise.png") as image:
        noise = np.asarray(image)
    for number, path in enumerate(sorted((source / "images").iterdir())):
        rolled = Image.fromarray(np.roll(noise, 7 * number))
        rolled.save(target / "images" / f"{path.stem}{suffix}")
    return target


def recipe_of_resnet44(folder: Path) -> str:
    """A recipe of a smaller network than the demo's: its file."""
    path = folder / "resnet44.toml"
    path.write_text('recipe = "demo"\n[model]\nnetwork = "resnet44"\n', encoding="utf-8")
    return str(path)


def cell_with(notebook: str, text: str) -> str:
    """The source of the notebook's one code cell that holds ``text``."""
    content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    texts = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
    (found,) = (source for source in texts if text in source)
    return found


def failed(checks: Iterable[check_results.Check]) -> set[str]:
    """Names of the checks that failed."""
    return {check.check for check in checks if check.verdict == "fail"}


EPSILON_FIRST = "weight change after 5 Adam steps"
"""A known difference of optimisers that add epsilon before the bias correction."""
