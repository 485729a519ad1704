"""CIFAR-10, packed and unpacked: the same pixels."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_prep import open_reader
from data_prep.synthetic_shapes import generate_cifar10


@pytest.fixture(name="binary", scope="module")
def binary_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("binary")
    generate_cifar10(folder, images=120, progress=False)
    return folder


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
