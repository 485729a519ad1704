"""The yardstick: what DenseNet121 computes in float64, from weights and images made by NumPy.

PyTorch makes it once (``tools/make_reference.py`` in the pytorch environment) and
``reference.npz`` keeps it, so that every framework can be held against it in its own kernel. The
weights are no ordinary initial ones: every BatchNorm has a scale, an offset and statistics of its
own, so that none of them can be mistaken or left out unnoticed.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from helpers.networks import weights
from helpers.recipe import RECIPES, Recipe

FILE = Path(__file__).with_name("reference.npz")
IMAGES, PIXELS, SEED = 4, 64, 0
STEPS = 5

GRADIENTS = ("features.conv0.weight", "features.norm5.weight", "classifier.weight")
NORMS = {"features.norm0": 32, "features.norm5": 2}
"""BatchNorm layers whose running statistics are kept, and the pixels of their input a side."""

MOMENTUM, DECAY = 0.9, 0.1
"""Of the paths that have them; the decay large, so that nothing of it is overlooked."""

RATES = {"sgd": (0.1,) * 5, "momentum": (0.1, 0.1, 0.1, 0.01, 0.01), "adam": (1e-3,) * 5}
"""Learning rate of each step by each rule. Momentum's drops: some frameworks have the rate in the
velocity, where the drop would come late (Goyal et al. 2017, section 3)."""

EPSILON_FIRST = "adam epsilon first"
"""Adam as TensorFlow, Keras, MXNet and Chainer have it: epsilon is added to the deviation before
its bias is corrected, so that in step t it weighs 1 / sqrt(1 - beta2 ** t) times as much."""

LATE = "momentum late"
"""Momentum with the rate in its velocity, and without Goyal's correction where the rate changes."""

COUPLED, DECOUPLED, WEIGHTS_ONLY = "decay", "decay decoupled", "decay weights only"
"""Weight decay in the gradient of all weights; apart from it; without BatchNorm and biases."""

PATHS = (
    *RATES,
    EPSILON_FIRST,
    LATE,
    *(f"{rule} {decay}" for rule in RATES for decay in (COUPLED, DECOUPLED, WEIGHTS_ONLY)),
)
"""Paths of ``STEPS`` optimiser steps, each beginning with the rule's name."""

RUNNING = ("running_mean", "running_var")


def batch() -> tuple[np.ndarray, np.ndarray]:
    """Grey images uint8 (4, 64, 64) and targets float32 (4, 14)."""
    random = np.random.Generator(np.random.PCG64(SEED))
    grey = random.integers(0, 256, (IMAGES, PIXELS, PIXELS), dtype=np.uint8)
    targets = (random.random((IMAGES, 14)) < 0.3).astype(np.float32)
    return grey, targets


def network_input(grey: np.ndarray, recipe: Recipe = RECIPES["chexnet"]) -> np.ndarray:
    """What the network sees of grey images (N, H, W): normalised float64 (N, 3, H, W)."""
    mean, std = (np.asarray(values)[:, None, None] for values in (recipe.mean, recipe.std))
    return (grey[:, None].astype(np.float64) / 255 - mean) / std


@cache
def arrays() -> Mapping[str, np.ndarray]:
    """Seeded weights with a BatchNorm that is not the identity, by torchvision's names.

    Made once, and the same for all who ask: read-only.
    """
    found = weights.seeded(seed=SEED)
    random = np.random.Generator(np.random.PCG64(SEED + 1))
    for name, shape in weights.shapes().items():
        if len(shape) == 1 and not name.startswith("classifier"):
            positive = name.endswith((".weight", ".running_var"))
            drawn = random.uniform(0.8, 1.2, shape) if positive else random.normal(0, 0.1, shape)
            found[name] = drawn.astype(np.float32)
    return _read_only(found)


def shallow_arrays() -> weights.Arrays:
    """Of the same weights those of a net without dense blocks, see ``frameworks.*.shallow``.

    On it a training loop is checked: a deep network adds nothing to that but rounding, which
    BatchNorm amplifies from step to step, and minutes where a framework is slow step by step.
    """
    found = {name: array.copy() for name, array in arrays().items() if name in weights.SHALLOW}
    return found | {"classifier.weight": found["classifier.weight"][:, :64].copy()}


@cache
def load() -> Mapping[str, np.ndarray]:
    """All quantities by name, float64 unless said otherwise; read once, and read-only.

    With BatchNorm frozen: ``logits`` (4, 14), ``loss`` and the gradient of each of GRADIENTS. In
    training mode: ``train logits`` and the running statistics of NORMS after one pass. For each
    path in PATHS, which the shallow net walks: the ``losses`` of its steps (5,) and float32
    weights after the last. ``pixels`` float32 (3, 32, 32) are what the demo recipe's evaluation
    makes of ``reference_checks.canonical_image``.
    """
    with np.load(FILE) as file:
        return _read_only(dict(file))


def after_conv0(arrays: Mapping[str, np.ndarray], grey: np.ndarray) -> np.ndarray:
    """The first convolution's output, float64 (N, 64, H/2, W/2), of grey images (N, H, W)."""
    images = np.pad(network_input(grey), ((0, 0), (0, 0), (3, 3), (3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(images, (7, 7), (2, 3))[:, :, ::2, ::2]
    kernel = arrays["features.conv0.weight"].astype(np.float64)
    return np.einsum("ncyxij,ocij->noyx", windows, kernel, optimize=True)


def shallow_logits(arrays: Mapping[str, np.ndarray], grey: np.ndarray) -> np.ndarray:
    """What the shallow net makes of grey images (N, H, W) in evaluation mode: float64 (N, 14)."""
    names = ("weight", "bias", "running_mean", "running_var")
    scale, offset, mean, variance = (
        arrays[f"features.norm0.{name}"].astype(np.float64)[:, None, None] for name in names
    )
    deviation = np.sqrt(variance + RECIPES["chexnet"].bn_epsilon)
    normal = (after_conv0(arrays, grey) - mean) / deviation * scale + offset
    pooled = np.maximum(normal, 0).mean(axis=(2, 3))
    return pooled @ arrays["classifier.weight"].T.astype(np.float64) + arrays["classifier.bias"]


def gradient_errors(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Relative L2 distance of each of GRADIENTS in ``found`` from the reference's."""
    known = load()
    return {name: relative(found[name], known[name]) for name in GRADIENTS}


def relative(found: np.ndarray, known: np.ndarray) -> float:
    """Relative L2 distance of ``found`` from ``known``."""
    return float(np.linalg.norm(found - known) / np.linalg.norm(known))


def _read_only(found: weights.Arrays) -> Mapping[str, np.ndarray]:
    for array in found.values():
        array.flags.writeable = False
    return MappingProxyType(found)
