"""Verifying a folder, and the packed form."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import (
    command,
    digest,
    make_folder,
    of_whole_sets,
    row,
    table_of,
    whole_set,
)

from data_prep import DataError, read_grey, resize_folder
from data_prep.manifest import open_array
from data_prep.packed import pack_folder
from data_prep.readers.nih import finding_counts
from data_prep.verify import Report, verify_folder


def verify(folder: Path) -> Report:
    return verify_folder(folder, progress=False)


def test_a_good_folder(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "set")
    report = verify(folder)
    assert report.ok and (report.images, report.patients, report.checked) == (24, 12, 24)
    done = command("verify", folder)
    assert done.returncode == 0 and "no problems" in done.stdout


def test_every_problem_is_found(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "set")
    images = folder / "images"
    (images / "00000001_000.png").unlink()
    shutil.copy(images / "00000002_000.png", images / "00000099_000.png")
    (images / "00000003_000.png").write_bytes(b"broken")
    shutil.copy(images / "00000004_000.png", images / "00000004_001.png")
    with (folder / "Data_Entry_2017.csv").open("a") as file:
        file.write(row("00000005_007.png", patient=6) + "\n")
    shutil.copy(images / "00000005_000.png", images / "00000005_007.png")
    report = verify(folder)
    problems = "\n".join(report.problems)
    assert "1 image is named in the label file but not there, the first: 00000001_000" in problems
    assert (
        "1 image is there but not named in the list of images, the first: 00000099_000" in problems
    )
    assert "1 image is not readable, the first: 00000003_000.png (cannot be read" in problems
    assert "named after another patient than the label file says" in problems
    assert "00000005_000.png (test) and 00000005_007.png (train)" in problems
    assert "occur with different labels" in problems
    assert len(report.problems) == 6
    assert "2 images occur more than once" in "\n".join(report.notes)
    done = command("verify", folder)
    assert done.returncode == 1 and "6 problems" in done.stdout


def test_one_size_after_resizing(tmp_path: Path) -> None:
    resize_folder(make_folder(tmp_path / "set"), tmp_path / "small", size=8, progress=False)
    assert verify(tmp_path / "small").ok
    odd = make_folder(tmp_path / "odd", size=9) / "images" / "00000001_000.png"
    shutil.copy(odd, tmp_path / "small" / "images")
    changed, size = verify(tmp_path / "small").problems
    assert "1 image is not as manifest.csv describes" in changed
    assert "not of the usual 8 x 8" in size


@of_whole_sets
def test_the_nihs_frequencies(kind: str, tmp_path: Path) -> None:
    folder = whole_set(kind, tmp_path)
    report = verify_folder(folder, decode=False, progress=False)
    assert report.frequencies["here"].to_dict() == finding_counts()
    # The only problem is that the images are not there; names, splits and counts are right.
    assert len(report.problems) == 1 and "112,120 images are named" in report.problems[0]


def test_packed_images_are_the_files(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "set", patients=50)
    pack_folder(folder, tmp_path / "packed", progress=False)
    images, note = open_array(tmp_path / "packed")
    assert images.shape == (100, 16, 16) and images.dtype == np.uint8
    assert isinstance(images, np.memmap) and not images.flags.writeable
    files = table_of(folder)
    assert note["names"] == files["image"].tolist()
    for image, path in zip(images, files["path"], strict=True):
        assert np.array_equal(image, read_grey(path))
    before = digest(tmp_path / "packed")
    done = command("pack", folder, tmp_path / "packed")
    assert done.returncode == 0 and digest(tmp_path / "packed") == before


def test_packing_what_cannot_be_packed(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "set")
    with pytest.raises(DataError, match=r"no packed\.json"):
        open_array(folder)
    odd = make_folder(tmp_path / "odd", size=9) / "images" / "00000003_000.png"
    mixed = tmp_path / "mixed"
    shutil.copytree(folder, mixed)
    shutil.copy(odd, mixed / "images")
    with pytest.raises(DataError, match=r"00000003_000\.png: 9 x 9 pixels"):
        pack_folder(mixed, tmp_path / "packed", progress=False)
    with pytest.raises(DataError, match="packing was interrupted"):
        open_array(tmp_path / "packed")
    assert not list((tmp_path / "packed").glob(".*"))
    with pytest.raises(DataError, match="contains other files"):
        pack_folder(folder, mixed, progress=False)

    pack_folder(folder, tmp_path / "packed", progress=False)
    assert len(open_array(tmp_path / "packed")[0]) == 24
