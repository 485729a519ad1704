"""The reference: the float64 results of each network for weights and images made by NumPy.

PyTorch computes it once (``tools/make_reference.py`` in the pytorch environment), and one file per
network stores it. Every framework is compared with it in its own environment. The weights are not
ordinary initial weights: every BatchNorm has its own scale, offset and statistics, so that a
missing or swapped layer is noticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from helpers.networks import weights
from helpers.networks.shapes import SHALLOW, head, shapes
from helpers.recipe import RECIPES, Recipe
from helpers.recipe.settings import MULTILABEL

IMAGES, SEED = 4, 0
STEPS = 5

PATHS_OF_CLASSES = Path(__file__).with_name("reference_classes.npz")


@dataclass(frozen=True)
class Kept:
    """The stored results of a network, and their file in this module's folder."""

    file: str
    pixels: int
    """The pixels of an image a side."""
    gradients: tuple[str, ...]
    norms: Mapping[str, int]
    """BatchNorm layers whose running statistics are kept, and the pixels of their input a side."""
    variance: float = 1.0
    """About that of the weights' ``running_var``: with 1 a ResNet's logits would grow with every
    block, ResNet44's into thousands, where the loss no longer tells one from another."""
    single: float = 1e-5
    """Limit of what is computed in training where a framework trains in float32 only.

    Found for ResNet50 in training mode, whose last layers see 16 values a channel: 1.2e-4 in the
    logits. An epsilon of 2e-5 in place of 1e-5 moves them by 1e-3 (the others': 8e-6 and 5e-5 in
    DenseNet121, 3e-6 and 2.5e-5 in ResNet44)."""

    @property
    def path(self) -> Path:
        return Path(__file__).with_name(self.file)


KEPT = {
    "densenet121": Kept(
        "reference.npz",
        64,
        ("features.conv0.weight", "features.norm5.weight", "classifier.weight"),
        {"features.norm0": 32, "features.norm5": 2},
    ),
    "resnet44": Kept(
        "reference_resnet44.npz",
        32,
        ("conv1.weight", "layer3.6.bn2.weight", "fc.weight"),
        {"bn1": 32, "layer3.6.bn2": 8},
        variance=4.0,
    ),
    "resnet50": Kept(
        "reference_resnet50.npz",
        64,
        ("conv1.weight", "layer4.2.bn3.weight", "fc.bias"),  # fc.weight's would be 230 kB
        {"bn1": 32, "layer4.2.bn3": 2},
        variance=2.0,
        single=3e-4,
    ),
}
"""The first convolution's gradient has come through all layers."""

MOMENTUM, DECAY = 0.9, 0.1
"""Used on the paths that have them; the decay is large, so that nothing of it is overlooked."""

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

CLASSES = (2, 11, 12, 5)
"""Which of 14 classes each image is of, where the task is multiclass: with these no gradient is so
near 0 that rounding turns it round, after which Adam would go another way (found: 2e-4 of it; with
others up to 8e-3)."""

PATHS = (
    *RATES,
    EPSILON_FIRST,
    LATE,
    *(f"{rule} {decay}" for rule in RATES for decay in (COUPLED, DECOUPLED, WEIGHTS_ONLY)),
    *(f"{rule} {DECOUPLED}" for rule in (EPSILON_FIRST, LATE)),
)
"""Paths of ``STEPS`` optimiser steps, each beginning with the rule's name."""


def batch(network: str = "densenet121") -> tuple[np.ndarray, np.ndarray]:
    """Grey images uint8 (4, 64, 64, 1), smaller for some, and targets float32 (4, 14)."""
    random = np.random.Generator(np.random.PCG64(SEED))
    pixels = KEPT[network].pixels
    grey = random.integers(0, 256, (IMAGES, pixels, pixels, 1), dtype=np.uint8)
    targets = (random.random((IMAGES, 14)) < 0.3).astype(np.float32)
    return grey, targets


def batch_of(task: str) -> tuple[np.ndarray, np.ndarray]:
    """The images of :func:`batch` with a task's targets: of classes int64 (4,)."""
    pixels, findings = batch()
    return pixels, findings if task == MULTILABEL else np.array(CLASSES)


def network_input(pixels: np.ndarray, recipe: Recipe = RECIPES["chexnet"]) -> np.ndarray:
    """The network's input for grey or RGB images (N, H, W, C): normalised float64 (N, 3, H, W)."""
    mean, std = (np.asarray(values)[:, None, None] for values in (recipe.mean, recipe.std))
    return (pixels.transpose(0, 3, 1, 2).astype(np.float64) / 255 - mean) / std


def arrays(network: str = "densenet121") -> Mapping[str, np.ndarray]:
    """Seeded weights with a BatchNorm that is not the identity, by torchvision's names.

    They are made once and shared, so they are read-only.
    """
    return _arrays(network)


@cache
def _arrays(network: str) -> Mapping[str, np.ndarray]:
    found = weights.seeded(seed=SEED, network=network)
    random = np.random.Generator(np.random.PCG64(SEED + 1))
    for name, shape in shapes(network).items():
        if len(shape) == 1 and not name.startswith(head(network)):
            positive = name.endswith((".weight", ".running_var"))
            drawn = random.uniform(0.8, 1.2, shape) if positive else random.normal(0, 0.1, shape)
            if name.endswith("running_var"):
                drawn *= KEPT[network].variance
            found[name] = drawn.astype(np.float32)
    return _read_only(found)


def shallow_arrays() -> weights.Arrays:
    """Those DenseNet121 weights that a net without dense blocks has: ``frameworks.*.shallow``.

    On it a training loop is checked: a deep network adds nothing to that but rounding, which
    BatchNorm amplifies from step to step, and minutes where a framework is slow step by step.
    """
    found = {name: array.copy() for name, array in arrays().items() if name in shapes(SHALLOW)}
    return found | {"classifier.weight": found["classifier.weight"][:, :64].copy()}


def paths(task: str) -> Mapping[str, np.ndarray]:
    """The results of the shallow network's training steps on a task's loss.

    For each path in PATHS the ``losses`` of its steps (5,), float64, and float32 weights after the
    last. Read once, and read-only.
    """
    return load() if task == MULTILABEL else _read(PATHS_OF_CLASSES)


def load(network: str = "densenet121") -> Mapping[str, np.ndarray]:
    """All quantities by name, float64 unless stated otherwise; read once, and read-only.

    With BatchNorm frozen: ``logits`` (4, 14), ``loss`` and the network's gradients in KEPT. In
    training mode: ``train logits`` and the running statistics of its norms there after one pass.

    DenseNet121's file also has the ``paths`` of findings. ``pixels`` float32
    (3, 32, 32) are what the demo recipe's evaluation makes of
    ``reference_checks.canonical_image``.
    """
    return _read(KEPT[network].path)


@cache
def _read(path: Path) -> Mapping[str, np.ndarray]:
    with np.load(path) as file:
        return _read_only(dict(file))


def after_conv0(arrays: Mapping[str, np.ndarray], grey: np.ndarray) -> np.ndarray:
    """The first convolution's output, float64 (N, 64, H/2, W/2), of grey images (N, H, W, 1)."""
    images = np.pad(network_input(grey), ((0, 0), (0, 0), (3, 3), (3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(images, (7, 7), (2, 3))[:, :, ::2, ::2]
    kernel = arrays["features.conv0.weight"].astype(np.float64)
    return np.einsum("ncyxij,ocij->noyx", windows, kernel, optimize=True)


def shallow_logits(arrays: Mapping[str, np.ndarray], grey: np.ndarray) -> np.ndarray:
    """The shallow net's logits, float64 (N, 14), of grey images (N, H, W, 1) in evaluation mode."""
    mean, variance = (
        arrays[f"features.norm0.running_{name}"].astype(np.float64)[:, None, None]
        for name in ("mean", "var")
    )
    return _pooled_and_logits(arrays, after_conv0(arrays, grey), mean, variance)[1]


def _pooled_and_logits(
    arrays: Mapping[str, np.ndarray], values: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What the shallow net's last layer gets of the first convolution's output, and gives."""
    scale, offset = (
        arrays[f"features.norm0.{name}"].astype(np.float64)[:, None, None]
        for name in ("weight", "bias")
    )
    deviation = np.sqrt(variance + RECIPES["chexnet"].bn_epsilon)
    pooled = np.maximum((values - mean) / deviation * scale + offset, 0).mean(axis=(2, 3))
    weight = arrays["classifier.weight"].T.astype(np.float64)
    return pooled, pooled @ weight + arrays["classifier.bias"]


def classifier_gradient(grey: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Gradient of the shallow net's last weights in training, float64 (14, 64).

    BatchNorm normalises with the statistics of these images, (N, H, W, 1). ``targets`` are findings
    (N, 14), or the numbers of classes (N,).
    """
    arrays = shallow_arrays()
    values = after_conv0(arrays, grey)
    mean, variance = (of(values, axis=(0, 2, 3), keepdims=True) for of in (np.mean, np.var))
    pooled, logits = _pooled_and_logits(arrays, values, mean, variance)
    if targets.ndim == 1:
        likely = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = likely / likely.sum(axis=1, keepdims=True) - np.eye(logits.shape[1])[targets]
        return error.T @ pooled / len(logits)
    return (1 / (1 + np.exp(-logits)) - targets).T @ pooled / targets.size


def gradient_errors(
    found: Mapping[str, np.ndarray], network: str = "densenet121"
) -> dict[str, float]:
    """Relative L2 distance of each kept gradient in ``found`` from the reference's."""
    known = load(network)
    return {name: relative(found[name], known[name]) for name in KEPT[network].gradients}


def relative(found: np.ndarray, known: np.ndarray) -> float:
    """Relative L2 distance of ``found`` from ``known``."""
    return float(np.linalg.norm(found - known) / np.linalg.norm(known))


def _read_only(found: weights.Arrays) -> Mapping[str, np.ndarray]:
    for array in found.values():
        array.flags.writeable = False
    return MappingProxyType(found)
