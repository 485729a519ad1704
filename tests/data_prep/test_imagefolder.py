"""A folder a class, and ImageNet's tar of tars, of which nothing is ever unpacked."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import command, the_line
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
    assert done.returncode == 0 and "2 grey images" in done.stdout and "note" not in done.stderr
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
    assert says in command("stats", *words).stderr
    assert says in command("verify", *words).stdout
    assert says in command("resize", *words, tmp_path / "out", "--size", 8).stderr
    assert says in command("resize", tmp_path / "in", tmp_path / "plain", "--size", 8).stderr


def test_a_class_of_files_of_another_kind_is_told_by_ending(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png")
    (tmp_path / "b").mkdir()
    for at in range(12):
        (tmp_path / "b" / f"{at}.heic{at}").write_bytes(b"")
    with pytest.raises(DataError, match=r"b: no image .* \(passed over: 1 \.heic.*, 3 others\)"):
        imagefolder.catalog(tmp_path)
    words = ("resize", tmp_path / "b", tmp_path / "out")
    assert "no image (.png, " in (line := the_line(command(*words))) and ".heic0" in line


def jpeg(level: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (20, 10), (level, 128, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


def tar(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, data in files.items():
            header = tarfile.TarInfo(name.replace("__", "."))
            header.size = len(data)
            out.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


def test_the_tar_of_tars_is_read_where_it_lies(tmp_path: Path) -> None:
    cats = tar(n2_1__JPEG=jpeg(10), n2_0__JPEG=jpeg(20), readme__txt=b"hello")
    dogs = tar(n1_0__JPEG=jpeg(200))
    (tmp_path / imagefolder.ARCHIVE).write_bytes(tar(n2__tar=cats, n1__tar=dogs))
    before = sorted(tmp_path.iterdir())
    reader = open_reader("imagefolder", tmp_path)
    assert reader.classes == ("n1", "n2")
    assert list(reader.catalog.images) == ["n1/n1_0.JPEG", "n2/n2_0.JPEG", "n2/n2_1.JPEG"]
    assert reader.targets.tolist() == [0, 1, 1]
    for image, level in enumerate((200, 20, 10)):
        expected = np.asarray(Image.open(io.BytesIO(jpeg(level))))
        assert np.abs(reader.read(image).astype(int) - expected).max() <= 1
    assert sorted(tmp_path.iterdir()) == before
    by_file = open_reader("imagefolder", tmp_path / imagefolder.ARCHIVE)
    assert by_file.catalog.sources == reader.catalog.sources


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_an_archive_that_was_written_again(tmp_path: Path, format: int) -> None:
    """As Python's tarfile writes a folder: with times and long names in headers of their own."""
    long = f"{'x' * 150}.JPEG"
    for at, name in enumerate(("n1/n1_0.JPEG", f"n1/{long}", "n2/n2_0.JPEG")):
        (tmp_path / "classes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "classes" / name).write_bytes(jpeg(at))
    with tarfile.open(tmp_path / imagefolder.ARCHIVE, "w", format=format) as whole:
        for name in ("n1", "n2"):
            with tarfile.open(tmp_path / f"{name}.tar", "w", format=format) as out:
                out.pax_headers = {"comment": "of all members"} if name == "n1" else {}
                out.add(tmp_path / "classes" / name, name if name == "n1" else ".")
            whole.add(tmp_path / f"{name}.tar", f"{name}.tar")
    reader = open_reader("imagefolder", tmp_path)
    assert list(reader.catalog.images) == ["n1/n1_0.JPEG", f"n1/{long}", "n2/n2_0.JPEG"]
    assert [reader.read(at).shape for at in range(3)] == [(10, 20, 3)] * 3
