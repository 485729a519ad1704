"""The certificate: is this framework training the same thing as the others?

Each check compares what a notebook really has (its model, its evaluation pipeline, its optimiser)
with the one definition in ``helpers``, and gives a figure, a threshold and a verdict. A run whose
certificate has a failed check is marked as not comparable wherever its times are shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from data_prep import FINDINGS
from helpers.recipe import Recipe, ScaledRecipe
from helpers.weights import Weights


@dataclass(frozen=True)
class Check:
    """One line of the certificate. ``difference`` and ``threshold`` share a unit."""

    check: str
    difference: float | None
    threshold: float | None
    reason: str | None = None

    @property
    def verdict(self) -> str:
        if self.difference is None or self.threshold is None:
            return "not checked"
        # not <=, so that NaN fails
        return "pass" if self.difference <= self.threshold else "fail"


@dataclass(frozen=True)
class Certificate:
    """All checks of one run."""

    checks: tuple[Check, ...]

    @property
    def comparable(self) -> bool:
        """False when any check failed."""
        return all(check.verdict != "fail" for check in self.checks)

    def table(self) -> pd.DataFrame:
        """One row a check, for the notebook."""
        rows = [{**asdict(check), "verdict": check.verdict} for check in self.checks]
        return pd.DataFrame(rows, columns=["check", "difference", "threshold", "verdict", "reason"])

    def as_record(self) -> dict[str, Any]:
        """The record's section ``fairness``."""
        rows = [{**asdict(check), "verdict": check.verdict} for check in self.checks]
        return {"comparable": self.comparable, "checks": rows}


def certify(
    framework: Any,
    model: Any,
    weights: Weights,
    recipe: ScaledRecipe,
    *,
    evaluate_pixels: Callable[[np.ndarray], np.ndarray],
    findings: Sequence[str],
) -> Certificate:
    """Hold a notebook's model, pixels and labels against the shared definitions.

    Args:
        framework: the module ``helpers.frameworks.<name>``.
        model: the notebook's model with the canonical weights loaded.
        evaluate_pixels: the notebook's evaluation pipeline from a grey uint8 image (H, W) to what
            the network sees, float32 (channels, crop, crop).
        findings: the notebook's label columns in its order of outputs.
    """
    checks = (
        _same_weights(framework, model, weights),
        _same_pixels(evaluate_pixels, recipe.recipe),
        _same_labels(findings),
        Check(
            "learning rate x devices",
            abs(recipe.learning_rate - recipe.recipe.learning_rate * recipe.devices),
            0.0,
        ),
        Check(
            "global batch = batch x devices",
            float(abs(recipe.global_batch - recipe.recipe.batch * recipe.devices)),
            0.0,
        ),
    )
    return Certificate(checks)


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
    grey = image[top : top + recipe.crop, left : left + recipe.crop].astype(np.float32) / 255
    mean = np.asarray(recipe.mean, np.float32)[:, None, None]
    std = np.asarray(recipe.std, np.float32)[:, None, None]
    return (grey[None] - mean) / std


def _same_weights(framework: Any, model: Any, weights: Weights) -> Check:
    held = framework.dump_weights(model)
    if held.keys() != weights.arrays.keys():
        odd = sorted(held.keys() ^ weights.arrays.keys())[0]
        return Check("initial weights", float("inf"), 0.0, f"{odd} is on one side only")
    # np.max, because Python's max() loses a NaN
    worst = np.max([np.abs(held[name] - array).max() for name, array in weights.arrays.items()])
    return Check("initial weights", float(worst), 0.0)


def _same_pixels(evaluate_pixels: Callable[[np.ndarray], np.ndarray], recipe: Recipe) -> Check:
    image = canonical_image(recipe.resized)
    seen, expected = np.asarray(evaluate_pixels(image)), expected_pixels(image, recipe)
    if seen.shape != expected.shape:
        return Check("evaluation pixels", float("inf"), 1e-5, f"shape {seen.shape}")
    return Check("evaluation pixels", float(np.abs(seen - expected).max()), 1e-5)


def _same_labels(findings: Sequence[str]) -> Check:
    misplaced = sum(ours != theirs for ours, theirs in zip(findings, FINDINGS, strict=False))
    misplaced += abs(len(findings) - len(FINDINGS))
    return Check("label order", float(misplaced), 0.0)
