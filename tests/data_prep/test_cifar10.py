"""CIFAR-10, packed and unpacked: the same pixels."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from data_prep import open_reader
from data_prep.readers import load_catalog
from data_prep.synthetic_shapes import generate_cifar10


@pytest.fixture(name="binary", scope="module")
def binary_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("binary")
    generate_cifar10(folder, images=120, progress=False)
    return folder


def archive(folder: Path, file: Path, inside: str) -> Path:
    with tarfile.open(file, "w:gz") as out:
        out.add(folder, inside)
    return file


def test_archives_are_read_as_they_come(binary: Path, tmp_path: Path) -> None:
    one = open_reader("cifar10", binary)
    archive(binary, tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin")
    for place in (tmp_path / "cifar-10-binary.tar.gz", tmp_path):
        other = open_reader("cifar10", place)
        assert one.array is not None and other.array is not None
        assert one.array.tobytes() == other.array.tobytes(), place
        assert np.array_equal(one.targets, other.targets)


def test_the_planes_are_red_green_blue(binary: Path) -> None:
    record = (binary / "data_batch_2.bin").read_bytes()[3073 : 2 * 3073]
    reader = open_reader("cifar10", binary)
    image = reader.read(21)  # 20 in the first batch
    assert reader.targets[21] == record[0]
    assert image[0, 0].tolist() == [record[1], record[1 + 1024], record[1 + 2048]]
    assert image[3, 7, 1] == record[1 + 1024 + 3 * 32 + 7]


def test_parts_are_as_published(binary: Path) -> None:
    reader = open_reader("cifar10", binary, valid=0.1)
    parts = reader.parts()
    assert parts["test"].tolist() == list(range(100, 120))
    assert len(parts["valid"]) == 10 and len(parts["train"]) == 90


def test_a_batch_that_changes_is_read_anew(binary: Path, tmp_path: Path) -> None:
    for file in binary.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    first = load_catalog("cifar10", tmp_path)[1]
    assert first is not None and load_catalog("cifar10", tmp_path)[1] is not None
    data = bytearray((tmp_path / "data_batch_1.bin").read_bytes())
    data[1] ^= 255
    (tmp_path / "data_batch_1.bin").write_bytes(data)
    again = load_catalog("cifar10", tmp_path)[1]
    assert again is not None and again[0, 0, 0, 0] == first[0, 0, 0, 0] ^ 255
