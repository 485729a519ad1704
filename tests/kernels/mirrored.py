"""What the tests of TensorFlow and of Keras share, for both train under MirroredStrategy."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from agreed import steps_of
from tensorflow.core.framework.dataset_options_pb2 import Options
from tensorflow.python.ops import gen_dataset_ops

from helpers.fairness import reference
from helpers.training.world import World


def tuned(patch: pytest.MonkeyPatch) -> list[bool]:
    """Whether tf.data tunes it: for each data set that is iterated from now on, our own or not.

    It reads the options that the runtime itself goes by.
    """
    found: list[bool] = []

    def watch(operation: str) -> None:
        begin = getattr(gen_dataset_ops, operation)

        def watched(dataset: tf.Tensor, *rest: Any, **options: Any) -> Any:
            said = tf.raw_ops.GetOptions(input_dataset=dataset).numpy()
            autotune = Options.FromString(said).autotune_options
            found.append(not autotune.HasField("enabled") or autotune.enabled)
            return begin(dataset, *rest, **options)

        patch.setattr(gen_dataset_ops, operation, watched)

    watch("make_iterator")
    watch("multi_device_iterator_init")
    return found


def world(names: dict[str, Any]) -> World:
    """That of the notebook's one process."""
    run = names["this_run"]
    devices = run.setup.devices
    return World(0, len(run.devices), run.devices, devices.kind, devices.gpus)


def shallow_replica(names: dict[str, Any]) -> Any:
    """What the notebook starts for a shallow network."""
    run = names["this_run"]
    with names["scope"]():
        network = run.framework.shallow(reference.shallow_arrays(), run.devices)
    return names["start"](world(names), network)


def noise(names: dict[str, Any]) -> Iterator[Any]:
    """Two images for each device, again and again."""
    crop = names["crop"]
    grey = np.random.default_rng(0).integers(0, 256, (2, crop, crop, 1), dtype=np.uint8)
    share = grey, np.zeros((2, 14), np.float32)
    batches: Iterator[Any] = names["make_fixed_loader"](world(names), [share] * 2)
    return batches


def crops(
    names: dict[str, Any], batches: Callable[..., Iterable[Any]], seed: int, epochs: int = 2
) -> np.ndarray:
    """Corner pixels of all crops of some epochs, from the first ``batches(names, count)``."""
    scaled = names["scaled"]
    names["scaled"] = replace(scaled, recipe=replace(scaled.recipe, seed=seed))
    try:
        found = batches(names, epochs * steps_of(names))
    finally:
        names["scaled"] = scaled
    return np.concatenate([grey[:, 0, :4, 0] for grey, _ in found])


class Heard(logging.Handler):
    """Keeps in ``lines`` what TensorFlow's logger says; it says as much as in Jupyter."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.lines: list[str] = []
        logger = tf.get_logger()
        patch.setattr(logger, "handlers", [self])
        patch.setattr(logger, "level", logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        # Tests start more replicas than a notebook, each with graphs of its own.
        if "retracing" not in (line := record.getMessage()):
            self.lines.append(line)
