"""The library that a notebook calls.

    run = helpers.begin("pytorch", globals())

``run`` gives images, weights and the recipe; it watches, checks, records and draws. It never
drives: the epoch loop, the step, the evaluation and the start of the processes are the notebook's.
docs/run.md lists all names with their arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import numpy as np

from helpers.frameworks import cpu_cores, rank_info
from helpers.networks import custom
from helpers.networks.weights import Weights, canonical
from helpers.training import launching, measuring, notebook_check, run_state, showing
from helpers.training.loop import Loop
from helpers.training.run_state import RunState


class Run(RunState):
    """One run of a notebook, which :func:`helpers.begin` starts.

    ``recipe`` holds the recipe's settings. ``devices`` are the framework's own device objects of
    this machine, ``on_gpu`` says whether they are GPUs, ``workers`` is the number of loader workers
    for each of them, ``backend`` what joins processes: ``nccl`` between GPUs, else ``gloo``.
    ``train_split``, ``valid_split`` and ``test_split`` are the images. ``folder`` has what the run
    leaves: record, trace, weights.
    """

    def __str__(self) -> str:
        """Versions, devices, recipe and images, one line each."""
        setup = self.setup
        versions = ", ".join(f"{name} {each}" for name, each in self.framework.versions().items())
        devices = setup.devices if setup.nodes == 1 else f"{setup.short}. Each: {setup.devices}"
        splits = {
            "training": self.train_split,
            "validation": self.valid_split,
            "test": self.test_split,
        }
        images = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
        return f"{versions}\n{devices}\n{setup.recipe}\nImages: {images}\n{self.initial}"

    launch = launching.launch
    check = notebook_check.check
    measure = measuring.measure
    chart = showing.chart
    report = showing.report

    def device(self, rank: int) -> Any:
        """Make a device this process's own and return it; ``rank`` is among all, from 0.

        Precision and switches are set, and threads confined to the cores of a CPU device.
        """
        here, devices = rank_info.here(), self.setup.devices
        local = rank if here is None else here.local_rank
        if devices.cpus:
            cpu_cores.confine(devices.cpus[local : local + 1])
        self.framework.configure(self.recipe.precision, devices.kind)
        threads = len(os.sched_getaffinity(0)) if devices.cpus else None
        self.own_devices = (self.devices[local],)
        self.framework.make_current(self.devices[local], threads)
        return self.devices[local]

    def network(self) -> Any:
        """Build the recipe's network where the notebook does not contain it."""
        networks, recipe = self.framework.networks, self.setup.recipe.recipe
        if recipe.network == "own":
            return networks.own(recipe, self.recipe.outputs)
        return networks.build(recipe.network, self.initial_arrays, recipe)

    def weights(self, model: Any) -> Any:
        """Return the shared initial weights as the framework's own function loads them.

        The model's BatchNorm layers get the recipe's epsilon and momentum.
        """
        return self.framework.state_of(model, self.initial_arrays)

    def epochs(self, replica: Any) -> Iterator[int]:
        """Iterate over the epochs, from 0, that the checkpoint lacks; write one after each.

        With ``resume = True``, the replica first gets the checkpoint's weights, optimiser state and
        place in the schedule. After the last epoch, the weights are saved, and the training that
        ran is checked.

        Raises:
            LoaderError: an epoch took more or fewer steps than the recipe has, or did not call
                :meth:`log`.
        """
        if not self.launched and not self.begun:
            launching.begin_training(self)
        self.begun = False  # the next training begins anew
        return self.loop.epochs(replica)

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Time a block, and mark it in the monitor's chart; other names are marked only."""
        return self.loop.phase(name)

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Pass batches on unchanged, and note what arrives and how long the device waits for it.

        A batch is a tuple of pixels, targets and image numbers. Use it as the outermost iterator of
        a loop. It never waits for a device. Keras's ``fit`` and ``predict`` iterate themselves:
        give them what this returns, which leaves out the numbers, and its ``callback``.
        """
        return self.loop.watch(batches)

    def log(self, loss: float, scores: np.ndarray, metric: float) -> None:
        """Print and record an epoch, with the logits (images, outputs) of the validation split.

        Raises:
            LoaderError: the number of scores is not the number of images.
        """
        self.loop.log(loss, np.asarray(scores), metric)

    def test(self, scores: np.ndarray, metric: float) -> None:
        """Show and record the metric of the test split, with its 95 % interval for each finding."""
        self.loop.test(np.asarray(scores), metric)

    @cached_property
    def loop(self) -> Loop:
        """What this process notes while it trains."""
        return Loop(self)

    @cached_property
    def initial(self) -> Weights:
        """The weights that all frameworks begin with, found or made.

        Not before the notebook has joined its processes.
        """
        recipe, outputs = self.setup.recipe.recipe, len(self.images.classes)
        if recipe.network == "own":
            found = rank_info.exchange(custom.initial(self.framework, recipe, outputs))[0]
        else:
            with rank_info.first_rank_first():  # it may download them
                found = canonical(
                    recipe.weights, network=recipe.network, outputs=outputs, seed=recipe.seed
                )
        self.record.add("weights", {"source": found.source, "sha256": found.sha256})
        return found

    def __getstate__(self) -> dict[str, Any]:
        own = ("names", "record", "lines", "loop")
        return {name: value for name, value in vars(self).items() if name not in own}


begin = partial(run_state.begin, Run)
"""See :func:`helpers.begin`."""
