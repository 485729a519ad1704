"""What the tests of more than one framework assert: of loaders, precisions and learning rates."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from notebook_cells import SIDE, functions_with, namespace_of, write_different_images
from PIL import Image

import data_prep
from data_prep.readers.catalog_reader import CatalogReader
from helpers.errors import UnsupportedError
from helpers.fairness import reference, reference_checks
from helpers.launch import samplers
from helpers.networks.weights import Weights
from helpers.networks.weights import load as load_weights
from helpers.training import checkpoint, image_data
from helpers.training.train_loop import WEIGHTS

Names = dict[str, Any]
Batch = Sequence[np.ndarray]
Evaluated = Callable[[Names, Any], Batch]
"""From a notebook's names and a part: pixels (N, H, W, C) and targets of all its images."""
FirstBatch = Callable[[Names], Batch]
"""That of training."""


def steps_of(names: Names) -> int:
    """Steps of an epoch."""
    steps: int = names["scaled"].steps(len(names["images"].train))
    return steps


def equal(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    """The same names with the same values, to the last bit."""
    return found.keys() == expected.keys() and all(
        np.array_equal(found[name], expected[name]) for name in expected
    )


def assert_pixels_are_pillows(
    names: Names,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    suffix: str,
    evaluated: Evaluated,
    first_batch: FirstBatch,
    as_ever: str,
) -> None:
    """From files and an array, evaluation gives every image, training the same crops.

    ``as_ever`` is the digest of the first batch of PNGs.
    """
    written, files = folder / f"different{suffix}", folder / "files"
    array = folder / "array"
    write_different_images(folder, suffix)
    how: dict[str, Any] = {"size": SIDE, "format": suffix[1:].replace("jpg", "jpeg")}
    data_prep.resize_folder(written, files, **how, num_workers=1, progress=False)
    data_prep.pack_folder(files, array, num_workers=1, progress=False)
    found = []
    for source in (files, array, *([written] if suffix == ".png" else [])):
        images = image_data.load_data(replace(names["this_run"].setup, data=source))
        assert images.files == (source == files)
        monkeypatch.setitem(names, "images", images)
        paths = [files / "images" / f"{Path(name).stem}{suffix}" for name in images.test["image"]]
        assert_is_read(names, images, paths, evaluated)
        found.append(first_batch(names))
    for other in found[1:]:
        assert all(np.array_equal(*both) for both in zip(found[0], other, strict=True))
    assert suffix != ".png" or digest(found[0]) == as_ever, digest(found[0])


def assert_is_read(
    names: Names, images: image_data.Data, paths: Sequence[Path], evaluated: Evaluated
) -> None:
    """The test part's images as Pillow reads these files, with their targets."""
    pixels, targets = evaluated(names, images.test)
    crop = names["scaled"].recipe.crop
    assert np.array_equal(pixels, [centre_of(path, crop) for path in paths])
    assert np.array_equal(targets, images.targets(images.test))


class OwnReader:
    """A reader of the images that another reader reads."""

    def __init__(self, other: Any) -> None:
        self.classes, self.targets, self.parts = other.classes, other.targets, other.parts
        self.read = other.read


COLOUR = """
[data]
reader = "imagefolder"
image_size = 48
crop = 40
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


def assert_colour_is_read(
    notebook: str,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    suffix: str,
    evaluated: Evaluated,
    first_batch: FirstBatch,
    as_ever: str,
) -> None:
    """RGB images of classes: from files, from memory, and by a custom reader.

    ``as_ever`` is the digest of the first batch of PNGs.
    """
    recipe, data = write_colour_images(folder, suffix)
    names = namespace_of(notebook, folder, devices=2, recipe=recipe, data=data)
    files = names["images"]
    paths = [Path(path) for path in files.test["path"]]
    catalog = files.reader.catalog
    array = np.stack([pillows(Path(catalog.path(i))) for i in range(len(catalog))])
    found = []
    for reader in (files.reader, CatalogReader(catalog, array), OwnReader(files.reader)):
        images = replace(files, reader=reader)
        monkeypatch.setitem(names, "images", images)
        assert_is_read(names, images, paths, evaluated)
        found.append(first_batch(names))
    for other in found[1:]:
        assert all(np.array_equal(*both) for both in zip(found[0], other, strict=True))
    assert suffix != ".png" or digest(found[0]) == as_ever, digest(found[0])
    how: dict[str, Any] = {"size": 48, "format": suffix[1:].replace("jpg", "jpeg"), "channels": 3}
    small = folder / "small"
    data_prep.resize_folder(folder / "set", small, reader="imagefolder", progress=False, **how)
    images = image_data.load_data(replace(names["this_run"].setup, data=small))
    assert images.files and not files.files
    monkeypatch.setitem(names, "images", images)
    assert_is_read(names, images, [Path(path) for path in images.test["path"]], evaluated)
    checks = reference_checks.same_inputs(names["evaluate_pixels"], [], [], names["scaled"])
    assert checks[0].verdict == "pass", "three planes, each with its own mean"


def digest(arrays: Batch) -> str:
    """The digest of a batch, whatever its layout."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def assert_later_epochs_are_the_same(names: Names, batches: Callable[..., Sequence[Batch]]) -> None:
    """``batches(count, epoch=…, workers=…)`` of a loader that begins there, one batch an epoch.

    The images are equal and their labels are not: crops and order can be distinguished.
    """
    assert steps_of(names) == 1
    first, second, third = batches(3)
    assert not np.array_equal(first[1], second[1]), "every epoch is shuffled anew"
    assert not np.isin(_rows(first[0]), _rows(second[0])).all(), "every epoch draws new crops"
    for workers in (0, 1, 3):
        again = batches(2, epoch=1, workers=workers)
        for begun, expected in zip(again, (second, third), strict=True):
            assert all(np.array_equal(*both) for both in zip(begun, expected, strict=True))


def ramp(size: int) -> np.ndarray:
    """A grey image, uint8 (size, size, 1), whose first pixel tells whether it was flipped."""
    return np.arange(size, dtype=np.uint8)[None, :, None].repeat(size, axis=0)


def assert_half_are_flipped(ramps: Iterable[Any]) -> None:
    """Given :func:`ramp` after the training transform, many times."""
    first = [np.ravel(image)[0] for image in ramps]
    assert 0.4 < np.mean(np.array(first) != 0) < 0.6


def assert_refused(
    configure: Callable[[str, str], None], precision: str, kind: str, reason: str
) -> None:
    """By a framework that computes in float32 only."""
    with pytest.raises(UnsupportedError, match=rf"precision {precision}: .*{reason}.*; use fp32"):
        configure(precision, kind)


def assert_float32_is_float32(
    configure: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the CUDA libraries' own switch."""
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    configure("fp32", "gpu")
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    configure("tf32", "gpu")
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ


def assert_resumed_takes_the_steps_of_a_whole_run(names: Names, *, bits: bool = True) -> None:
    """Interrupted in its second epoch and resumed, of a notebook that is about to train two.

    To the last bit of the weights with ``bits``.
    """
    run, train_epoch, begun = names["this_run"], names["train_epoch"], count(1)
    run.train()
    rows, whole = list(run.history), load_weights(run.folder / WEIGHTS)

    def interrupted(*given: Any) -> float:
        if next(begun) == 2:
            raise ValueError("interrupted")
        loss: float = train_epoch(*given)
        return loss

    names["train_epoch"] = interrupted
    with pytest.raises(ValueError, match="interrupted"):
        run.train()
    names["train_epoch"] = train_epoch
    checkpoint.await_epoch(run.folder, 1)
    run._resume = True
    run.train()
    assert run.record.content["checkpoint"]["restarts"] == [1]
    assert [row["epoch"] for row in run.history] == [1, 2], "none is counted twice"
    for row, other in zip(run.history, rows, strict=True):
        assert (row["steps"], row["images"]) == (other["steps"], other["images"])
        assert row["learning_rate"] == other["learning_rate"]
        np.testing.assert_allclose(row["train_loss"], other["train_loss"], rtol=1e-5)
    for name, array in load_weights(run.folder / WEIGHTS).items():
        if bits:
            np.testing.assert_array_equal(array, whole[name], err_msg=name)
        else:
            np.testing.assert_allclose(array, whole[name], rtol=1e-4, atol=1e-6, err_msg=name)
    samplers.stop(run.monitor)


def train_shallow(names: Names) -> None:
    """Let the notebook train ``reference``'s shallow net, for it takes no time."""
    run = names["this_run"]
    framework, devices, scope = run.framework, run.devices, run.functions.scope

    def build_model(arrays: Mapping[str, np.ndarray]) -> Any:
        with scope():
            return framework.shallow(arrays, devices)

    names["build_model"] = build_model
    run.initial = Weights(reference.shallow_arrays(), "random", "shallow")
    run.take(functions_with(names))


def _rows(grey: np.ndarray) -> np.ndarray:
    """A number for each image of equal pixels that tells its crop: its first four pixels."""
    return np.ascontiguousarray(grey[:, 0, :4, 0]).view(np.uint32)[:, 0]


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
