"""The NIH's label file: read right, fast, and refused with one clear line when it is wrong."""

from __future__ import annotations

import shutil
from itertools import zip_longest
from pathlib import Path

import pytest
from data_prep_tools import (
    HEADER,
    SHARED,
    command,
    make_folder,
    row,
    table_of,
    the_line,
)

from data_prep import FINDINGS, open_reader
from data_prep.readers.nih import finding_counts, keep_rows, parse_label_file
from data_prep.verify import verify_folder


def write(folder: Path, *rows: str, header: str = HEADER) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "Data_Entry_2017.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


IMAGES, PATIENTS, WITHOUT_FINDING = 112_120, 30_805, 60_361
NIH = SHARED / "nih-metadata"
needs_nih = pytest.mark.skipif(not NIH.is_dir(), reason=f"no {NIH} beside the repository")


def as_many_rows(folder: Path) -> Path:
    """A label file without its images, with as many rows, patients and findings as the NIH's."""
    flat = [name for name, count in finding_counts().items() for _ in range(count)]
    found = IMAGES - WITHOUT_FINDING  # fewer than findings, more than any of them has
    cells = [f"{a}|{b}" if b else a for a, b in zip_longest(flat[:found], flat[found:])]
    cells += ["No Finding"] * WITHOUT_FINDING
    lines, last, followup = list[str](), 0, 0
    for number, cell in enumerate(cells):
        patient = number * PATIENTS // IMAGES + 1
        last, followup = patient, followup + 1 if patient == last else 0
        lines.append(row(f"{patient:08d}_{followup:03d}.png", cell, followup, patient))
    return write(folder, *lines).parent


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=needs_nih)])
def test_the_whole_nih_file_is_right(is_real: bool, tmp_path: Path) -> None:
    folder = NIH if is_real else as_many_rows(tmp_path)
    reader = open_reader("nih", folder, check_images=False)
    table = reader.table()
    assert len(table) == IMAGES and table["group"].nunique() == PATIENTS
    assert int((table[list(FINDINGS)].sum(axis=1) == 0).sum()) == WITHOUT_FINDING
    patients = [table["group"].iloc[at].nunique() for at in reader.splits(seed=0).values()]
    assert patients == [21564, 3080, 6161]
    report = verify_folder(folder, decode=False, progress=False)
    assert report.frequencies["here"].to_dict() == finding_counts()
    # The only problem is that the images are not there; names, splits and counts are right.
    assert len(report.problems) == 1 and "112,120 images are named" in report.problems[0]


@pytest.mark.parametrize(
    ("labels", "images"),
    [
        ("sample_labels.csv", "sample/images"),
        ("sample_labels.csv", "images"),
        ("Data_Entry_2017.csv", "images-224/images-224"),
    ],
)
def test_reads_kaggles_copies(tmp_path: Path, labels: str, images: str) -> None:
    folder = make_folder(tmp_path / "set")
    (folder / "images").rename(tmp_path / "moved")
    (folder / images).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "moved").rename(folder / images)
    (folder / "Data_Entry_2017.csv").rename(folder / labels)
    assert all(Path(path).is_file() for path in table_of(folder)["path"])
    small = tmp_path / "small"
    assert command("resize", folder, small, "--size", 8, "--num-workers", 1).returncode == 0
    assert command("verify", small, "--num-workers", 1).returncode == 0
    assert len(table_of(small)) == 24


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_reads_what_excel_and_pandas_save(tmp_path: Path, separator: str, encoding: str) -> None:
    folder = make_folder(tmp_path / "set")
    expected = table_of(folder)
    file = folder / "Data_Entry_2017.csv"
    header, *rows = file.read_text().replace(",", separator).splitlines()
    rows = [
        row.replace(f"{separator}58", f"{'.' if separator == ',' else ','}0{separator}58")
        for row in rows
    ]
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    file.write_bytes((mark + "\r\n".join([header, *rows]) + "\r\n").encode(encoding))
    assert table_of(folder).equals(expected)
    file.write_bytes(keep_rows(file, {"00000002_001.png"}))
    assert table_of(folder)["image"].tolist() == ["00000002_001.png"]


def test_zip_archives_are_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "archive.zip").write_bytes(b"PK")
    line = the_line(command("nih", tmp_path / "small", "--archives", tmp_path))
    assert "archive.zip" in line and "unzip it, then run 'data-prep resize FOLDER TARGET'" in line
    line = the_line(command("resize", tmp_path / "archive.zip", tmp_path / "small"))
    assert "is not a folder (unpack an archive)" in line


@pytest.mark.parametrize(
    "header",
    [
        HEADER + ",",  # the NIH's first release
        HEADER.replace("OriginalImage[Width,Height]", '"OriginalImage[Width,Height]"'),
    ],
)
def test_header_variants(tmp_path: Path, header: str) -> None:
    file = write(tmp_path, row("a.png", "Mass"), row("b.png"), header=header)
    assert parse_label_file(file).findings[:, FINDINGS.index("Mass")].tolist() == [1, 0]


def test_folder_errors_exit_2(tmp_path: Path) -> None:
    assert "does not exist" in the_line(command("verify", "--quick", tmp_path / "nowhere"))
    assert "no label file" in the_line(command("verify", "--quick", tmp_path))
    folder = make_folder(tmp_path / "set")
    image = folder / "images" / "00000003_000.png"
    image.unlink()
    line = the_line(command("resize", folder, tmp_path / "small"))
    assert "1 of the 24 images" in line and image.name in line and "--skip-missing" in line
    assert command("resize", folder, tmp_path / "other", "--skip-missing").returncode == 0
    assert len(table_of(tmp_path / "other")) == 23  # the row without image is left out
    shutil.rmtree(folder / "images")
    line = the_line(command("resize", folder, tmp_path / "small", "--skip-missing"))
    assert "24 of the 24 images" in line
