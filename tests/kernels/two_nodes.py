"""What the tests of runs over two nodes share: a few steps there, and the same in one process."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest
from notebook_cells import CERTIFIED, namespace_of

from helpers.fairness import reference
from helpers.frameworks import place
from helpers.launch.causes import RankError
from helpers.training import in_world
from helpers.training.in_world import Work
from helpers.training.world import World

# Ranks do not know this module: what of it is called there travels by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Found = Mapping[str, Any]
BATCH, EPOCHS = 8, 2
END_SECONDS = 15


def names_of(notebook: str, folder: Path, **given: Any) -> dict[str, Any]:
    """The notebook's names before it trains, of a small recipe."""
    folder.mkdir(exist_ok=True)
    recipe = folder / "small.toml"
    recipe.write_text('recipe = "demo"\n[model]\nnetwork = "resnet44"\n[data]\nresized = 264\ncrop = 32\n')
    given = {"recipe": str(recipe), "batch_size": BATCH, "workers": 2} | given
    return namespace_of(notebook, folder, until=CERTIFIED, checked=False, **given)


def few_steps(world: World, work: Work) -> Found:
    """Two epochs of the shallow network on the run's images, and an evaluation."""
    lesson, framework = work.lesson, work.framework
    with lesson.scope():
        network = framework.shallow(reference.shallow_arrays(), world.devices)
    replica = lesson.start(world, network)
    loader = lesson.make_train_loader(world, 0, work.workers)
    lesson.ready(replica, [loader])
    steps, part = work.recipe.steps(len(work.images.train)), work.images.valid[:-1]
    losses = [in_world.take_steps(work, replica, loader, steps)[0] for _ in range(EPOCHS)]
    found = iter(lesson.make_evaluation_loader(world, part, work.workers))
    logits, loss = in_world.predict(lesson, replica, found, len(part))
    state = framework.dump_optimizer(replica.network, replica.optimizer)
    weights = framework.dump_weights(replica.network)
    slowest = framework.slowest(float(world.rank), world.devices)
    lesson.stop(replica)
    return {
        "losses": losses,
        "logits": logits,
        "loss": loss,
        "state": state,
        "weights": weights,
        "slowest": slowest,
    }
