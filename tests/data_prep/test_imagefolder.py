"""A folder a class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import command
from PIL import Image

from data_prep import DataError, open_reader
from data_prep.readers import imagefolder


def picture(path: Path, level: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (3, 2), (level, 0, 255 - level)).save(path)


def test_train_and_val(tmp_path: Path) -> None:
    for name in ("train/dog/1.png", "train/dog/2.PNG", "train/cat/deep/er/3.png", "val/dog/9.png"):
        picture(tmp_path / name)
    (tmp_path / "train" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "train" / ".cache").mkdir()
    found = imagefolder.catalog(tmp_path)
    assert found.classes == ("cat", "dog")
    images = ["train/cat/deep/er/3.png", "train/dog/1.png", "train/dog/2.PNG", "val/dog/9.png"]
    assert found.images == images
    assert found.labels.tolist() == [0, 1, 1, 1]
    assert found.parts is not None and found.parts.tolist() == [0, 0, 0, 1]


def test_without_parts_it_is_split_by_seed(tmp_path: Path) -> None:
    for at in range(20):
        picture(tmp_path / "ab"[at % 2] / f"{at}.png", at)
    first = open_reader("imagefolder", tmp_path, seed=1).parts()
    assert sum(map(len, first.values())) == 20 and len(first["test"]) == 4
    again = open_reader("imagefolder", tmp_path, seed=1).parts()
    other = open_reader("imagefolder", tmp_path, seed=2).parts()
    assert all(np.array_equal(first[part], again[part]) for part in first)
    assert not all(np.array_equal(first[part], other[part]) for part in first)


def test_groups_by_what_a_path_says(tmp_path: Path) -> None:
    for at in range(40):
        picture(tmp_path / "ab"[at % 2] / f"person{at // 4}_{at}.png", at)
    reader = open_reader("imagefolder", tmp_path, group=r"person\d+")
    groups = reader.catalog.groups
    assert groups is not None and len(set(groups)) == 10
    parts = {part: {groups[i] for i in indices} for part, indices in reader.parts().items()}
    assert not parts["train"] & parts["test"] and not parts["train"] & parts["valid"]
    with pytest.raises(DataError, match="no 'who' in the path"):
        open_reader("imagefolder", tmp_path, group="who")
    with pytest.raises(DataError, match="not a regular expression"):
        open_reader("imagefolder", tmp_path, group="(")


@pytest.mark.parametrize("kind", ["ppm", "pnm", "pbm", "pgm", "jpe", "jfif", "gif", "tif", "bmp"])
def test_a_folder_of_each_kind_of_image(tmp_path: Path, kind: str) -> None:
    for name in ("a/1", "b/2"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        grey = Image.new("L", (3, 2), 200)
        format = {"jpe": "JPEG", "jfif": "JPEG", "gif": "GIF", "tif": "TIFF", "bmp": "BMP"}
        grey.save(tmp_path / "in" / f"{name}.{kind}", format.get(kind, "PPM"))
    assert open_reader("imagefolder", tmp_path / "in").read(1).shape == (2, 3, 3)
    words = ("resize", tmp_path / "in", tmp_path / "out", "--reader", "imagefolder", "--size", 8)
    done = command(*words)
    assert done.returncode == 0 and "2 grey images" in done.stdout
    assert "passed over" not in done.stderr
    assert {path.name for path in (tmp_path / "out").rglob("*.png")} == {"1.png", "2.png"}


def test_other_files_are_counted_by_ending(tmp_path: Path) -> None:
    """As in GTSRB, where each class has a CSV file beside its images."""
    for at in range(20):
        picture(tmp_path / "in" / "ab"[at % 2] / f"{at}.ppm", at)
    for name in ("a/GT-0.csv", "b/GT-1.CSV", "a/deep/notes.txt", "b/README", "b/.hidden"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("no image")
    says = "note: passed over: 2 .csv, 1 .txt, 1 without ending\n"
    words = (tmp_path / "in", "--reader", "imagefolder")
    assert says in command("verify", "--quick", *words).stdout
    assert says in command("verify", *words).stdout
    assert says in command("resize", *words, tmp_path / "out", "--size", 8).stderr
    assert says in command("resize", tmp_path / "in", tmp_path / "plain", "--size", 8).stderr
