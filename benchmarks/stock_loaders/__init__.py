"""Loaders that come with each framework, for `benchmarks/loaders.py`.

The module of a framework has `EXAMPLES`, its documented ways to read ImageNet's photos, and `OWN`,
its own crops and flips of the grey images that `data_prep` reads. Both have, by the name in the
results, a function

    batches(folder, workers, batch, crop)

of batches without end, from a folder with a folder of images for each class. What an example does
to an image, and in which order, is its source's; each module says what had to change. In all, an
example that ends with its epoch begins the next one, and sizes, batch size and `workers` are
parameters.
"""

from pathlib import Path


def labelled(folder: Path) -> list[tuple[Path, int]]:
    """Each image with the number of its class, in the order of their names."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    return [(path, label) for label, home in enumerate(classes) for path in sorted(home.iterdir())]
