"""What the tests of more than one framework assert: of loaders, precisions and learning rates."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Names = dict[str, Any]
Batch = Sequence[np.ndarray]


def equal(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    """The same names with the same values, to the last bit."""
    return found.keys() == expected.keys() and all(
        np.array_equal(found[name], expected[name]) for name in expected
    )


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


def assert_float32_is_float32(
    configure: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the CUDA libraries' own switch."""
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    configure("fp32", "gpu")
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    configure("tf32", "gpu")
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ


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
