"""The library that a notebook calls.

    run = helpers.begin("pytorch", globals())

``run`` gives images, weights and the recipe; it watches, checks, records and draws. It never
drives: the epoch loop, the step, the evaluation and the start of the processes are the notebook's.
docs/run.md lists all names with their arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from helpers.frameworks import cpu_cores, rank_info
from helpers.networks import custom
from helpers.networks.weights import Weights, canonical
from helpers.training import launching, measuring, notebook_check, run_state, showing
from helpers.training.loop import Loop
from helpers.training.notebook_recipe import Split
from helpers.training.run_state import RunState


def begin(framework: str, names: Mapping[str, Any]) -> Run:
    """See :func:`helpers.begin`."""
    return run_state.begin(Run, framework, names)


class Run(RunState):
    """One run of a notebook, as :func:`helpers.begin` makes it.

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

    # Devices, weights, processes

    def device(self, rank: int) -> Any:
        """Make a device this process's own and return it, with precision and switches set.

        The process and its threads are confined to the cores of a CPU device.

        Args:
            rank: this process's number among all processes of the run, from 0.
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
        """Build the recipe's network where that is not the notebook's own: ResNets, and yours."""
        networks, recipe = self.framework.networks, self.setup.recipe.recipe
        if recipe.network == "own":
            return networks.own(recipe, self.recipe.outputs)
        return networks.build(recipe.network, self.initial_arrays, recipe)

    def weights(self, model: Any) -> Any:
        """Return the initial weights, the same in every framework, under the model's own names.

        Args:
            model: the framework's network. Its BatchNorm layers get the recipe's epsilon and
                momentum.

        Returns:
            What the framework's own function loads; in PyTorch a ``state_dict``.
        """
        return self.framework.state_of(model, self.initial_arrays)

    def launch(self, main: Callable[[int, int], Any]) -> Any:
        """Call ``main(rank, world)`` in one new process per device, as torchrun does.

        Under torchrun or mpiexec, it is called in the process that is there. What the processes
        print appears here, line by line.

        Returns:
            What ``main`` returned in rank 0.

        Raises:
            ReplicaError: a process failed; with its number and its own traceback. The others end.
            Interrupted: you interrupted the cell; all processes have ended.
        """
        return launching.launch(self, main)

    # Check, train, evaluate

    def check(
        self,
        replica: Any,
        build_model: Callable[[], Any],
        make_replica: Callable[[Any], Any],
        train_steps: Callable[[Any, Iterable[Any], int], float],
        predict: Callable[[Any, Iterable[Any], int], np.ndarray],
        make_loader: Callable[[Split, bool], Any],
    ) -> None:
        """Check that this notebook trains what all others train; show and record the result.

        Run it in every process, before the first step. docs/fairness.md explains the rows.

        Args:
            replica: the one that will train; it has ``network`` and ``optimizer``.
            build_model: ``()``, a network with the initial weights.
            make_replica: ``(network)``, what trains it.
            train_steps: ``(replica, batches, steps)``, the mean loss of the steps on all devices.
            predict: ``(replica, batches, total)``, logits (total, outputs) of all images in order.
            make_loader: ``(split, training)``, this process's batches: pixels, uint8 (N, crop,
                crop, 1 or 3), targets, and the images' numbers in the split.
        """
        notebook_check.check(
            self, replica, build_model, make_replica, train_steps, predict, make_loader
        )

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
        """Time a block, and mark it in the monitor's chart.

        Args:
            name: ``train``, ``validate`` or ``test``; another one is marked only.
        """
        return self.loop.phase(name)

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Pass batches on unchanged, and note what arrives and how long the device waits for it.

        Use it as the outermost iterator of a loop over batches. It never waits for a device.
        Keras's ``fit`` and ``predict`` iterate themselves: give them what this returns, which
        leaves out the numbers, and its ``callback``.

        Args:
            batches: tuples of pixels, targets and image numbers.
        """
        return self.loop.watch(batches)

    def log(self, loss: float, scores: np.ndarray, metric: float) -> None:
        """Print and record an epoch.

        Args:
            loss: the mean training loss over all devices.
            scores: logits of the validation split (images, outputs), in its order.
            metric: their mean AUC, or the share of right classes, as the notebook computes it.

        Raises:
            LoaderError: the number of scores is not the number of images.
        """
        self.loop.log(loss, np.asarray(scores), metric)

    def test(self, scores: np.ndarray, metric: float) -> None:
        """Show and record the metric of the test split, with its 95 % interval for each finding.

        Args:
            scores: logits of the test split (images, outputs), in its order.
            metric: their mean AUC, or the share of right classes, as the notebook computes it.
        """
        self.loop.test(np.asarray(scores), metric)

    def measure(self, **measurements: Callable[[int], Any]) -> None:
        """Measure images/s in interleaved rounds; show and record them.

        Args:
            measurements: functions ``(n)`` that take n steps, or n batches of the loader:
                ``files``, ``synthetic``, ``loader`` and, with several devices, ``no_all_reduce`` or
                ``all_reduce``.
        """
        measuring.measure(self, measurements)

    # Show and keep

    def chart(self) -> Any:
        """Return the monitor's chart of the whole run, a lane for each device."""
        return showing.chart(self)

    def report(self) -> None:
        """Show where the time went and what was measured, and finish the record."""
        showing.report(self)

    # What the functions above share

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
        self.record.add("weights", found.as_record())
        return found

    def __getstate__(self) -> dict[str, Any]:
        own = ("names", "record", "lines", "loop")
        return {name: value for name, value in vars(self).items() if name not in own}
