"""The inputs and expected results of the self-test, computed in NumPy from small integers.

Products and sums of small integers are exact in every precision and order of addition. The
self-test therefore detects small errors as well as large ones. Only BatchNorm divides.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from helpers.recipe import RECIPES

LAYERS = ("convolution", "BatchNorm", "pooling")
ALL_REDUCE = "all-reduce"

IMAGES, CHANNELS, FILTERS, SIDE = 8, 16, 32, 29
SHARE = 2**20
"""Numbers that each device adds to the all-reduce: 4 MiB, about the size of a gradient message."""
LIMIT = 1e-3
"""The allowed error, as a share of a result's largest number. Convolutions by Winograd's algorithm
or by FFT round; a missing or an additional product causes a larger error."""

Arrays = dict[str, np.ndarray]


def inputs(layer: str) -> Arrays:
    """The inputs of ``layer``: ``images`` (N, C, H, W), its weights, and ``gradient``.

    ``gradient`` has the shape of the layer's output and is the start of the backward pass.
    """
    random = np.random.default_rng(LAYERS.index(layer))

    def whole(*shape: int) -> np.ndarray:
        return random.integers(-2, 3, shape).astype(np.float32)

    images = (IMAGES, CHANNELS, SIDE, SIDE)
    if layer == "convolution":
        return {
            "images": whole(*images),
            "weight": whole(FILTERS, CHANNELS, 3, 3),
            "gradient": whole(IMAGES, FILTERS, SIDE, SIDE),
        }
    if layer == "BatchNorm":
        return {
            "images": whole(*images),
            "scale": whole(CHANNELS),
            "offset": whole(CHANNELS),
            "gradient": whole(*images),
        }
    # All numbers of a plane differ: frameworks choose different maxima among equal numbers.
    planes = [random.permutation(SIDE * SIDE) for _ in range(IMAGES * CHANNELS)]
    return {
        "images": np.array(planes, np.float32).reshape(images),
        "gradient": whole(IMAGES, CHANNELS, SIDE // 4, SIDE // 4),
    }


def expected(layer: str, given: Mapping[str, np.ndarray]) -> Arrays:
    """The layer's ``output``, and the gradient of every input under that input's name."""
    compute: Mapping[str, Callable[..., Arrays]] = dict(
        zip(LAYERS, (_convolution, _batch_norm, _pooling), strict=True)
    )
    return compute[layer](**{name: array.astype(np.float64) for name, array in given.items()})


def shares(devices: int) -> list[np.ndarray]:
    """The array that each device adds to the all-reduce, float32 (``SHARE``,)."""
    random = np.random.default_rng(devices)
    return [random.integers(-9, 10, SHARE).astype(np.float32) for _ in range(devices)]


def wrong(found: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> str | None:
    """Describe the first array of ``found`` that differs from ``right``; None if all agree."""
    for name, array in right.items():
        what = name if name == "output" else f"gradient of {name}"
        if name not in found or found[name].shape != array.shape:
            shape = found[name].shape if name in found else "nothing"
            return f"wrong result: {what} is {shape}, not {array.shape}"
        worst = float(np.abs(found[name] - array).max())
        if not worst <= LIMIT * float(np.abs(array).max()):  # NaN too
            return f"wrong result: {what} is off by up to {worst:.3g}"
    return None


def wrong_sum(found: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> str | None:
    """Name the first device without the sum of ``given``; None if every device has the sum."""
    total = np.sum(given, axis=0)
    if len(found) != len(given):
        return f"wrong result: {len(found)} devices answered, not {len(given)}"
    for number, array in enumerate(found):
        if not np.array_equal(array, total):
            return f"wrong result: the sum on device {number} is wrong"
    return None


def _convolution(images: np.ndarray, weight: np.ndarray, gradient: np.ndarray) -> Arrays:
    """A 3 x 3 convolution of images with a border of one zero."""
    bordered = _around(images)
    windows = np.lib.stride_tricks.sliding_window_view(bordered, (3, 3), (2, 3))  # N C H W 3 3
    back = np.lib.stride_tricks.sliding_window_view(_around(gradient), (3, 3), (2, 3))
    turned = weight[:, :, ::-1, ::-1]
    return {
        "output": np.einsum("nchwij,fcij->nfhw", windows, weight, optimize=True),
        "images": np.einsum("nfhwij,fcij->nchw", back, turned, optimize=True),
        "weight": np.einsum("nchwij,nfhw->fcij", windows, gradient, optimize=True),
    }


def _around(array: np.ndarray) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, 0), (1, 1), (1, 1)))


def _batch_norm(
    images: np.ndarray, scale: np.ndarray, offset: np.ndarray, gradient: np.ndarray
) -> Arrays:
    """BatchNorm in training mode, with the mean and the variance of these images."""
    over = (0, 2, 3)
    deviation = np.sqrt(images.var(over, keepdims=True) + RECIPES["chexnet"].bn_epsilon)
    normal = (images - images.mean(over, keepdims=True)) / deviation
    scale, offset = scale.reshape(1, -1, 1, 1), offset.reshape(1, -1, 1, 1)
    along = normal * (gradient * normal).mean(over, keepdims=True)
    return {
        "output": normal * scale + offset,
        "images": scale / deviation * (gradient - gradient.mean(over, keepdims=True) - along),
        "scale": (gradient * normal).sum(over),
        "offset": gradient.sum(over),
    }


def _pooling(images: np.ndarray, gradient: np.ndarray) -> Arrays:
    """Max pooling (3 x 3, stride 2), then average pooling (2 x 2)."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), (2, 3))[:, :, ::2, ::2]
    largest = windows.max((4, 5))
    n, c, h, w = largest.shape
    spread = np.repeat(np.repeat(gradient, 2, axis=2), 2, axis=3) / 4
    back = np.zeros_like(images)
    place = windows.reshape(n, c, h, w, 9).argmax(4)
    each = np.indices((n, c, h, w))
    np.add.at(back, (each[0], each[1], 2 * each[2] + place // 3, 2 * each[3] + place % 3), spread)
    return {
        "output": largest.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5)),
        "images": back,
    }
