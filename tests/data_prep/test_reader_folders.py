"""From every published format to small images: resized, resumed, packed, verified."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import MAKERS, QUIET, command, digest, make_table, the_line
from PIL import Image

from data_prep import DataError, is_complete, manifest, open_reader, resize_folder
from data_prep.catalog import MISSING, UNCERTAIN
from data_prep.packed import pack_folder
from data_prep.synthetic_shapes import generate_imagefolder

FORMATS = ("table", "imagefolder", "cifar10")


@pytest.fixture(name="source", scope="module", params=FORMATS)
def source_fixture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param) / "set"
    MAKERS[request.param](folder)
    return request.param, folder


def test_resize_keeps_pixels_labels_parts_and_groups(
    source: tuple[str, Path], tmp_path: Path
) -> None:
    reader, folder = source
    before = open_reader(reader, folder)
    resize_folder(folder, tmp_path / "small", size=8, reader=reader, channels=3, **QUIET)
    after = open_reader(reader, tmp_path / "small")
    assert list(after.catalog.images) == list(before.catalog.images)
    assert after.classes == before.classes and after.task == before.task
    assert np.array_equal(after.catalog.labels, before.catalog.labels)
    assert all(np.array_equal(before.parts()[part], at) for part, at in after.parts().items())
    assert after.catalog.groups == before.catalog.groups
    small = after.read(3)
    wide = Image.fromarray(before.read(3)).resize((8, 8), Image.Resampling.BILINEAR)
    assert small.shape == (8, 8, 3)
    assert np.abs(small.astype(int) - np.asarray(wide)).max() <= 1
    assert is_complete(tmp_path / "small")


def test_the_same_command_goes_on(source: tuple[str, Path], tmp_path: Path) -> None:
    reader, folder = source
    target = tmp_path / "small"
    options = {"size": 8, "reader": reader, "channels": 3, **QUIET}
    whole = resize_folder(folder, target, **options)
    expected = digest(target)
    assert resize_folder(folder, target, **options)["written"] == 0
    images = sorted((target / "images").rglob("*.png"))
    images[0].unlink()
    images[1].write_bytes(b"damaged and of another size")
    mended = resize_folder(folder, target, **options)
    assert mended["written"] == 2 and mended["skipped"] == whole["images"] - 2
    assert digest(target) == expected
    note = json.loads((target / "prepared.json").read_text())
    (target / "prepared.json").write_text(json.dumps(note | {"complete": False}))
    text = (target / "manifest.csv").read_text().splitlines(keepends=True)
    (target / "manifest.csv").write_text("".join(text[:20]))  # as a kill leaves it
    assert resize_folder(folder, target, **options)["written"] == whole["images"] - 19
    assert digest(target) == expected


def test_a_packed_folder_gives_the_same(source: tuple[str, Path], tmp_path: Path) -> None:
    reader, folder = source
    resize_folder(folder, tmp_path / "small", size=8, reader=reader, channels=3, **QUIET)
    pack_folder(tmp_path / "small", tmp_path / "packed", **QUIET)
    files, packed = (open_reader(reader, tmp_path / name) for name in ("small", "packed"))
    assert packed.array is not None and packed.array.shape == (len(files), 8, 8, 3)
    assert all(np.array_equal(files.read(i), packed.read(i)) for i in range(len(files)))
    assert np.array_equal(files.targets, packed.targets)
    assert all(np.array_equal(at, packed.parts()[part]) for part, at in files.parts().items())
    with pytest.raises(DataError, match="was written from the reader"):
        open_reader("nih", tmp_path / "packed")


def test_verify_and_catalog_by_the_command(source: tuple[str, Path], tmp_path: Path) -> None:
    reader, folder = source
    small, packed = tmp_path / "small", tmp_path / "packed"
    words = ("--reader", reader)
    done = command("resize", folder, small, "--size", 8, "--rgb", "--num-workers", 1, *words)
    assert done.returncode == 0 and "RGB images" in done.stdout
    assert command("pack", small, packed, "--num-workers", 1).returncode == 0
    for place, more in ((folder, words), (small, ()), (packed, ())):
        done = command("verify", place, "--num-workers", 1, *more)
        assert done.returncode == 0, done.stdout
        assert "no problems" in done.stdout
        counted = command("verify", "--quick", place, *more)
        assert counted.returncode == 0, counted.stderr
        assert open_reader(reader, folder).classes[0] in counted.stdout
    first = next(iter(manifest.read_manifest(small).values()))
    Image.new("RGB", (8, 8)).save(small / first.file)
    done = command("verify", small, "--num-workers", 1)
    assert done.returncode == 1 and f"PROBLEM: 1 image is not as {manifest.MANIFEST}" in done.stdout
    assert "changed since it was written" in the_line(
        command("pack", small, tmp_path / "p2", "--num-workers", 1)
    )
    (small / first.file).unlink()
    assert "1 of the" in the_line(command("verify", small))


def test_a_packed_folder_is_no_source(source: tuple[str, Path], tmp_path: Path) -> None:
    reader, folder = source
    resize_folder(folder, tmp_path / "small", size=8, reader=reader, channels=3, **QUIET)
    pack_folder(tmp_path / "small", tmp_path / "packed", **QUIET)
    for words in (
        ("pack", tmp_path / "packed", tmp_path / "again"),
        ("resize", tmp_path / "packed", tmp_path / "again", "--size", 4),
        ("resize", tmp_path / "packed", tmp_path / "again", "--size", 4, "--reader", reader),
    ):
        line = the_line(command(*words, "--num-workers", 1))
        assert "is a packed folder" in line and "name the folder it was packed from" in line
        assert not (tmp_path / "again").exists()


def test_uncertain_and_missing_labels_are_still_a_recipes_to_choose(tmp_path: Path) -> None:
    make_table(tmp_path / "set", images=80, size=16)
    resize_folder(tmp_path / "set", tmp_path / "small", size=8, reader="table", **QUIET)
    labels = open_reader("table", tmp_path / "small").catalog.labels
    assert {MISSING, UNCERTAIN, 0, 1} == set(labels.ravel().tolist())
    sums = {}
    for uncertain in ("zero", "one", "ignore"):
        for folder in ("set", "small"):
            reader = open_reader("table", tmp_path / folder, uncertain=uncertain, missing="zero")
            sums[folder, uncertain] = (len(reader), int(reader.targets.sum()))
        assert sums["set", uncertain] == sums["small", uncertain]
    assert sums["small", "one"][1] > sums["small", "zero"][1]
    assert sums["small", "ignore"][0] < sums["small", "zero"][0]


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


# --- Generated sets ----------------------------------------------------------------------------


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
    reader = {"imagenet": "imagefolder"}.get(format, format)
    assert len(open_reader(reader, tmp_path / "set")) == 60


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
