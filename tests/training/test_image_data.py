"""Images of every reader, as a run sees them."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import cloudpickle
import data_prep_tools
import numpy as np
import pytest
from PIL import Image

import data_prep
from data_prep import synthetic_shapes
from data_prep.errors import DataError
from helpers import paths
from helpers.errors import UserError
from helpers.recipe import lookup
from helpers.training import image_data, image_folders, parameters
from helpers.training.image_data import Data

NIH_AS_TABLE = f"""
[data]
reader = "table"
color_mode = "grayscale"
image_size = 264
crop = 224
[data.table]
file = "Data_Entry_2017.csv"
path = "images/{{Image Index}}"
name = "Image Index"
group = "Patient ID"
labels = "Finding Labels"
no_finding = ["No Finding"]
findings = {list(data_prep.FINDINGS)}
"""

READER = """
import numpy as np


class Reader:
    classes = ("red", "green", "blue", "black", "white")
    shades = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)], np.uint8)

    def __init__(self, folder=None):
        self.targets = np.arange(300) % 5

    def splits(self):
        order = np.random.default_rng(0).permutation(300)
        return {"train": order[:200], "valid": order[200:240], "test": order[240:]}

    def read(self, i):
        noise = np.random.default_rng(i).integers(0, 40, (40, 36, 3), dtype=np.uint8)
        return np.maximum(noise, np.minimum(self.shades[self.targets[i]], 215))
"""
READER_OF_FINDINGS = READER.replace(
    "np.arange(300) % 5", "np.eye(5, dtype=np.uint8)[np.arange(300) % 5]"
).replace("self.shades[self.targets[i]]", "self.shades[i % 5]")

OWN = """
[data]
reader = "mine.py:Reader"
[model]
network = "resnet44"
[train]
task = "multiclass"
batch_size = 8
"""


def recipe_of(folder: Path, text: str, code: str = READER) -> str:
    (folder / "mine.py").write_text(code)
    if "[model]" not in text:
        text += '\n[model]\nnetwork = "densenet121"\n'
    (folder / "mine.toml").write_text(text)
    return str(folder / "mine.toml")


def load(recipe: str, data: str | Path = "auto", **given: Any) -> Data:
    setup = parameters.resolve("N", recipe=recipe, data=data, devices=1, **given)
    return image_data.load_data(setup.recipe.recipe, setup.data)


@pytest.fixture
def small_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Generated sets of few images, in a folder of their own."""
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    few: dict[str, tuple[Callable[..., object], dict[str, int]]] = {
        "nih": (data_prep.generate_nih, {"images": 60, "size": 96}),
        "nih, small": (data_prep.generate_nih, {"images": 60, "size": 96}),
        "imagefolder": (synthetic_shapes.generate_imagefolder, {"images": 120, "size": 72}),
        "cifar10": (synthetic_shapes.generate_cifar10, {"images": 120}),
    }
    for reader, (generate, how) in few.items():
        make = functools.partial(generate, progress=False, **how)
        stand_in = image_folders.STAND_INS[reader]
        changed = image_folders.StandIn(stand_in.name, make, stand_in.resize)
        monkeypatch.setitem(image_folders.STAND_INS, reader, changed)
    yield tmp_path / "data"


@data_prep_tools.of_samples
def test_the_same_xrays_through_nih_and_through_table(kind: str, tmp_path: Path) -> None:
    folder, count = data_prep_tools.sample_of(kind, tmp_path)
    nih = load("demo", folder)
    table = load(recipe_of(tmp_path, NIH_AS_TABLE), folder)
    assert sum(len(split) for split in (nih.train, nih.valid, nih.test)) == count
    assert nih.recipe.crop == table.recipe.crop == 54
    assert table.classes == nih.classes and table.sha256 == nih.sha256
    for split in ("train", "valid", "test"):
        one, other = getattr(nih, split), getattr(table, split)
        assert list(one["image"]) == list(other["image"])
        assert np.array_equal(nih.targets(one), table.targets(other))
        for row, same in zip(one["row"], other["row"], strict=True):
            assert np.array_equal(nih.read(row), table.read(same))


def test_own_rgb_reader_of_five_classes(tmp_path: Path) -> None:
    images = load(recipe_of(tmp_path, OWN))
    assert (images.recipe.task, images.recipe.planes, images.format) == ("multiclass", 3, "own")
    assert images.classes == ("red", "green", "blue", "black", "white")
    assert (images.recipe.image_size, images.recipe.crop) == (36, 36)
    assert [len(split) for split in (images.train, images.valid, images.test)] == [200, 40, 60]
    targets = images.targets(images.train)
    assert targets.dtype == np.int64 and targets.shape == (200,)
    for row, target in zip(images.train["row"][:20], targets, strict=False):
        assert row % 5 == target
        assert images.read(row).shape == (40, 36, 3) and images.read(row).dtype == np.uint8
    section = images.as_record()
    assert section["folder"] == "mine.py:Reader" and section["kind"] == "real"
    copy = cloudpickle.loads(cloudpickle.dumps(images))  # as it goes to other processes
    assert np.array_equal(copy.read(row), images.read(row))


def test_own_grey_reader_of_findings(tmp_path: Path) -> None:
    text = OWN.replace('task = "multiclass"', 'task = "multilabel"')
    text = text.replace("[model]", 'color_mode = "grayscale"\n[model]')
    images = load(recipe_of(tmp_path, text, READER_OF_FINDINGS))
    assert images.read(7).shape == (40, 36, 1)
    assert isinstance(images.reader, image_data.OwnImages)
    with Image.fromarray(images.reader.own.read(7)) as colour:
        assert np.array_equal(images.read(7)[..., 0], np.asarray(colour.convert("L")))
    assert images.targets(images.valid).dtype == np.float32
    assert images.targets(images.valid).sum(axis=1).tolist() == [1.0] * 40


def test_cifar10_is_in_memory_and_not_sent_to_other_processes(small_sets: Path) -> None:
    images = load("resnet44-cifar10", batch_size=8)
    assert images.folder == small_sets / "demo-cifar10-1"
    assert (images.format, images.recipe.task, len(images.classes)) == ("memory", "multiclass", 10)
    assert (images.recipe.image_size, images.recipe.crop) == (32, 16)
    row = int(images.test["row"].iloc[5])
    assert images.read(row).base is not None, "a view, no copy"
    sent = cloudpickle.dumps(images)
    assert len(sent) < 120 * 32 * 32 * 3 / 4
    image_data._last.clear()
    copy = cloudpickle.loads(sent)
    assert np.array_equal(copy.read(row), images.read(row)) and copy.format == "memory"


def test_imagefolder_is_prepared_as_jpegs_in_the_recipes_size(small_sets: Path) -> None:
    images = load("resnet50-imagenet", batch_size=4)
    assert images.folder == small_sets / "demo-imagefolder-1-40-rgb"
    assert (images.format, images.recipe.image_size, images.recipe.crop) == ("jpg", 40, 32)
    row = images.train.iloc[7]
    with Image.open(row["path"]) as image:
        assert image.size == (40, 40) and image.mode == "RGB"
        assert np.array_equal(images.read(row["row"]), np.asarray(image))
    assert row["path"].split("/")[-2] == images.classes[row["class"]]
    assert data_prep.is_complete(images.folder)


@pytest.mark.parametrize("reader", ["nih", "imagefolder", "cifar10"])
def test_a_stand_in_that_was_cut_short_is_finished(
    reader: str, small_sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'[data]\nreader = "{reader}"\nimage_size = 64\ncrop = 56\n'
    recipe, interrupted = lookup(recipe_of(tmp_path, text)), Mock(side_effect=KeyboardInterrupt)
    for broken in ("data_prep.files.sync_filesystem", "data_prep.prepared_folder.finish_target"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(broken, interrupted)
            image_folders.prepare_data(recipe)
    folder = image_folders.prepare_data(recipe)
    assert folder is not None and data_prep.is_complete(folder)
    with monkeypatch.context() as patch:  # once
        patch.setattr(image_folders, "_make", interrupted)
        assert image_folders.prepare_data(recipe) == folder


def test_the_real_set_is_taken_where_it_is(small_sets: Path) -> None:
    synthetic_shapes.generate_cifar10(small_sets / "cifar10", images=60, progress=False)
    (small_sets / "cifar10" / "demo.json").unlink()
    images = load("resnet44-cifar10", batch_size=4)
    assert images.folder == small_sets / "cifar10"
    section = images.as_record()
    assert section["kind"] == "real"
    assert image_folders.data_folder(lookup("demo")) == small_sets / "demo-small-2-38"


def of_own(code: str = READER, text: str = OWN) -> Callable[[Path], object]:
    return lambda folder: load(recipe_of(folder, text, code))


def check_own(code: str) -> Callable[[Path], object]:
    def check(folder: Path) -> None:
        recipe = lookup(recipe_of(folder, OWN, code))
        image_data.check_images(recipe.for_images(36), None)

    return check


def images_of(pixels: int, text: str, **resized: Any) -> Callable[[Path], object]:
    def load_them(folder: Path) -> Data:
        synthetic_shapes.generate_imagefolder(
            folder / "set", images=60, size=pixels, progress=False
        )
        if resized:
            how = resized | {"reader": "imagefolder", "progress": False}
            data_prep.resize_folder(folder / "set", folder / "small", **how)
        return load(recipe_of(folder, text), folder / ("small" if resized else "set"))

    return load_them


FOLDERS = (
    '[data]\nreader = "imagefolder"\n[model]\nnetwork = "resnet50"\n[train]\ntask = "multiclass"\n'
)
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "the other task": (
        of_own(text=OWN.replace('task = "multiclass"', 'task = "multilabel"')),
        r'mine.py:Reader: the reader own gives classes, one an image.*write task = "multiclass"',
    ),
    "too large": (
        images_of(300, FOLDERS.replace("[model]", "image_size = 256\ncrop = 224\n[model]")),
        r"images of 300 px; .*or resize them: data-prep resize .* --size 256",
    ),
    "too small": (
        images_of(20, FOLDERS),
        "images of 20 px are too small: resnet50 needs a crop of at least 32 px, so resize to 32",
    ),
    "breaks": (
        of_own(READER.replace("self.targets =", "self.targets = 1 / 0 #")),
        r"/mine.py: Reader\(\), line 10: ZeroDivisionError: division by zero",
    ),
    "no classes": (of_own(READER.replace("classes =", "kinds =")), "has no 'classes'"),
    "cannot be sent": (
        of_own(READER.replace("self.targets =", "self.a = np.random.PCG64().lock; self.targets =")),
        "mine.py:Reader: cannot be sent to the worker processes .*open files in read",
    ),
    "one is smaller": (
        check_own(READER.replace("(40, 36, 3)", "(40, 36 - (i == 77), 3)")),
        "mine.py:Reader: image 77: 35 x 40 pixels do not hold the crop of 36 px",
    ),
    "another split each time": (
        check_own(READER.replace("np.arange(300) % 5", "np.random.permutation(300) % 5")),
        "a second one has other targets or splits.*draw them from a fixed seed",
    ),
    "none of a table": (
        lambda folder: load(recipe_of(folder, NIH_AS_TABLE)),
        "the reader table needs your images",
    ),
    "top-5 of five": (
        of_own(text=OWN + '[target]\nmetric = "top5"\n'),
        r"with 5 classes the right one is always among five: write "
        r'metric = "top1" under \[target\]',
    ),
    "grey, and colour is asked for": (
        images_of(64, FOLDERS, size=50),
        r"small: data-prep wrote these images in grey, but the recipe mine asks for rgb: write "
        r'them again with --rgb, or write color_mode = "grayscale" under \[data\]',
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_images_are_one_line(name: str, tmp_path: Path) -> None:
    bad, said = BAD[name]
    with pytest.raises((UserError, DataError), match=said) as caught:
        bad(tmp_path)
    assert "\n" not in str(caught.value)
