"""Grain's DataLoader with worker processes: Pillow decodes, an image at a time, in Python.

Source: repository jax-ml/jax-ai-stack, docs/source/JAX_Vision_transformer.md, which trains on JPEGs
of the web by the data loader that JAX's documentation recommends; `IndexSampler`, `DataLoader`,
`MapTransform` and `Batch` are Grain's own guide's, too (docs/tutorials/data_loader_tutorial.md).

What had to change:

- A folder of files, where the example reads a data set of Hugging Face's that hands Pillow images
  over in the same way.
- torchvision's RandomResizedCrop and RandomHorizontalFlip of a Pillow image are written out here,
  by Pillow as there: JAX's kernel has no torchvision.
- No jitter of colour: the recipe has none.
- Random numbers follow from the image's number in the run (`RandomMapTransform`): the example's are
  torch's.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from absl import flags
from PIL import Image

from stock_loaders import labelled

MEAN, STD = (np.array([0.5] * 3, np.float32) for _ in range(2))
SCALE, RATIO = (0.7, 1.0), (3 / 4, 4 / 3)


class Photos:
    """A data source: Pillow images, which are not decoded yet, and their classes."""

    def __init__(self, folder: Path) -> None:
        self.files = labelled(folder)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> dict[str, Any]:
        path, label = self.files[number]
        return {"image": Image.open(path), "label": label}


class Augmented(grain.transforms.RandomMap):
    def __init__(self, crop: int) -> None:
        self.crop = crop

    def random_map(self, element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        image = random_resized_crop(element["image"], self.crop, rng)
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = np.asarray(image.convert("RGB")).astype(np.float32) / 255.0
        return {"image": (pixels - MEAN) / STD, "label": element["label"]}


def random_resized_crop(image: Image.Image, crop: int, rng: np.random.Generator) -> Image.Image:
    """As torchvision's does it, but it tries until a part fits."""
    width, height = image.size
    while True:
        area = width * height * rng.uniform(*SCALE)
        aspect = math.exp(rng.uniform(*np.log(RATIO)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if w <= width and h <= height:
            left, top = (int(rng.integers(room + 1)) for room in (width - w, height - h))
            cut = image.crop((left, top, left + w, top + h))
            return cut.resize((crop, crop), Image.Resampling.BILINEAR)


def data_loader(folder: Path, workers: int, batch: int, crop: int) -> Iterator[tuple[Any, Any]]:
    """Normalised float32 (batch, crop, crop, 3), and classes (batch,)."""
    if not flags.FLAGS.is_parsed():  # Grain asks for some where there are workers
        flags.FLAGS.mark_as_parsed()
    source = Photos(folder)
    sampler = grain.samplers.IndexSampler(
        len(source), shuffle=True, seed=12, shard_options=grain.sharding.NoSharding()
    )
    loader = grain.DataLoader(
        data_source=source,
        sampler=sampler,
        worker_count=workers,
        worker_buffer_size=2,
        operations=[Augmented(crop), grain.transforms.Batch(batch, drop_remainder=True)],
    )
    for found in loader:
        yield found["image"], found["label"]


EXAMPLES = {"Grain's DataLoader (decodes in Python)": data_loader}
OWN: dict[str, Any] = {}
"""Grain has no crops and flips."""
