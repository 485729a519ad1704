"""Verifying a folder, and the packed form."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import command, digest, lay, make_folder, row, table_of, the_line

from data_prep import DataError, read_grey, resize_folder
from data_prep.manifest import open_array
from data_prep.packed import pack_folder
from data_prep.verify import Report, verify_folder


def verify(folder: Path) -> Report:
    return verify_folder(folder, progress=False)


def test_every_problem_is_found(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "set")
    report = verify(folder)
    assert report.ok and (report.images, report.patients, report.checked) == (24, 12, 24)
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
    assert "the split by seed 0 leaks: 1 image occurs in two splits" in problems
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


IMAGE = "00000007_001.png"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    source = make_folder(tmp_path / "set", patients=20)
    resize_folder(source, tmp_path / "small", size=8, progress=False)
    return tmp_path / "small"


@pytest.fixture
def packed(tmp_path: Path, small: Path) -> Path:
    pack_folder(small, tmp_path / "packed", progress=False)
    return tmp_path / "packed"


def test_without_decoding_sizes_are_looked_at(small: Path) -> None:
    (small / "images" / IMAGE).write_bytes(b"")
    done = command("verify", small, "--quick")
    assert done.returncode == 1 and f"manifest.csv describes, the first: {IMAGE}" in done.stdout


def test_a_folder_that_is_not_complete(tmp_path: Path, small: Path) -> None:
    note = small / "prepared.json"
    note.write_text(note.read_text().replace("true", "false"))
    done = command("verify", small)
    assert done.returncode == 1 and "PROBLEM: not complete" in done.stdout
    line = the_line(command("pack", small, tmp_path / "packed"))
    assert "small is not complete: run the command that wrote it again" in line
    assert not (tmp_path / "packed").exists()


def test_a_packed_folder_is_looked_at_too(packed: Path) -> None:
    assert "40 decoded" in command("verify", packed).stdout
    file = packed / "images.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    done = command("verify", packed)
    assert done.returncode == 1 and "1 image is not as manifest.csv describes" in done.stdout
    assert "00000020_001.png" in done.stdout


def test_an_array_that_is_not_the_notes(packed: Path) -> None:
    file = packed / "images.npy"
    images = np.load(file)
    for other in (images[:-1], images.astype(np.int8), np.asfortranarray(images), images[..., 0]):
        np.save(file, other)
        with pytest.raises(DataError, match=r"not the images that packed\.json describes"):
            open_array(packed)
    file.unlink()
    with pytest.raises(DataError, match="No such file"):
        open_array(packed)


def test_a_picture_with_two_labels_is_a_problem(tmp_path: Path) -> None:
    kinds = ("benign", "malignant")
    folder = lay(tmp_path / "in", *(f"{kind}/{at}.png" for kind in kinds for at in range(20)))
    shutil.copy(folder / "benign" / "1.png", folder / "malignant" / "copy.png")
    resize_folder(folder, tmp_path / "small", size=8, progress=False, reader="imagefolder")
    said = "benign/1.png (benign) and malignant/copy.png (malignant)"
    for place, *words in ((folder, "--reader", "imagefolder"), (tmp_path / "small",)):
        done = command("verify", place, *words)
        assert done.returncode == 1 and said in done.stdout


@pytest.mark.parametrize(("splits", "code"), [(("train", "val", "test"), 1), (("train",), 0)])
def test_patients_that_paths_name_are_said(
    tmp_path: Path, splits: tuple[str, ...], code: int
) -> None:
    """In two published splits they are a problem; a split by seed separates nothing it knows of."""
    people = [f"{'ab'[at % 2]}/patient{at:03d}" for at in range(24)]
    folder = lay(tmp_path / "in", *(f"{split}/{who}.png" for split in splits for who in people))
    done = command("verify", folder, "--reader", "imagefolder")
    assert done.returncode == code
    assert ("24 of them in two splits" in done.stdout) == bool(code)
    assert "every image is its own group" in done.stdout
