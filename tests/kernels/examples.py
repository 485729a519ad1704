"""What every framework's tests assert of its documented loaders, which ours are timed against."""

import importlib
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from helpers import paths

sys.path.append(str(paths.ROOT / "benchmarks"))

COLOURS = np.array([[200, 30, 30], [30, 200, 30], [30, 30, 200]], np.uint8)


def assert_examples_deliver(framework: str, folder: Path) -> None:
    """Each decodes colours, labels them by their folder, crops, and does not end with an epoch."""
    for number in range(12):
        file = folder / "train" / "abc"[number % 3] / f"{number}.JPEG"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.tile(COLOURS[number % 3], (48, 56, 1))).save(file)
    examples = importlib.import_module(f"documented_loaders.{framework}").EXAMPLES
    assert examples
    for example in examples.values():
        with closing(example(folder / "train", workers=2, batch=6, crop=40)) as stream:
            batches = [tuple(map(as_array, batch)) for batch in islice(stream, 5)]
        for pixels, labels in batches:
            assert pixels.dtype == np.float32
            planes = pixels if pixels.shape[1] == 3 else pixels.transpose(0, 3, 1, 2)
            assert planes.shape == (6, 3, 40, 40) and labels.shape == (6,)
            assert np.array_equal(planes.mean((2, 3)).argmax(1), labels)
        assert len({tuple(labels) for _, labels in batches}) > 1, "they are shuffled"


def as_array(found: Any) -> np.ndarray:
    return found.asnumpy() if hasattr(found, "asnumpy") else np.asarray(found)
