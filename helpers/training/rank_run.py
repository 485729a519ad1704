"""A run as one of its ranks sees it: the same cells, but the coordinator says what is done.

A rank runs the notebook's cells for what they define. What a cell shows or certifies is the
kernel's, so here it does nothing; what trains and tests is called by the kernel, over
``helpers.launch``, and runs with this rank's own world.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any

import gpumon
from helpers.frameworks import cpu_cores
from helpers.frameworks.place import Place
from helpers.launch import letters, samplers, serving
from helpers.networks.weights import Arrays, Weights
from helpers.recipe import ScaledRecipe
from helpers.training import parameters
from helpers.training.in_world import Work
from helpers.training.run_base import RunBase
from helpers.training.world import Lesson, World

SETUP, INITIAL = "setup", "initial"
"""What the coordinator puts into the folder of messages: its setup, and the first weights."""


class RankRun(RunBase):
    """What ``measured_run.begin`` gives on a rank."""

    def __init__(self, framework: ModuleType, place: Place) -> None:
        setup: parameters.Setup = letters.received(place.folder / SETUP)
        each = setup.devices
        own = min(each.gpus, setup.of_all_nodes.gpus) or None
        if each.cpus:  # before the framework starts its threads
            alone = place.ranks_a_node == each.count  # one rank for each device
            first = place.local_rank
            cpu_cores.confine(each.cpus[first : first + 1] if alone else each.cpus)
        found = tuple(framework.list_devices(each.kind, each.count, own))
        super().__init__(framework, setup, found)
        self.place = place
        framework.configure(self.recipe.recipe.precision, each.kind)
        self._replica: Any = None

    @property
    def world(self) -> World:
        """All replicas of all nodes, as this rank sees them."""
        place, everywhere = self.place, self.setup.of_all_nodes
        alone = place.ranks_a_node == self.setup.devices.count  # one for each device
        return World(
            place.rank,
            everywhere.count,
            (self.devices[place.local_rank],) if alone else self.devices,
            everywhere.kind,
            everywhere.gpus,
            place.nodes,
            place.node,
            place.virtual and place.nodes > 1,
        )

    @cached_property
    def initial(self) -> Weights:  # type: ignore[override]
        """The weights that the kernel starts from."""
        found: Weights = letters.received(self.place.folder / INITIAL)
        return found

    def rehearse(self, lesson: Lesson) -> None:
        """Take the lesson's functions: from now on the coordinator can call them."""
        self.lesson = lesson
        serving.hand(self._answer, self._end_replica)

    take = rehearse

    def show_images(self, evaluate_pixels: Callable[..., Any]) -> None:
        """Nothing: the kernel shows them."""

    def certify(self, *given: Any, **named: Any) -> None:
        """Nothing: the kernel does."""

    def largest_batch(self) -> ScaledRecipe:
        """The recipe, which the kernel has found before this rank began."""
        return self.recipe

    def train(self) -> None:
        """Nothing: the kernel calls for it, as for what follows."""

    test = take_apart = chart = explain = finish = train

    def _answer(self, function: Callable[..., Any], told: Mapping[str, Any], *args: Any) -> Any:
        """Of a call: ``function`` with this rank's world and work.

        Args:
            told: what only the kernel knows: ``workers``, ``monitor``, whether that is
                ``sampling``, and its ``host``.
            args: what follows in its arguments. One of this module's own gets the run before them.
        """
        self.workers, self.monitor = told["workers"], told["monitor"]
        if told["host"] != socket.gethostname():  # which has a sampler of its own
            self.monitor = self._marks
            samplers.follow(self._marks, told["sampling"])
        if function in (keep_replica, end_replica):
            args = (self, *args)
        return function(self.world, self.work(), *args)

    @cached_property
    def _marks(self) -> gpumon.Monitor | gpumon.Marker:
        return samplers.of_rank(self.folder, self.place)

    def _end_replica(self) -> None:
        if self._replica is not None:
            self.lesson.stop(self._replica)
            self._replica = None


def keep_replica(
    world: World,
    work: Work,
    run: RankRun,
    function: Callable[..., Any],
    arrays: Arrays,
    first_step: int,
    *args: Any,
) -> Any:
    """What ``function(world, work, replica, *args)`` gives, with the rank's replica.

    It is kept from call to call, for a graph that was compiled belongs to it.
    """
    if run._replica is None:
        network = work.lesson.build_model(arrays)
        run._replica = work.lesson.start(world, network, first_step=first_step)
    else:
        work.framework.load_weights(run._replica.network, arrays)
    return function(world, work, run._replica, *args)


def end_replica(world: World, work: Work, run: RankRun) -> None:
    """The next call makes a replica of its own."""
    run._end_replica()


def nothing(world: World, work: Work) -> None:
    """A call for its own sake: each brings what the kernel has to tell."""
