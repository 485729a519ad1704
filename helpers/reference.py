"""The yardstick: what DenseNet121 gives in float64 for one batch that NumPy makes from a seed.

PyTorch makes it once (``python -m helpers.reference`` in the pytorch environment) and
``reference.npz`` keeps it, so that every framework can be held against it in its own kernel.
BatchNorm is frozen (running statistics) unless a name says ``train``.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from helpers import weights

FILE = Path(__file__).with_name("reference.npz")
IMAGES, PIXELS, SEED = 4, 64, 0
GRADIENTS = ("features.conv0.weight", "features.norm5.weight", "classifier.weight")


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Images (4, 3, 64, 64) as a network sees them and targets (4, 14), both float64."""
    random = np.random.Generator(np.random.PCG64(SEED))
    images = random.standard_normal((IMAGES, 3, PIXELS, PIXELS))
    targets = (random.random((IMAGES, 14)) < 0.3).astype(np.float64)
    return images, targets


def load() -> dict[str, np.ndarray]:
    """``logits`` and ``train logits`` (4, 14), ``loss`` and a gradient for each of GRADIENTS."""
    with np.load(FILE) as file:
        return dict(file)


def gradient_errors(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Relative L2 distance of each of GRADIENTS in ``found`` from the reference's."""
    known = load()
    return {
        name: float(np.linalg.norm(found[name] - known[name]) / np.linalg.norm(known[name]))
        for name in GRADIENTS
    }


def make() -> None:
    """Write ``reference.npz``; needs PyTorch."""
    import torch
    from torchvision.models import densenet121

    from helpers.frameworks import pytorch as framework

    images, targets = batch()
    model = densenet121(weights=None, num_classes=14).double()
    framework.load_weights(model, weights.canonical("seeded", seed=SEED).arrays)
    one_device = framework.list_devices("cpu", 1)
    found: dict[str, np.ndarray] = {"logits": framework.logits(model, images)}
    loss, gradients = framework.gradients(model, images, targets, one_device)
    found |= {"loss": np.array(loss)} | {name: gradients[name] for name in GRADIENTS}
    model.train()
    with torch.no_grad():
        found["train logits"] = model(torch.from_numpy(images)).numpy()
    np.savez_compressed(FILE, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    make()
