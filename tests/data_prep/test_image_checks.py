"""What verify sees by looking: damage, packed folders, and a picture under two patients."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import command, make_folder, row, table_of, the_line
from PIL import Image

from data_prep import FINDINGS, DataError, open_reader, resize_folder
from data_prep.manifest import open_array
from data_prep.packed import pack_folder

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


def one_of_each(folder: Path) -> tuple[str, str]:
    """An image of the training part and one of the test part."""
    reader = open_reader("nih", folder, seed=0)
    parts = reader.parts()
    return reader.catalog.images[parts["train"][0]], reader.catalog.images[parts["test"][0]]


def leak(tmp_path: Path) -> Path:
    """A folder where an image of the test part is one of the training part."""
    folder = make_folder(tmp_path / "leaky", patients=20)
    train, test = one_of_each(folder)
    shutil.copy(folder / "images" / train, folder / "images" / test)
    table = folder / "Data_Entry_2017.csv"
    findings = table_of(folder).set_index("image").loc[train, list(FINDINGS)]
    names = "|".join(findings.index[findings == 1]) or "No Finding"
    lines = [
        row(test, names, patient=int(test[:8])) if line.startswith(test) else line
        for line in table.read_text().splitlines()
    ]
    table.write_text("\n".join(lines) + "\n")
    return folder


def test_a_picture_in_train_and_test_is_a_leak(tmp_path: Path) -> None:
    folder = leak(tmp_path)
    train, test = one_of_each(tmp_path / "leaky")
    done = command("verify", folder)
    assert done.returncode == 1
    assert "PROBLEM: the split by seed 0 leaks: 1 image occurs in two parts" in done.stdout
    assert f"{train} (train)" in done.stdout and f"{test} (test)" in done.stdout


def test_a_picture_with_two_labels_is_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for name in ("benign", "malignant"):
        for at in range(20):
            (folder / name).mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng([at, len(name)]).integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{at}.png")
    shutil.copy(folder / "benign" / "1.png", folder / "malignant" / "copy.png")
    resize_folder(folder, tmp_path / "small", size=8, progress=False, reader="imagefolder")
    said = "benign/1.png (benign) and malignant/copy.png (malignant)"
    for place, *words in ((folder, "--reader", "imagefolder"), (tmp_path / "small",)):
        done = command("verify", place, *words)
        assert done.returncode == 1 and said in done.stdout


@pytest.mark.parametrize(("parts", "code"), [(("train", "val", "test"), 1), (("train",), 0)])
def test_patients_that_paths_name_are_said(
    tmp_path: Path, parts: tuple[str, ...], code: int
) -> None:
    """In two published parts they are a problem; a split by seed separates nothing it knows of."""
    for part in parts:
        for at in range(24):
            place = tmp_path / "in" / part / "ab"[at % 2] / f"patient{at:03d}_{part}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng([at, len(part)]).integers(0, 256, (8, 8), np.uint8)
            Image.fromarray(pixels).save(place)
    done = command("verify", tmp_path / "in", "--reader", "imagefolder")
    assert done.returncode == code
    assert ("24 of them in two parts" in done.stdout) == bool(code)
    assert "every image is its own group" in done.stdout
