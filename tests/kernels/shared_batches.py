"""The batches that the rule of all notebooks gives, and those that a notebook gives.

An epoch's order is drawn from the seed and the epoch, an image's crop and flip from the seed, the
epoch and its number in the split. Process k of a step has block k of the global batch.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from notebook_program import Names, in_each
from PIL import Image

from helpers.training import notebook_recipe
from helpers.training.training_notes import FILLED, in_memory

Batch = tuple[np.ndarray, ...]
"""Pixels, targets and the images' numbers."""
Read = Callable[[int], np.ndarray]


def by_the_rule(run: Any, split: Any, read: Read, epoch: int, rank: int, ranks: int) -> list[Batch]:
    """The batches of an epoch that process ``rank`` of ``ranks`` trains on."""
    r = run.recipe
    size = r.batch_size * run.setup.replicas // ranks
    order = np.random.default_rng([r.seed, epoch]).permutation(len(split))
    steps = len(split) // (size * ranks)
    numbers = order[: steps * size * ranks].reshape(steps, ranks, size)[:, rank]
    return [
        (np.stack([_crop(read(i), r, epoch, i) for i in own]), split.targets[own], own)
        for own in numbers
    ]


def _crop(pixels: np.ndarray, r: Any, epoch: int, i: int) -> np.ndarray:
    random = np.random.default_rng([r.seed, epoch, i])
    top, left = (random.integers(side - r.crop + 1) for side in pixels.shape[:2])
    crop = pixels[top : top + r.crop, left : left + r.crop]
    return crop[:, ::-1] if random.random() < 0.5 else crop


def trained_on(names: Names, split: Any, epochs: Iterable[int]) -> list[list[Batch]]:
    """In a process that trains: the batches of these epochs, one after another."""
    run, loader = names["run"], names["make_loader"](split, True)
    found = []
    for epoch in epochs:
        run.framework.set_epoch(loader, epoch)
        found.append([_arrays(batch) for batch in loader])
    return found


def evaluated(names: Names, split: Any) -> Batch:
    """In a process that trains: all that it evaluates of a split, without what fills a batch up."""
    batches = [_arrays(batch) for batch in names["make_loader"](split, False)]
    pixels, targets, numbers = map(np.concatenate, zip(*batches, strict=True))
    images = numbers != FILLED
    return pixels[images], targets[images], numbers[images]


def _arrays(batch: Sequence[Any]) -> Batch:
    found = tuple(np.array(in_memory(part)) for part in batch)
    assert found[0].dtype == np.uint8
    return found


def assert_same(found: Sequence[Batch], expected: Sequence[Batch]) -> None:
    for batch, other in zip(found, expected, strict=True):
        for part, same in zip(batch, other, strict=True):
            np.testing.assert_array_equal(part, same)


class OwnReader:
    """A reader of the images that another reader reads."""

    def __init__(self, other: Any) -> None:
        self.classes, self.targets, self.splits = other.classes, other.targets, other.splits
        self.read, self.task = other.read, other.task


COLOUR = """
[data]
reader = "imagefolder"
image_size = 48
crop = 41
[model]
network = "resnet44"
[train]
task = "multiclass"
batch_size = 8
"""


def write_colour_images(folder: Path, suffix: str) -> tuple[str, str]:
    """Class folders, some of whose files each framework would decode in its way, if at all.

    Returns:
        A recipe's file, and the folder.
    """
    draws = np.random.default_rng(0)
    for part, size in (("train", 30), ("val", 6)):
        for number in range(size):
            path = folder / "set" / part / "abc"[number % 3] / f"{number}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(draws.integers(0, 256, (50, 48, 3), dtype=np.uint8))
            if number % 4 == 1:
                image = image.convert("CMYK" if suffix == ".jpg" else "P")
            elif number % 4 == 2 and suffix == ".png":
                image = Image.fromarray(draws.integers(0, 2**16, (50, 48), dtype=np.uint16))
            image.save(path, "BMP" if number % 4 == 3 else None)  # whatever its name says
    (folder / "colour.toml").write_text(COLOUR)
    return str(folder / "colour.toml"), str(folder / "set")


def centre_of(path: Path, crop: int) -> np.ndarray:
    """What Pillow makes of a file, without its margin."""
    pixels = pillows(path)
    top, left = (round((side - crop) / 2) for side in pixels.shape[:2])
    return pixels[top : top + crop, left : left + crop]


def pillows(path: Path) -> np.ndarray:
    """What Pillow makes of a file: 16 bits as eight, what is neither grey nor RGB as RGB."""
    with Image.open(path) as image:
        if image.mode == "I;16":
            eight = (np.asarray(image).astype(int) * 255 + 32767) // 65535
            return np.repeat(eight.astype(np.uint8)[..., None], 3, axis=2)
        return np.atleast_3d(np.asarray(image if image.mode == "L" else image.convert("RGB")))


def assert_is_read(names: Names, images: Any, column: str, path: Callable[[str], Path]) -> None:
    """On one device: what is evaluated and trained on is what Pillow reads from the files.

    Args:
        column: of the images' tables.
        path: of an image's file, by its entry there.
    """
    run = names["run"]
    train, test = (notebook_recipe.split(images, name) for name in ("train", "test"))

    def read(names: Names) -> tuple[Batch, list[list[Batch]]]:
        return evaluated(names, test), trained_on(names, train, [0])

    [((pixels, targets, numbers), [epoch])] = in_each(names, read)
    assert numbers.tolist() == list(range(len(images.test)))
    files = [path(entry) for entry in images.test[column]]
    assert np.array_equal(pixels, [centre_of(file, run.recipe.crop) for file in files])
    assert np.array_equal(targets, images.targets(images.test))
    files = [path(entry) for entry in images.train[column]]
    assert_same(epoch, by_the_rule(run, train, lambda i: pillows(files[i]), 0, 0, 1))
