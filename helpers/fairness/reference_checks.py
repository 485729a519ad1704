"""The fairness check of pixels, weights, network and gradients against the float64 reference.

Each check compares what a notebook really has (its pixels, its network, its training loop) with
the one definition in ``helpers`` or with the float64 reference, and gives a number, a threshold and
a verdict. A run with a failed check is marked as not comparable wherever its times are shown.
Differences that cannot be removed are measured: the verdict is *expected* only if a stated cause
predicts the found value to within the threshold.

Both sides compute in float64 and agree to 1e-10 or better (found: 2e-13), except for pixels, which
are float32. ``helpers.fairness.training_loop`` checks the training loop.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from helpers.fairness import reference
from helpers.fairness.check_results import Check
from helpers.recipe import RECIPES, Recipe

EXACT, SINGLE = 1e-10, 1e-5
STATISTICS = 1e-6  # MXNet keeps BatchNorm's momentum in single precision, whatever it computes in

BIASED = "stores the biased variance of a batch, (n-1)/n of PyTorch's, with n values a channel"
AVERAGE_OF_AVERAGES = (
    "averages the devices' means, which is not the mean over the images where devices have "
    "unequal shares: the loader drops the uneven last batch"
)


def same_weights(held: Mapping[str, np.ndarray], initial: Mapping[str, np.ndarray]) -> Check:
    """Largest difference between a model's weights and the canonical ones."""
    if held.keys() != initial.keys():
        odd = sorted(held.keys() ^ initial.keys())[0]
        return Check("initial weights", float("inf"), 0.0, f"{odd} is on one side only")
    # np.max, because Python's max() loses a NaN
    worst = np.max([np.abs(held[name] - array).max() for name, array in initial.items()])
    return Check("initial weights", float(worst), 0.0)


def same_network(
    framework: Any, network: Any, device: Sequence[Any], architecture: str = "densenet121"
) -> list[Check]:
    """Compare a float64 network, with the reference's weights, with the reference on one device."""
    known = reference.load(architecture)
    grey, targets = reference.batch(architecture)
    images = reference.network_input(grey)
    loss, gradients = framework.gradients(network, images, targets, device)
    return [
        same_logits(framework, network, architecture),
        Check("loss", abs(loss - float(known["loss"])), EXACT),
        *(
            Check(f"gradient of {name.removesuffix('.weight')}", error, EXACT)
            for name, error in reference.gradient_errors(gradients, architecture).items()
        ),
    ]


def same_logits(framework: Any, network: Any, architecture: str) -> Check:
    """Compare the logits of a float64 network that has the reference's weights."""
    images = reference.network_input(reference.batch(architecture)[0])
    known = reference.load(architecture)["logits"]
    difference = np.abs(framework.logits(network, images) - known).max()
    return Check("logits, evaluation", float(difference), EXACT)


def same_in_training(
    framework: Any,
    build_model: Callable[[Mapping[str, np.ndarray]], Any],
    network: Any,
    architecture: str = "densenet121",
) -> list[Check]:
    """Compare one pass in training mode: its logits and the running statistics after it."""
    known, start = reference.load(architecture), reference.arrays(architecture)
    reason = framework.SKIPPED.get("training in float64")
    if reason is not None:
        network = build_model(start)
    images = reference.network_input(reference.batch(architecture)[0])
    logits, after = framework.train_forward(network, images)
    single = reference.KEPT[architecture].single
    logits_limit, limit = (EXACT, STATISTICS) if reason is None else (single, single)
    difference = float(np.abs(logits - known["train logits"]).max())
    return [
        Check("logits, training", difference, logits_limit, reason),
        *running_statistics(
            after, known, start, 1, limit, "after a step", reference.KEPT[architecture].norms
        ),
    ]


N_AGAINST_ONE = ("gradients, n devices / one", "gradients, uneven batch, n devices / one")


def with_one_device(reason: str = "there is one device") -> list[Check]:
    """The rows of n devices if there is one, or the others are not at hand."""
    return [Check(name, None, None, reason) for name in N_AGAINST_ONE]


def same_on_all_devices(
    framework: Any, network: Any, devices: Sequence[Any], architecture: str = "densenet121"
) -> list[Check]:
    """Compare the gradients of n devices with those of one on the same batch; BatchNorm is frozen.

    An even batch goes through the whole network; an uneven one, an image short, through the
    shallow net, where what a device counts for shows as well.
    """
    count = len(devices)
    if count == 1:
        return with_one_device()

    def run(on: Sequence[Any]) -> np.ndarray:
        _, found = framework.gradients(network, images[even], targets[even], on)
        return np.concatenate([found[name].ravel() for name in only])

    grey, targets = _at_least(2 * count, *reference.batch(architecture))
    images = reference.network_input(grey)
    even, only = slice(0, count * (len(grey) // count)), reference.KEPT[architecture].gradients
    if even.stop == reference.IMAGES:  # one device is known to give what the reference gives
        one = np.concatenate([reference.load(architecture)[name].ravel() for name in only])
    else:
        one = run(devices[:1])
    each = run(devices)
    difference = reference.relative(each, one)
    even_row = Check(N_AGAINST_ONE[0], difference, EXACT, scale_in_words(each, one, EXACT, count))
    return [even_row, uneven_on_all_devices(framework, devices, architecture)]


def uneven_on_all_devices(
    framework: Any, devices: Sequence[Any], architecture: str = "densenet121"
) -> Check:
    """Check the shallow network with a batch that gives one device an image less."""

    def run(part: slice, on: Sequence[Any]) -> np.ndarray:
        _, found = framework.gradients(shallow, images[part], targets[part], on)
        return np.concatenate([found[name].ravel() for name in sorted(found)])

    count = len(devices)
    grey, targets = _at_least(2 * count, *reference.batch(architecture))
    images = reference.network_input(grey)
    doubles = {name: a.astype(np.float64) for name, a in reference.shallow_arrays().items()}
    shallow = framework.shallow(doubles, devices)
    uneven = slice(0, 2 * count - 1)
    one, each = run(uneven, devices[:1]), run(uneven, devices)
    difference = reference.relative(each, one)
    shares = [slice(i[0], i[-1] + 1) for i in np.array_split(np.arange(uneven.stop), count)]
    mean = np.mean([run(share, devices[:1]) for share in shares], axis=0)
    rest = reference.relative(each, mean)
    if rest <= EXACT < difference:
        return Check(N_AGAINST_ONE[1], difference, EXACT, AVERAGE_OF_AVERAGES, rest)
    return Check(N_AGAINST_ONE[1], difference, EXACT, scale_in_words(each, one, EXACT, count))


def running_statistics(
    found: Mapping[str, np.ndarray],
    known: Mapping[str, np.ndarray],
    before: Mapping[str, np.ndarray],
    steps: int,
    threshold: float,
    when: str,
    norms: Mapping[str, int],
) -> list[Check]:
    """Running mean and variance of ``norms`` against the reference's, the worst layer of each."""
    means, unbiased, biased = [], [], []
    kept = (1 - RECIPES["chexnet"].bn_momentum) ** steps
    for norm, side in norms.items():
        name = f"{norm}.running_mean"
        means.append(reference.relative(found[name], known[name]))
        name, n = f"{norm}.running_var", reference.IMAGES * side**2
        old = kept * before[name].astype(np.float64)
        unbiased.append(reference.relative(found[name], known[name]))
        expected = old + (known[name] - old) * (n - 1) / n
        biased.append(reference.relative(found[name], expected))
    # np.max, because Python's max() loses a NaN
    mean, difference, rest = (float(np.max(errors)) for errors in (means, unbiased, biased))
    reason = BIASED if rest <= threshold < difference else None
    return [
        Check(f"running mean {when}", mean, threshold),
        Check(f"running variance {when}", difference, threshold, reason, rest),
    ]


def scale_in_words(found: np.ndarray, known: np.ndarray, limit: float, devices: int) -> str:
    """How long ``found`` is and where it points; what a sum over the devices would be is named."""
    if reference.relative(found, known) <= limit:
        return "as long as expected: a mean, not a sum"
    along, long = float(np.vdot(found, known)), float(np.linalg.norm(found))
    whole = float(np.linalg.norm(known))
    scale, cosine = long / whole, along / (long * whole or 1.0)
    angle = float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))
    said = f"{scale:.3g} times as long"
    if devices > 1 and angle <= ALIKE:
        if abs(scale / devices - 1) <= NEAR:
            return f"{said}: a sum in place of a mean?"
        if abs(scale * devices - 1) <= NEAR:
            return f"{said}: divided by the devices twice?"
    return f"{said}, at an angle of {angle:.1f} degrees"


ALIKE, NEAR = 5.0, 0.05
"""Degrees between what points in one direction, and how near a multiple is the devices' number:
several steps of twice the length do not end at exactly twice the way."""


def canonical_image(pixels: int, planes: int = 1) -> np.ndarray:
    """A uint8 image (pixels, pixels, planes) that no crop, flip or resize leaves unchanged.

    Nor does another order of its planes.
    """
    y, x = np.mgrid[:pixels, :pixels]
    each = [(3 + plane) * x + (7 - plane) * y + (x * y) // (5 + plane) for plane in range(planes)]
    return (np.stack(each, axis=-1) % 256).astype(np.uint8)


def expected_pixels(image: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The network's correct input in an evaluation: the centre crop, normalised per channel.

    Grey is repeated on every channel; float32 (3, crop, crop).
    """
    crop = centre_crop(image, recipe.crop)
    return reference.network_input(crop[None], recipe)[0].astype(np.float32)


def centre_crop(image: np.ndarray, crop: int) -> np.ndarray:
    """The middle of an image (H, W, planes), uint8 (crop, crop, planes).

    torchvision's convention for an odd margin: the offset is rounded to the nearest even integer.
    """
    top, left = (round((side - crop) / 2) for side in image.shape[:2])
    return image[top : top + crop, left : left + crop]


def _at_least(count: int, grey: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The batch, made longer by its own mirror images where it is too short."""
    while len(grey) < count:
        grey = np.concatenate([grey, grey[:, ::-1, ::-1] // 2])
        targets = np.concatenate([targets, 1 - targets])
    return grey, targets
