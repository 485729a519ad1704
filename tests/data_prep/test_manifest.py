"""The manifest: what is no longer what it was is noticed, and what was promised is on the disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from data_prep_server import Server, fetch, publish, server_fixture
from data_prep_tools import command, digest, make_folder, quiet, table_of, the_line
from PIL import Image

import data_prep.files
from data_prep import DataError
from data_prep.manifest import read_manifest

__all__ = ["server_fixture"]

IMAGE = "00000007_001.png"


def repaint(file: Path, seed: int = 0) -> None:
    size = Image.open(file).size
    pixels = np.random.default_rng(seed).integers(0, 256, size[::-1], dtype=np.uint8)
    Image.fromarray(pixels).save(file)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "set")


@pytest.fixture
def small(tmp_path: Path, source: Path) -> Path:
    quiet(source, tmp_path / "small")
    return tmp_path / "small"


def same_as_new(source: Path, small: Path) -> bool:
    """Whether a folder is, to the byte, what one call in an empty place makes."""
    new = small.parent / "new"
    quiet(source, new)
    return digest(small) == digest(new)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_replaced_source_image_is_made_again(source: Path, small: Path, hidden: bool) -> None:
    file = source / "images" / IMAGE
    before = file.stat()
    repaint(file)
    if hidden:  # as many bytes, and the time of the old one
        file.write_bytes(file.read_bytes()[: before.st_size].ljust(before.st_size, b"\0"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert quiet(source, small)["written"] == 1
    assert same_as_new(source, small)


def test_deleted_images_are_made_again(source: Path, small: Path) -> None:
    before = digest(small)
    for file in sorted((small / "images").iterdir())[14:]:
        file.unlink()
    (small / "images" / IMAGE).write_bytes(b"cut")
    again = quiet(source, small)
    assert (again["written"], again["skipped"]) == (11, 13)
    assert digest(small) == before


def test_a_folder_that_is_not_complete_is_looked_at_byte_for_byte(
    source: Path, small: Path
) -> None:
    before = digest(small)
    note = small / "prepared.json"
    note.write_text(note.read_text().replace("true", "false"))
    images = sorted((small / "images").iterdir())
    images[0].write_bytes(b"")  # what a power cut leaves
    images[1].write_bytes(bytes(images[1].stat().st_size))
    with (small / "manifest.csv").open("r+b") as file:
        file.truncate(file.seek(-70, os.SEEK_END))  # in the middle of the last row
    assert quiet(source, small)["written"] == 3
    assert digest(small) == before


def test_another_source_is_refused(tmp_path: Path, source: Path, small: Path) -> None:
    before = digest(small)
    fewer = make_folder(tmp_path / "fewer", patients=11)
    line = the_line(command("resize", fewer, small, "--size", 8))
    assert "has 2 images that" in line and "00000012_000.png" in line and "another folder" in line
    assert digest(small) == before


def test_labels_that_were_changed_are_taken_over(source: Path, small: Path) -> None:
    labels = source / "Data_Entry_2017.csv"
    labels.write_text(labels.read_text().replace("No Finding", "Hernia"))
    assert quiet(source, small)["written"] == 0
    assert (small / labels.name).read_bytes() == labels.read_bytes()
    labels.rename(labels.with_name("Data_Entry_2017_v2020.csv"))
    quiet(source, small)
    assert same_as_new(source, small)


def test_an_image_that_can_no_longer_be_read_goes(source: Path, small: Path) -> None:
    (source / "images" / IMAGE).write_bytes(b"broken")
    assert [name for name, _ in quiet(source, small)["rejected"]] == [IMAGE]
    assert not (small / "images" / IMAGE).exists()
    assert IMAGE not in set(table_of(small)["image"])
    assert "cannot be read" in read_manifest(small)[IMAGE].problem
    assert same_as_new(source, small)


@pytest.mark.parametrize(
    ("name", "says"), [("prepared.json", "damaged"), ("manifest.csv", "row 25: damaged")]
)
def test_removing_a_damaged_file_leads_on(source: Path, small: Path, name: str, says: str) -> None:
    before = digest(small)
    file = small / name
    file.write_bytes(file.read_bytes()[:-70])
    line = the_line(command("resize", source, small, "--size", 8))
    assert says in line and "remove it and run again" in line
    file.unlink()
    assert quiet(source, small)["written"] == 24
    assert digest(small) == before


def test_linked_subfolders_are_read_once(tmp_path: Path) -> None:
    grey = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    source, elsewhere = tmp_path / "pictures", tmp_path / "elsewhere"
    for folder in (source / "b", elsewhere / "deep"):
        folder.mkdir(parents=True)
    for file in (source / "b" / "x.png", elsewhere / "y.png", elsewhere / "deep" / "z.png"):
        grey.save(file)
    (source / "a-link-to-b").symlink_to("b")
    (source / "away").symlink_to(elsewhere)
    (elsewhere / "deep" / "back").symlink_to(source)
    (source / "nowhere").symlink_to(tmp_path / "gone")
    (source / "output").symlink_to(tmp_path / "small")
    assert quiet(source, tmp_path / "small")["images"] == 3
    assert set(read_manifest(tmp_path / "small")) == {"away/deep/z.png", "away/y.png", "b/x.png"}
    assert quiet(source, tmp_path / "small")["written"] == 0


def test_an_archive_is_removed_when_its_images_are_on_the_disk(
    source: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[int, bool]] = []

    def sync(folder: Path) -> None:
        done = json.loads((folder / "prepared.json").read_text())["archives"]
        now = f"images_{len(done) + 1:03d}.tar.gz"
        steps.append((len(done), (folder / ".fetching" / now).exists()))
        assert not any((folder / ".fetching" / name).exists() for name in done)

    monkeypatch.setattr(data_prep.files, "sync_filesystem", sync)
    fetch(publish(server.folder, source), server, tmp_path / "small")
    assert steps == [(0, True), (1, True), (2, True), (3, False)]


def test_images_gone_from_an_nih_folder_are_fetched_again(
    source: Path, tmp_path: Path, server: Server
) -> None:
    listing = publish(server.folder, source)
    fetch(listing, server, tmp_path / "small")
    before = digest(tmp_path / "small")
    (tmp_path / "small" / "images" / IMAGE).unlink()
    archive = read_manifest(tmp_path / "small")[IMAGE].source
    server.asked.clear()
    assert fetch(listing, server, tmp_path / "small")["written"] == 1
    assert [path for path, _ in server.asked] == ["/Data_Entry_2017_v2020.csv", f"/{archive}"]
    assert digest(tmp_path / "small") == before
    (tmp_path / "small" / "manifest.csv").unlink()
    with pytest.raises(DataError, match=r"use the folder as it is, or remove it and run again"):
        fetch(listing, server, tmp_path / "small")
