"""The recipe every framework follows, and how it scales with the number of devices.

One place for each setting: a notebook never writes a number that stands here.

Sources: the network and its 14 outputs are CheXNet's (Rajpurkar et al. 2017,
https://arxiv.org/abs/1711.05225); learning rate times the number of devices is the linear
scaling rule of Goyal et al. 2017 (https://arxiv.org/abs/1706.02677); the channel means and
deviations are the ImageNet ones torchvision documents for its weights.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from data_prep import FINDINGS
from helpers.errors import UserError

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
"""What convolutions and matrix products compute in; weights and their updates are float32 in all.

``tf32`` is float32 with its products rounded to 10 bits of mantissa, by NVIDIA's tensor cores;
``bf16`` and ``fp16`` are mixed precision (Micikevicius et al. 2018,
https://arxiv.org/abs/1710.03740). A framework that cannot says so (``configure``)."""


@dataclass(frozen=True)
class Recipe:
    """What is trained, on what, and how; the same for every framework.

    Sizes are in pixels, ``batch`` is images per device, ``learning_rate`` is for one device.
    """

    name: str
    resized: int = 264
    crop: int = 224
    channels: int = 3
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    findings: tuple[str, ...] = FINDINGS
    epochs: int = 5
    batch: int = 64
    learning_rate: float = 1e-4
    warmup_epochs: float = 0.0
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8
    bn_momentum: float = 0.1
    bn_epsilon: float = 1e-5
    precision: str = "fp32"
    weights: str = "auto"  # imagenet, seeded, or auto: ImageNet's where they can be had
    seed: int = 0

    def for_images(self, pixels: int) -> "Recipe":
        """The same recipe for image files of ``pixels`` x ``pixels``.

        Crop and image keep the article's ratio of 224 to 264, so a 64 px file gets a 54 px crop.
        """
        if pixels == self.resized:
            return self
        crop = round(pixels * 224 / 264)
        if crop < 32:
            raise UserError(
                f"images of {pixels} px are too small: DenseNet121 needs a crop of at least 32 px, "
                "so resize to 38 px or more (data-prep resize SOURCE TARGET --size 38)"
            )
        return replace(self, resized=pixels, crop=crop)

    def with_batch(self, batch: int) -> "Recipe":
        """The same recipe with ``batch`` images per device and its learning rate in proportion."""
        return replace(self, batch=batch, learning_rate=self.learning_rate * batch / self.batch)

    def on(self, devices: int) -> "ScaledRecipe":
        """This recipe on ``devices`` replicas, by linear scaling."""
        if devices < 1:
            raise UserError(f"{devices} devices: a run needs at least one")
        return ScaledRecipe(
            recipe=self,
            devices=devices,
            global_batch=self.batch * devices,
            learning_rate=self.learning_rate * devices,
        )


@dataclass(frozen=True)
class ScaledRecipe:
    """A recipe on a number of devices: what the optimiser and the loaders really get."""

    recipe: Recipe
    devices: int
    global_batch: int
    learning_rate: float

    def steps(self, images: int) -> int:
        """Optimiser steps in one epoch over ``images`` images.

        The uneven last batch is dropped: averaging its gradients over replicas of different
        sizes is wrong by 11 to 34 % in every framework that averages per replica.
        """
        steps = images // self.global_batch
        if steps == 0:
            raise UserError(
                f"{images} training images do not fill one global batch of {self.global_batch} "
                f"({self.recipe.batch} x {self.devices} devices): use more images or fewer devices"
            )
        return steps

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of optimiser step ``step`` (from 0), with linear warm-up if any.

        Warm-up climbs from the one-device rate to the scaled one (Goyal et al. 2017, section 2.2).
        """
        warmup = self.recipe.warmup_epochs * steps_per_epoch
        if step >= warmup:
            return self.learning_rate
        start = self.recipe.learning_rate
        return start + (self.learning_rate - start) * step / warmup

    def as_record(self) -> dict[str, Any]:
        """Every setting as plain JSON values, for the run's record."""
        return {
            **asdict(self.recipe),
            "devices": self.devices,
            "global_batch": self.global_batch,
            "scaled_learning_rate": self.learning_rate,
        }

    def __str__(self) -> str:
        recipe = self.recipe
        return (
            f"{recipe.name}: {recipe.batch} images x {self.devices} devices = global batch "
            f"{self.global_batch}; learning rate {recipe.learning_rate:g} x {self.devices} = "
            f"{self.learning_rate:g}; crop {recipe.crop} of {recipe.resized} px; "
            f"{recipe.epochs} epochs; {recipe.precision}"
        )


RECIPES = {
    "chexnet": Recipe("chexnet"),
    # The same recipe at the smallest size DenseNet121 takes, so that two CPU cores finish it.
    "demo": Recipe("demo", resized=38, crop=32, weights="seeded"),
}


def lookup(name: str, **changes: Any) -> Recipe:
    """The recipe called ``name``, with some fields changed."""
    if name not in RECIPES:
        known = ", ".join(RECIPES)
        raise UserError(f"unknown recipe '{name}': the recipes are {known} (or auto)")
    unknown = set(changes) - {field.name for field in fields(Recipe)}
    if unknown:
        raise UserError(f"unknown recipe field '{sorted(unknown)[0]}': see helpers/recipe.py")
    if changes.get("precision", PRECISIONS[0]) not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise UserError(f"unknown precision '{changes['precision']}': it is one of {known}")
    return replace(RECIPES[name], **changes)
