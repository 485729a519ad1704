"""From every published format to small images: resized, resumed, packed, verified."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from data_prep_tools import MAKERS, QUIET, command, digest, the_line
from PIL import Image

from data_prep import DataError, is_complete, manifest, open_reader, resize_folder
from data_prep.synthetic_shapes import generate_imagefolder


class Set(NamedTuple):
    """A data set as published, prepared and packed."""

    reader: str
    folder: Path
    small: Path
    packed: Path


SMALL: dict[str, Any] = {"size": 8, "channels": 3, **QUIET}


@pytest.fixture(name="made", scope="module", params=["table", "imagefolder", "cifar10"])
def made_fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Set:
    folder = tmp_path_factory.mktemp(request.param)
    made = Set(request.param, *(folder / name for name in ("set", "small", "packed")))
    MAKERS[made.reader](made.folder)
    words = (made.folder, made.small, "--size", 8, "--reader", made.reader, "--num-workers", 1)
    assert "RGB images" in command("resize", *words, "--rgb").stdout
    assert command("pack", made.small, made.packed, "--num-workers", 1).returncode == 0
    return made


def test_resized_and_packed_keep_pixels_labels_parts_and_groups(made: Set) -> None:
    before = open_reader(made.reader, made.folder)
    wide = Image.fromarray(before.read(3)).resize((8, 8), Image.Resampling.BILINEAR)
    for place in (made.small, made.packed):
        after = open_reader(made.reader, place)
        assert list(after.catalog.images) == list(before.catalog.images)
        assert after.classes == before.classes and after.task == before.task
        assert np.array_equal(after.catalog.labels, before.catalog.labels)
        assert all(
            np.array_equal(before.splits()[split], at) for split, at in after.splits().items()
        )
        assert after.catalog.groups == before.catalog.groups
        assert after.read(3).shape == (8, 8, 3)
        assert np.abs(after.read(3).astype(int) - np.asarray(wide)).max() <= 1
    assert is_complete(made.small)
    files = open_reader(made.reader, made.small)
    assert after.array is not None and after.array.shape == (len(files), 8, 8, 3)
    assert all(np.array_equal(files.read(i), after.read(i)) for i in range(len(files)))
    with pytest.raises(DataError, match="was written from the reader"):
        open_reader("nih", made.packed)


def test_the_same_command_goes_on(made: Set, tmp_path: Path) -> None:
    target = tmp_path / "small"
    shutil.copytree(made.small, target)
    expected = digest(target)
    images = sorted((target / "images").rglob("*.png"))
    images[0].unlink()
    images[1].write_bytes(b"damaged and of another size")
    repaired = resize_folder(made.folder, target, reader=made.reader, **SMALL)
    assert repaired["written"] == 2 and repaired["skipped"] == repaired["images"] - 2
    assert digest(target) == expected
    note = json.loads((target / "prepared.json").read_text())
    (target / "prepared.json").write_text(json.dumps(note | {"complete": False}))
    text = (target / "manifest.csv").read_text().splitlines(keepends=True)
    (target / "manifest.csv").write_text("".join(text[:20]))  # as a kill leaves it
    again = resize_folder(made.folder, target, reader=made.reader, **SMALL)
    assert again["written"] == repaired["images"] - 19
    assert digest(target) == expected


def test_verify_by_the_command(made: Set, tmp_path: Path) -> None:
    for place, more in (
        (made.folder, ("--reader", made.reader)),
        (made.small, ()),
        (made.packed, ()),
    ):
        done = command("verify", place, "--num-workers", 1, *more)
        assert done.returncode == 0, done.stdout
        assert "no problems" in done.stdout
        counted = command("verify", "--quick", place, *more)
        assert counted.returncode == 0, counted.stderr
        assert open_reader(made.reader, made.folder).classes[0] in counted.stdout
    small = tmp_path / "small"
    shutil.copytree(made.small, small)
    first = next(iter(manifest.read_manifest(small).values()))
    Image.new("RGB", (8, 8)).save(small / first.file)
    done = command("verify", small, "--num-workers", 1)
    assert done.returncode == 1 and f"PROBLEM: 1 image is not as {manifest.MANIFEST}" in done.stdout
    pack = ("pack", small, tmp_path / "packed", "--num-workers", 1)
    assert "changed since it was written" in the_line(command(*pack))
    (small / first.file).unlink()
    assert "1 of the" in the_line(command("verify", small))


def test_a_packed_folder_is_no_source(made: Set, tmp_path: Path) -> None:
    for words in (
        ("pack",),
        ("resize", "--size", 4),
        ("resize", "--size", 4, "--reader", made.reader),
    ):
        line = the_line(command(*words, made.packed, tmp_path / "again", "--num-workers", 1))
        assert "is a packed folder" in line and "name the folder it was packed from" in line
        assert not (tmp_path / "again").exists()


def test_an_unreadable_image_is_left_out_with_its_row(tmp_path: Path) -> None:
    generate_imagefolder(tmp_path / "set", images=60, size=16, **QUIET)
    bad = sorted((tmp_path / "set" / "train" / "disc").iterdir())[0]
    bad.write_bytes(b"no image")
    words = ("resize", tmp_path / "set", tmp_path / "small", "--reader", "imagefolder", "--size", 8)
    line = the_line(command(*words, "--num-workers", 1))
    assert f"1 of 60 images were left out, the first is train/disc/{bad.name}" in line
    reader = open_reader("imagefolder", tmp_path / "small")
    assert len(reader) == 59 and f"train/disc/{bad.name}" not in reader.catalog.images
    with (tmp_path / "small" / "rejected.csv").open() as file:
        assert [row["image"] for row in csv.DictReader(file)] == [f"train/disc/{bad.name}"]


@pytest.mark.parametrize("format", ["nih", "imagefolder", "cifar10"])
def test_every_format_by_the_command(tmp_path: Path, format: str) -> None:
    size = () if format == "cifar10" else ("--size", 16)
    words = ("generate", tmp_path / "set", "--layout", format, "--num-images", 60, *size)
    done = command(*words)
    assert done.returncode == 0 and "60 images" in done.stdout, done.stderr
    before = digest(tmp_path / "set")
    assert "0 new" in command(*words).stdout
    assert digest(tmp_path / "set") == before
    assert "contains another synthetic set" in the_line(command(*words, "--seed", 7))
    assert len(open_reader(format, tmp_path / "set")) == 60


def test_sizes_and_numbers_that_make_no_set(tmp_path: Path) -> None:
    for words in (
        ("cifar10", "--num-images", 5),
        ("imagefolder", "--num-images", 5),
        ("nih", "--size", 2),
    ):
        line = the_line(command("generate", tmp_path / "set", "--layout", *words))
        assert "images" in line and not (tmp_path / "set").exists()
    line = the_line(command("generate", tmp_path / "set", "--layout", "cifar10", "--size", 64))
    assert "32 pixels a side" in line
