"""Estimate the memory that a network's training needs on a device, from the shapes of its arrays.

Weights, gradients and the optimiser's moments are float32, the activations of a batch are of the
precision's type. Not counted: the framework itself, workspaces of convolutions, buffers of an
all-reduce, and batches that the loader has read ahead.
"""

import math

from helpers.frameworks import devices as device_helpers
from helpers.frameworks import memory
from helpers.frameworks.devices import Devices
from helpers.frameworks.precisions import DTYPES
from helpers.networks import shapes
from helpers.recipe import Recipe

_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


def of_device(recipe: Recipe, outputs: int, devices: Devices) -> int | None:
    """The bytes on each device, of a GPU for all replicas that share it; None of an own network."""
    if recipe.network == "own":
        return None
    arrays = shapes.shapes(recipe.network, outputs).items()
    running = sum(math.prod(of) for name, of in arrays if name.endswith(shapes.RUNNING))
    trained = sum(math.prod(of) for _, of in arrays) - running
    kept = recipe.batch_size * shapes.activations(recipe.network, outputs, recipe.crop)
    copies = 2 + len(recipe.rule.moments)  # with the weights and their gradients
    of_replica = 4 * (running + copies * trained) + _SIZES[DTYPES[recipe.precision]] * kept
    return of_replica * math.ceil(devices.count / (devices.shared_gpus or devices.count))


def lines(estimate: int | None, recipe: Recipe, devices: Devices) -> list[str]:
    """The estimate in a line; in another a warning where a GPU has less memory than that."""
    if estimate is None:
        return ["The memory that training needs is not known for your own network."]
    needs = f"needs about {_gib(estimate)} GiB on each device"
    said = (
        f"Training {needs} for weights, gradients, moments and the activations of "
        f"{recipe.batch_size} images. The framework's own memory and its workspaces are not "
        "counted."
    )
    gpus = device_helpers.used(devices.count, devices.gpus)
    there = memory.of_smallest_gpu([gpu.uuid for gpu in gpus])
    if there is None or estimate <= there:
        return [said]
    warning = (
        f"warning: training {needs}, and a GPU has {_gib(there)} GiB: lower batch_size, or set "
        "batch_size = 'auto' for the largest that fits"
    )
    return [said, warning]


def _gib(size: int) -> str:
    return f"{size / 2**30:.2g}" if size < 10 * 2**30 else f"{size / 2**30:,.0f}"
