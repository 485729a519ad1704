"""What the tests of more than one framework assert: of loaders, precisions and learning rates."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cells import write_different_images
from PIL import Image

import data_prep
from helpers.errors import UnsupportedError

Names = dict[str, Any]
Batch = Sequence[np.ndarray]


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
    evaluated: Callable[[Any], Batch],
    first_batch: Callable[[], Batch],
) -> None:
    """From files and from a packed folder, evaluation gives every image, training the same crops.

    ``evaluated`` gives pixels (N, H, W) and targets of a part, ``first_batch`` that of training.
    """
    files, packed = write_different_images(folder, suffix), folder / "packed"
    data_prep.pack_folder(files, packed, workers=1, progress=False)
    found = []
    for source in (files, packed):
        images = names["parameters"].load_data(replace(names["setup"], data=source))
        monkeypatch.setitem(names, "images", images)
        paths = [files / "images" / f"{Path(path).stem}{suffix}" for path in images.test["path"]]
        grey, targets = evaluated(images.test)
        crop = names["scaled"].recipe.crop
        assert np.array_equal(grey, [_centre(path, crop) for path in paths])
        assert np.array_equal(targets, names["parameters"].labels(images.test))
        found.append(first_batch())
    assert all(np.array_equal(*both) for both in zip(*found, strict=True))


def assert_later_epochs_are_the_same(names: Names, batches: Callable[..., Sequence[Batch]]) -> None:
    """``batches(count, epoch=…, workers=…)`` of a loader that begins there, one batch an epoch.

    The images are equal and their labels are not: crops and order can be told apart.
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
    """A grey plane, uint8 (size, size), whose first pixel tells whether it was flipped."""
    return np.arange(size, dtype=np.uint8)[None].repeat(size, axis=0)


def assert_half_are_flipped(ramps: Iterable[Any]) -> None:
    """Of :func:`ramp` after the training transform, many times."""
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


def assert_warms_up(
    names: Names, monkeypatch: pytest.MonkeyPatch, rates_used: Callable[[int], Sequence[float]]
) -> None:
    """The learning rate climbs step by step, and is constant where there is no warm-up.

    ``rates_used(done)`` trains as ``names["scaled"]`` then says, two epochs on two devices, of
    which ``done`` are done already; it gives what the optimiser really had in each of its steps.
    """
    scaled, steps = names["scaled"], steps_of(names)
    assert scaled.devices == 2 and steps > 2
    for warmup in (0, 0.5, 1.5):
        recipe = replace(scaled.recipe, epochs=2, warmup_epochs=warmup)
        warming = replace(scaled, recipe=recipe)
        monkeypatch.setitem(names, "scaled", warming)
        expected = [warming.learning_rate_at(step, steps) for step in range(2 * steps)]
        np.testing.assert_allclose(rates_used(0), expected, rtol=1e-6)
    np.testing.assert_allclose(rates_used(1), expected[steps:], rtol=1e-6)


def _rows(grey: np.ndarray) -> np.ndarray:
    """A number for each image of equal pixels that tells its crop: its first four pixels."""
    return np.ascontiguousarray(grey[:, 0, :4, 0]).view(np.uint32)[:, 0]


def _centre(path: Path, crop: int) -> np.ndarray:
    """What Pillow makes of a file, without its margin."""
    with Image.open(path) as image:
        margin = (image.width - crop) // 2
        return np.asarray(image)[margin : margin + crop, margin : margin + crop]
