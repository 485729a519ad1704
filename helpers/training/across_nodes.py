"""The kernel's side of a run on several nodes: its ranks, started when they are first needed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from helpers import network
from helpers.frameworks import devices as device_helpers
from helpers.launch import cells, clocks, engines, samplers
from helpers.launch.coordinator import Order, Ranks
from helpers.training import bus_bandwidth, in_world, rank_run
from helpers.training.in_world import Apart, Trained
from helpers.training.run_base import RunBase
from helpers.training.world import PER_DEVICE, RANKS, Lesson


def is_for(setup_nodes: int, lesson: Lesson) -> bool:
    """Whether a run's replicas live on ranks."""
    return setup_nodes > 1 or lesson.processes == RANKS


class Nodes:
    """A run's ranks as its kernel calls them; they live from the first call to the run's end."""

    def __init__(self, run: RunBase, notebook: str, given: Mapping[str, Any]) -> None:
        self._run = run
        self._cells = cells.Cells(notebook, given)
        self._code: list[cells.Cell] = []
        self._ranks: Ranks | None = None
        self._recipe: Any = None
        self.about: dict[str, Any] = {}
        """The record's section ``world``, once the ranks have met."""
        self.measured: dict[str, Any] = {}
        """What belongs there, too: what they measured of each other."""

    def take(self) -> None:
        """A lesson was brought: its ranks run the cells up to here."""
        self.end()
        self.measured = {}
        self._code = self._cells.so_far()

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        heard: Callable[[Any], None] = lambda message: None,
    ) -> list[Any]:
        """What ``function(world, work, *args)`` gives on each rank.

        Raises:
            helpers.launch.causes.RankError: the earliest cause, in one line.
        """
        run = self._run
        told = {"workers": run.workers, "monitor": run.monitor, "host": socket.gethostname()}
        told["sampling"] = run.monitor.running
        return self._started().call(function, told, *args, heard=heard)

    def with_replica(
        self,
        function: Callable[..., Any],
        *args: Any,
        heard: Callable[[Any], None] = lambda message: None,
    ) -> list[Any]:
        """The same with a replica; a process that drives all devices of a node keeps its own."""
        per_device = self._per_device
        keep = in_world.with_replica if per_device else rank_run.keep_replica
        return self.call(keep, function, *args, heard=heard)

    def steps_were(self, trained: Sequence[Trained]) -> None:
        """Note what a step of each rank was made of."""
        hosts = self._hosts
        parts = [
            {"rank": rank, "host": hosts[rank], **each.parts}
            for rank, each in enumerate(trained)
            if each.parts is not None
        ]
        if parts:  # else another process had trained all epochs
            self.measured["parts"] = parts

    def network_was(self, found: Sequence[Apart], asked: float) -> None:
        """Note what the ranks have measured of the network; end their samplers, and align traces.

        Args:
            found: by each rank.
            asked: when they were asked, by the monotonic clock.
        """
        answered = time.monotonic()
        if (all_reduce := found[0].all_reduce) is not None:
            devices = self._run.setup.replicas
            self.measured["all_reduce"] = bus_bandwidth.as_record(
                all_reduce, devices=devices, interface=self.about["interface"]
            )
        meetings = [each.meetings for each in found if each.meetings is not None]
        if len(meetings) == len(found):
            self.call(rank_run.nothing)  # the kernel's monitor has stopped, and so do theirs
            bounds = clocks.of_each(meetings, clocks.Round(asked, answered))
            ahead = dict(enumerate(bounds))
            self.measured["clocks"] = samplers.align(self._run.folder, ahead, self._hosts)

    @property
    def _hosts(self) -> list[str]:
        """Each rank's."""
        return self._ranks.hosts if self._ranks is not None else []

    def end_replicas(self) -> None:
        """The next call that needs a replica makes it anew."""
        if self._ranks is not None and not self._ranks.ended and not self._per_device:
            self.call(rank_run.end_replica)

    def end(self) -> None:
        """End the ranks."""
        if self._ranks is not None:
            self._ranks.end()

    @property
    def count(self) -> int:
        """How many ranks there are to be."""
        setup = self._run.setup
        return setup.nodes * (setup.devices.count if self._per_device else 1)

    @property
    def _per_device(self) -> bool:
        return self._run.lesson.across_nodes == PER_DEVICE

    def _started(self) -> Ranks:
        """The ranks; new ones where an error ended them, or the recipe is another now."""
        run, setup = self._run, self._run.setup
        if self._ranks is not None and not self._ranks.ended and self._recipe == run.recipe:
            return self._ranks
        self.end()
        mpi = run.lesson.processes == RANKS
        engine = engines.choose(setup.launcher, setup.nodes, mpi=mpi)
        order = Order(
            self._code,
            setup.nodes,
            setup.devices.count if self._per_device else 1,
            devices=setup.devices.count,
            kind=setup.devices.kind,
            gpus=len(device_helpers.visible()) if run.on_gpu else 0,
            framework=run.framework.__name__.rpartition(".")[2],
            luggage={
                rank_run.SETUP: replace(setup, recipe=run.recipe),
                rank_run.INITIAL: run.initial,
            },
        )
        self._ranks, self._recipe = Ranks(run.folder, order, engine), run.recipe
        self.about = {
            "nodes": setup.nodes,
            "virtual": self._ranks.virtual,
            "launcher": engine.name,
            "launcher_version": engine.version(),
            "interface": network.summary(self._ranks.interfaces),
            "hosts": self._ranks.machines,
        }
        return self._ranks
