"""The certificate: is this framework training the same thing as the others?

Each check compares what a notebook really has (its pixels, its network, its training loop) with
the one definition in ``helpers`` or with the float64 reference, and gives a figure, a threshold
and a verdict. A run whose certificate has a failed check is marked as not comparable wherever its
times are shown. What cannot be made equal is measured: the verdict is *known* where a stated
cause predicts the found value to within the threshold, and only there.

Thresholds: where both sides compute in float64 they agree to 1e-10 or better (found: 1e-14). The
training loop runs in the notebook's own float32, of which DenseNet's BatchNorm amplifies the
rounding: five steps agree to 1e-3 (found: 3e-4).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from data_prep import FINDINGS
from helpers import reference
from helpers.recipe import RECIPES, Recipe, ScaledRecipe
from helpers.weights import Arrays, Weights

EXACT, SINGLE, PATH, LENGTH = 1e-10, 1e-5, 1e-3, 1e-2
STATISTICS = 1e-6  # MXNet keeps BatchNorm's momentum in single precision, whatever it computes in

BIASED = "stores the biased variance of a batch, (n-1)/n of PyTorch's, with n values a channel"
AVERAGE_OF_AVERAGES = (
    "averages the devices' means, which is not the mean over the images where devices have "
    "unequal shares: the loader drops the uneven last batch"
)


@dataclass(frozen=True)
class Check:
    """One line of the certificate. ``difference``, ``threshold`` and ``rest`` share a unit.

    ``rest`` is what is left of the difference once ``reason`` is taken account of; None where
    there is no known reason.
    """

    check: str
    difference: float | None
    threshold: float | None
    reason: str | None = None
    rest: float | None = None

    @property
    def verdict(self) -> str:
        if self.difference is None or self.threshold is None:
            return "not checked"
        # <= and not >, so that NaN fails
        if self.difference <= self.threshold:
            return "pass"
        return "known" if self.rest is not None and self.rest <= self.threshold else "fail"

    def as_record(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "difference": self.difference,
            "threshold": self.threshold,
            "verdict": self.verdict,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Certificate:
    """All checks of one run, and how long they took."""

    checks: tuple[Check, ...]
    seconds: float = 0.0

    @property
    def comparable(self) -> bool:
        """False when any check failed."""
        return all(check.verdict != "fail" for check in self.checks)

    def table(self) -> pd.DataFrame:
        """One row a check, for the notebook."""
        rows = [check.as_record() for check in self.checks]
        return pd.DataFrame(rows).set_index("check").fillna({"reason": ""})

    def as_record(self) -> dict[str, Any]:
        """The record's section ``fairness``."""
        checks = [check.as_record() for check in self.checks]
        return {"comparable": self.comparable, "seconds": self.seconds, "checks": checks}


@dataclass(frozen=True)
class Trial:
    """What a notebook's training loop is to do for the check, whatever its recipe says.

    ``shares`` holds a batch for each device, grey uint8 (n, H, W) and targets float32 (n, 14);
    ``steps`` steps are to be taken on the same batches, by ``rule`` (``sgd`` or ``adam``) at
    ``rate``, from ``weights``.
    """

    weights: Arrays
    shares: tuple[tuple[np.ndarray, np.ndarray], ...]
    rule: str
    rate: float
    steps: int


Rehearsal = Callable[[Trial], tuple[float, Mapping[str, np.ndarray]]]
"""Takes a trial's steps; their mean loss, and the weights afterwards by canonical names."""


def certify(
    framework: Any,
    model: Any,
    weights: Weights,
    recipe: ScaledRecipe,
    *,
    build_model: Callable[[Mapping[str, np.ndarray]], Any],
    devices: Sequence[Any],
    evaluate_pixels: Callable[[np.ndarray], np.ndarray],
    findings: Sequence[str],
) -> Certificate:
    """Hold a notebook's inputs and network against the shared definitions and the reference.

    Args:
        framework: the module ``helpers.frameworks.<name>``.
        model: the notebook's model with the canonical weights loaded.
        build_model: the notebook's function that makes such a model.
        devices: the replicas' devices.
        evaluate_pixels: the notebook's evaluation pipeline from a grey uint8 image (H, W) to what
            the network sees, float32 (channels, crop, crop).
        findings: the notebook's label columns in its order of outputs.
    """
    began = time.perf_counter()
    network = framework.exact(build_model, reference.arrays())
    checks = (
        same_weights(framework.dump_weights(model), weights.arrays),
        *same_inputs(evaluate_pixels, findings, recipe),
        *same_network(framework, network, devices[:1]),
        *same_in_training(framework, build_model, network),
        *same_on_all_devices(framework, network, devices),
    )
    return Certificate(checks, time.perf_counter() - began)


def certify_training(
    certificate: Certificate, rehearse: Rehearsal, *, devices: int, steps: int = reference.STEPS
) -> Certificate:
    """Add what the notebook's own training loop does, over all its devices, in its own precision.

    Every device is given the same batch: then any number of devices must walk the path of one,
    which is the reference's, and a sum in place of a mean shows as a step ``devices`` times as
    long. (Plain gradient descent shows it; Adam divides it away.)

    Args:
        steps: of the reference's 5, how many to take; fewer where each is slow.
    """
    began = time.perf_counter()
    checks = (
        *_on_path(rehearse, "sgd", devices, steps),
        *_on_path(rehearse, "adam", devices, steps),
        _survivor(rehearse, devices),
    )
    seconds = certificate.seconds + time.perf_counter() - began
    return Certificate((*certificate.checks, *checks), seconds)


def same_weights(held: Mapping[str, np.ndarray], initial: Mapping[str, np.ndarray]) -> Check:
    """Largest difference between a model's weights and the canonical ones."""
    if held.keys() != initial.keys():
        odd = sorted(held.keys() ^ initial.keys())[0]
        return Check("initial weights", float("inf"), 0.0, f"{odd} is on one side only")
    # np.max, because Python's max() loses a NaN
    worst = np.max([np.abs(held[name] - array).max() for name, array in initial.items()])
    return Check("initial weights", float(worst), 0.0)


def same_inputs(
    evaluate_pixels: Callable[[np.ndarray], np.ndarray],
    findings: Sequence[str],
    recipe: ScaledRecipe,
) -> list[Check]:
    """Pixels at evaluation, order of the labels, and how the recipe is scaled."""
    image = canonical_image(recipe.recipe.resized)
    seen = np.asarray(evaluate_pixels(image))
    expected = expected_pixels(image, recipe.recipe)
    same_shape = seen.shape == expected.shape
    pixels = float(np.abs(seen - expected).max()) if same_shape else float("inf")
    misplaced = sum(ours != theirs for ours, theirs in zip(findings, FINDINGS, strict=False))
    misplaced += abs(len(findings) - len(FINDINGS))
    rate = abs(recipe.learning_rate - recipe.recipe.learning_rate * recipe.devices)
    batch = abs(recipe.global_batch - recipe.recipe.batch * recipe.devices)
    return [
        Check("evaluation pixels", pixels, SINGLE, None if same_shape else f"shape {seen.shape}"),
        Check("label order", float(misplaced), 0.0),
        Check("learning rate x devices", rate, 0.0),
        Check("global batch = batch x devices", float(batch), 0.0),
    ]


def same_network(framework: Any, network: Any, device: Sequence[Any]) -> list[Check]:
    """A float64 network with the reference's weights against the reference, on one device."""
    known = reference.load()
    grey, targets = reference.batch()
    images = reference.network_input(grey)
    logits = np.abs(framework.logits(network, images) - known["logits"]).max()
    loss, gradients = framework.gradients(network, images, targets, device)
    return [
        Check("logits, evaluation", float(logits), EXACT),
        Check("loss", abs(loss - float(known["loss"])), EXACT),
        *(
            Check(f"gradient of {name.removesuffix('.weight')}", error, EXACT)
            for name, error in reference.gradient_errors(gradients).items()
        ),
    ]


def same_in_training(
    framework: Any, build_model: Callable[[Mapping[str, np.ndarray]], Any], network: Any
) -> list[Check]:
    """One pass in training mode: its logits and the running statistics after it."""
    known, start = reference.load(), reference.arrays()
    reason = framework.skip("training in float64")
    if reason is not None:
        network = build_model(start)
    logits, after = framework.train_forward(network, reference.network_input(reference.batch()[0]))
    logits_limit, limit = (EXACT, STATISTICS) if reason is None else (SINGLE, SINGLE)
    difference = float(np.abs(logits - known["train logits"]).max())
    return [
        Check("logits, training", difference, logits_limit, reason),
        *_statistics(after, known, start, 1, limit, "after a step"),
    ]


def same_on_all_devices(framework: Any, network: Any, devices: Sequence[Any]) -> list[Check]:
    """Gradients of n devices against one with the same batch; BatchNorm frozen.

    The second batch has an image less than would share out evenly.
    """
    count = len(devices)
    names = ("gradients, n devices / one", "gradients, uneven batch, n devices / one")
    if count == 1:
        return [Check(name, None, None, "there is one device") for name in names]
    grey, targets = _at_least(2 * count, *reference.batch())
    checks = []
    for name, images in zip(names, (2 * count, 2 * count - 1), strict=True):
        x, y = reference.network_input(grey[:images]), targets[:images]
        one = _flat(framework.gradients(network, x, y, devices[:1]))
        all_devices = _flat(framework.gradients(network, x, y, devices))
        difference = reference.relative(all_devices, one)
        if difference <= EXACT or images == 2 * count:
            checks.append(Check(name, difference, EXACT, _said(_scale(all_devices, one))))
            continue
        shares = zip(np.array_split(x, count), np.array_split(y, count), strict=True)
        each = [_flat(framework.gradients(network, *share, devices[:1])) for share in shares]
        rest = reference.relative(all_devices, np.mean(each, axis=0))
        checks.append(Check(name, difference, EXACT, AVERAGE_OF_AVERAGES, rest))
    return checks


def canonical_image(pixels: int) -> np.ndarray:
    """A grey uint8 image (pixels, pixels) that no crop, flip or resize leaves unchanged."""
    y, x = np.mgrid[:pixels, :pixels]
    return ((3 * x + 7 * y + (x * y) // 5) % 256).astype(np.uint8)


def expected_pixels(image: np.ndarray, recipe: Recipe) -> np.ndarray:
    """What the network is to see at evaluation: the centre crop, normalised per channel.

    Grey is repeated on every channel; float32 (channels, crop, crop). torchvision's convention
    for an odd margin: the offset is rounded to the nearest even integer.
    """
    top = round((image.shape[0] - recipe.crop) / 2)
    left = round((image.shape[1] - recipe.crop) / 2)
    crop = image[top : top + recipe.crop, left : left + recipe.crop]
    return reference.network_input(crop[None], recipe)[0].astype(np.float32)


def _on_path(rehearse: Rehearsal, rule: str, devices: int, steps: int) -> list[Check]:
    """The loop's first steps by ``rule`` against the reference's."""
    known, start = reference.load(), reference.arrays()
    trial = Trial(start, (reference.batch(),) * devices, rule, reference.RATES[rule], steps)
    loss, after = rehearse(trial)
    difference = abs(loss - float(known[f"{rule} losses"][:steps].mean()))
    taken = f"{steps} {rule.upper() if rule == 'sgd' else 'Adam'} step{'s' if steps > 1 else ''}"
    checks = [Check(f"mean loss of {taken}", difference, PATH)]
    if rule == "adam":
        return checks
    scales = [
        _scale(after[name] - start[name], known[f"sgd moved {name}"][steps - 1])
        for name in reference.MOVED
    ]
    furthest = max(scales, key=lambda scale: abs(scale - 1))
    checks.append(Check("length of a step, n devices / one", abs(furthest - 1), LENGTH,
                        _said(furthest)))  # fmt: skip
    # Of the first layer: what reaches the last has been amplified by rounding.
    norm = "features.norm0"
    there = {
        f"{norm}.{part}": known[f"sgd {norm}.{part}"][steps - 1]
        for part in ("running_mean", "running_var")
    }
    return checks + _statistics(after, there, start, steps, PATH, f"after {taken}", [norm])


def _statistics(
    found: Mapping[str, np.ndarray],
    known: Mapping[str, np.ndarray],
    before: Mapping[str, np.ndarray],
    steps: int,
    threshold: float,
    when: str,
    norms: Sequence[str] = tuple(reference.NORMS),
) -> list[Check]:
    """Running mean and variance of ``norms`` against the reference's, the worst layer of each."""
    means, unbiased, biased = [], [], []
    kept = (1 - RECIPES["chexnet"].bn_momentum) ** steps
    for norm in norms:
        name = f"{norm}.running_mean"
        means.append(reference.relative(found[name], known[name]))
        name, n = f"{norm}.running_var", reference.IMAGES * reference.NORMS[norm] ** 2
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


def _survivor(rehearse: Rehearsal, devices: int) -> Check:
    """Whose BatchNorm statistics are in the weights: found by giving each device other images."""
    name = "whose BatchNorm statistics survive"
    if devices == 1:
        return Check(name, None, None, "there is one device")
    grey, targets = reference.batch()
    shares = tuple((grey // (1 + number), targets) for number in range(devices))
    start = reference.arrays()
    _, after = rehearse(Trial(start, shares, "sgd", 0.0, 1))
    momentum = RECIPES["chexnet"].bn_momentum
    old = start["features.norm0.running_mean"]
    each = [
        (1 - momentum) * old + momentum * _mean_after_conv0(start, share) for share, _ in shares
    ]
    candidates = {f"replica {number}'s": mean for number, mean in enumerate(each)}
    candidates["the average of all replicas'"] = np.mean(each, axis=0)
    found = after["features.norm0.running_mean"]
    errors = {who: reference.relative(found, mean) for who, mean in candidates.items()}
    nearest = min(errors, key=lambda who: errors[who])
    return Check(name, errors[nearest], PATH, f"{nearest}")


def _mean_after_conv0(start: Mapping[str, np.ndarray], grey: np.ndarray) -> np.ndarray:
    """Mean of the first convolution's output over images and pixels, float64 (64,)."""
    images = np.pad(reference.network_input(grey), ((0, 0), (0, 0), (3, 3), (3, 3)))
    kernel = start["features.conv0.weight"].astype(np.float64)
    side = grey.shape[1]
    means = [
        [images[:, :, y : y + side : 2, x : x + side : 2].mean(axis=(0, 2, 3)) for x in range(7)]
        for y in range(7)
    ]
    return np.einsum("ocyx,yxc->o", kernel, np.array(means))


def _at_least(count: int, grey: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The batch, made longer by its own mirror images where it is too short."""
    while len(grey) < count:
        grey = np.concatenate([grey, grey[:, ::-1, ::-1] // 2])
        targets = np.concatenate([targets, 1 - targets])
    return grey, targets


def _flat(result: tuple[float, Mapping[str, np.ndarray]]) -> np.ndarray:
    """All gradients as one vector."""
    return np.concatenate([result[1][name].ravel() for name in sorted(result[1])])


def _scale(found: np.ndarray, known: np.ndarray) -> float:
    """How many times as long as ``known`` ``found`` is, along it."""
    return float(np.vdot(found, known) / np.vdot(known, known))


def _said(scale: float) -> str:
    if abs(scale - 1) <= LENGTH:
        return "the devices' gradients are averaged"
    return f"{scale:.3g} times as long: a sum in place of a mean?"
