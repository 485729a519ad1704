"""The settings that every framework follows, and how they scale with the number of devices.

Sources: learning rate times the number of devices is the linear scaling rule of Goyal et al. 2017
(https://arxiv.org/abs/1706.02677), times its square root that of Krizhevsky 2014
(https://arxiv.org/abs/1404.5997); the channel means and deviations are the ImageNet ones
torchvision documents for its weights. The defaults are CheXNet's (Rajpurkar et al. 2017,
https://arxiv.org/abs/1711.05225), as ``recipes/chexnet.toml`` has them.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, get_args, get_type_hints

from msgspec import Meta

from helpers.errors import UserError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS = get_args(Precision)
"""What convolutions and matrix products compute in; weights and their updates are float32 in all.

``tf32`` is float32 with its products rounded to 10 bits of mantissa, by NVIDIA's tensor cores;
``bf16`` and ``fp16`` are mixed precision (Micikevicius et al. 2018,
https://arxiv.org/abs/1710.03740). A framework without one reports that (``configure``)."""

Execution = Literal["default", "eager", "compiled"]
AS_USUAL, EAGER, COMPILED = get_args(Execution)
"""How a step is executed: as each notebook does it, operation by operation, or compiled."""

MULTILABEL, MULTICLASS = "multilabel", "multiclass"
TASKS = {MULTILABEL: ("auc",), MULTICLASS: ("top1", "top5")}
"""The metrics of sigmoids, one a finding, and of one softmax over classes; the usual one first."""

Network = Literal["densenet121", "resnet44", "resnet50", "own"]
NETWORKS = get_args(Network)[:-1]

LEAST_CROP = {"densenet121": 32, "resnet44": 8, "resnet50": 32}
"""Pixels of a side, of which one (two, in ResNet44) is left in a network's last layers."""


@dataclass(frozen=True)
class Rule:
    """An optimiser's rule, ``sgd``, ``momentum`` (which keeps a velocity) or ``adam``.

    ``weight_decay`` times the weight is added to the gradient of every weight, of BatchNorm too.
    """

    name: str
    momentum: float = 0.0
    weight_decay: float = 0.0


Pixels = Annotated[int, Meta(ge=0, le=2**14)]
Number = Annotated[int, Meta(ge=1, le=2**31 - 1)]


@dataclass(frozen=True)
class Recipe:
    """What is trained, on which images, and how; the same for every framework.

    Sizes are in pixels, ``batch_size`` is images per device, ``learning_rate`` is for one device.
    With ``image_size`` 0 images have whatever size they have, and no crop is taken of them.
    ``own`` is custom code, ``mine.py:net``, by the framework's module or ``reader``, and ``code``
    the SHA-256 of each such file. ``sha256`` is a digest of the tables that decide the training.
    ``demo`` says that the table ``[demo]`` holds.

    A field with a title has to be equal in runs that are compared.
    """

    name: Annotated[str, Meta(title="recipe")]
    image_size: Pixels = 264
    crop: Annotated[Pixels, Meta(title="crop in pixels")] = 224
    channels: int = 3
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    epochs: Annotated[Number, Meta(title="epochs")] = 5
    batch_size: Annotated[Number, Meta(title="batch per device")] = 64
    # A rate of 1e-12 still takes steps that are float32 numbers of full precision.
    learning_rate: Annotated[float, Meta(ge=1e-12, le=1000, title="learning rate per device")] = (
        1e-4
    )
    warmup_epochs: Annotated[float, Meta(ge=0, le=1e9, title="warm-up epochs")] = 0.0
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8
    bn_momentum: float = 0.1
    bn_epsilon: float = 1e-5
    precision: Annotated[Precision, Meta(title="precision")] = "fp32"
    execution: Annotated[Execution, Meta(title="execution")] = "default"
    weights: Literal["auto", "imagenet", "random"] = "auto"  # auto: ImageNet's if to be had
    seed: Annotated[int, Meta(title="seed")] = 0
    task: Annotated[Literal["multilabel", "multiclass"], Meta(title="task")] = "multilabel"
    # "own" where each framework has its own
    network: Annotated[Network, Meta(title="network")] = "densenet121"
    reader: Annotated[str, Meta(title="reader")] = "nih"  # "own" where it is custom code
    folder: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)  # the reader's own
    color_mode: Literal["grayscale", "rgb"] = "grayscale"
    optimizer: Literal["sgd", "adam"] = "adam"
    momentum: Annotated[float, Meta(ge=0, le=0.9999)] = 0.0  # of the optimiser "sgd" alone
    weight_decay: Annotated[float, Meta(ge=0, le=1)] = 0.0  # added to the gradients of all weights
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"  # with the number of devices
    lr_gamma: Annotated[float, Meta(gt=0, le=1)] = 1.0
    lr_milestones: tuple[Number, ...] = ()  # after these the rate is multiplied by lr_gamma
    metric: Literal["auc", "top1", "top5"] = "auc"
    quality_targets: tuple[Annotated[float, Meta(gt=0, le=1)], ...] = ()  # of the metric
    own: dict[str, str] = field(default_factory=dict)
    beside: str = ""  # the folder of the custom code
    code: dict[str, str] = field(default_factory=dict)
    demo: bool = False
    sha256: str = ""

    def for_images(self, pixels: int) -> "Recipe":
        """The same recipe for images of ``pixels`` x ``pixels``, or whose shorter side that is.

        Crop and image keep their ratio; the NIH's images the article's of 224 to 264, so that a
        64 px file gets a 54 px crop. Without a size of the recipe's own no crop is taken.

        Raises:
            UserError: too small a crop for the network.
        """
        crop, ratio = self.crop, 1.0
        if self.image_size:
            ratio = 224 / 264 if self.reader == "nih" else self.crop / self.image_size
        if pixels != self.image_size:
            crop = max(round(pixels * ratio), 1)
        least = LEAST_CROP.get(self.network, 1)
        if crop < least:
            enough = math.ceil(least / ratio)
            raise UserError(
                f"images of {pixels} px are too small: {self.network} needs a crop of at least "
                f"{least} px, so resize to {enough} px or more "
                f"(data-prep resize SOURCE TARGET --size {enough})"
            )
        return replace(self, image_size=pixels, crop=crop)

    @property
    def planes(self) -> int:
        """The planes of an image: 1 (grey) or 3 (RGB)."""
        return 3 if self.color_mode == "rgb" else 1

    @property
    def rule(self) -> Rule:
        """The optimiser's rule."""
        momentum = self.momentum if self.optimizer == "sgd" else 0.0
        return Rule("momentum" if momentum else self.optimizer, momentum, self.weight_decay)

    def digests(self) -> dict[str, str]:
        """SHA-256 by file: of the recipe itself, and of its custom code."""
        return {f"{self.name}.toml": self.sha256, **self.code}

    def lacks(self, framework: str) -> str | None:
        """Why a framework's module has nothing to train; None if it has."""
        if self.network != "own" or framework in self.own:
            return None
        has = ", ".join(what for what in self.own if what != "reader")
        return f"the recipe {self.name} has no network of its own for {framework}, only for {has}"

    def with_batch_size(self, batch_size: int) -> "Recipe":
        """The same recipe with another batch size, and its learning rate scaled accordingly."""
        rate = self.learning_rate * self.growth(batch_size / self.batch_size)
        return replace(self, batch_size=batch_size, learning_rate=rate)

    def growth(self, times: float) -> float:
        """The factor of the learning rate if a batch is ``times`` as large."""
        return {"linear": times, "sqrt": math.sqrt(times), "none": 1.0}[self.lr_scaling]

    def on(self, devices: int) -> "ScaledRecipe":
        """This recipe on ``devices`` replicas, its learning rate scaled as it says."""
        rate = self.learning_rate * self.growth(devices)
        return ScaledRecipe(self, devices, self.batch_size * devices, rate)


def must_agree() -> dict[str, str]:
    """The fields that have to be equal in runs that are compared, by what they are."""
    found = get_type_hints(Recipe, include_extras=True).items()
    kinds = [(name, getattr(kind, "__metadata__", ())) for name, kind in found]
    return {each.title: name for name, metas in kinds for each in metas if each.title}


@dataclass(frozen=True)
class ScaledRecipe:
    """A recipe on a number of devices: what the optimiser and the loaders really get."""

    recipe: Recipe
    devices: int
    global_batch_size: int
    learning_rate: float

    def steps(self, images: int) -> int:
        """Optimiser steps in one epoch over ``images`` images.

        The uneven last batch is dropped: averaging its gradients over replicas of different
        sizes is wrong by 11 to 34 % in every framework that averages per replica.

        Raises:
            UserError: the images do not fill one global batch.
        """
        steps = images // self.global_batch_size
        if steps == 0:
            raise UserError(
                f"{images} training images do not fill one global batch of "
                f"{self.global_batch_size} ({self.recipe.batch_size} x {self.devices} devices): "
                "use a smaller batch size, fewer devices or more images"
            )
        return steps

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate of optimiser step ``step`` (from 0): linear warm-up, then drops.

        Warm-up climbs from the one-device rate to the scaled one (Goyal et al. 2017, section 2.2).
        """
        warmup = self.recipe.warmup_epochs * steps_per_epoch
        rate, start = self.learning_rate, self.recipe.learning_rate
        if step < warmup:
            rate = start + (rate - start) * step / warmup
        dropped = sum(step >= epoch * steps_per_epoch for epoch in self.recipe.lr_milestones)
        return rate * self.recipe.lr_gamma**dropped

    def as_record(self) -> dict[str, Any]:
        """Every setting as plain JSON values, for the run's record."""
        scaled = {"devices": self.devices, "global_batch_size": self.global_batch_size}
        return asdict(self.recipe) | scaled | {"scaled_learning_rate": self.learning_rate}

    def __str__(self) -> str:
        recipe, growth = self.recipe, self.recipe.growth(self.devices)
        schedule = f", warm-up epochs {recipe.warmup_epochs:g}" if recipe.warmup_epochs else ""
        if after := ", ".join(map(str, recipe.lr_milestones)):
            schedule += f", x {recipe.lr_gamma:g} after epochs {after}"
        momentum = f" with momentum {recipe.momentum:g}" if recipe.momentum else ""
        decay = f", weight decay {recipe.weight_decay:g}" if recipe.weight_decay else ""
        execution = f", {recipe.execution}" if recipe.execution != AS_USUAL else ""
        return (
            f"{recipe.name}: {recipe.batch_size} images x {self.devices} "
            f"device{'s' * (self.devices != 1)} = global batch "
            f"{self.global_batch_size}; {recipe.optimizer}{momentum}{decay}; learning rate "
            f"{recipe.learning_rate:g} x {growth:.4g} = {self.learning_rate:g}{schedule}; "
            f"crop {recipe.crop} of {recipe.image_size} px; "
            f"{recipe.epochs} epoch{'s' * (recipe.epochs != 1)}; {recipe.precision}{execution}"
        )
