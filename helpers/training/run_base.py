"""What a run is made of, and how all its processes do something together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import Any

from helpers.frameworks import rank_info, replicas
from helpers.launch import exchange
from helpers.networks.weights import Arrays, Weights
from helpers.training import image_data, parameters, train_loop
from helpers.training.epoch_lines import EpochLines
from helpers.training.image_data import Data
from helpers.training.work import Work
from helpers.training.world import IN_KERNEL, TrainingFunctions, World


class RunBase:
    """A run, as the notebook's cells see it up to section 9, and its processes.

    ``devices`` are the framework's handles of this machine, ``recipe`` is scaled to all devices of
    all nodes, ``workers`` serve the loaders of all of them together, ``folder`` holds what the run
    leaves.
    """

    monitor: Any
    initial: Weights
    lines: EpochLines

    def __init__(
        self, framework: ModuleType, setup: parameters.Setup, devices: tuple[Any, ...]
    ) -> None:
        self.setup, self.framework, self.devices = setup, framework, devices
        self.folder, self.recipe, self.workers = setup.folder, setup.recipe, setup.workers
        self.versions: dict[str, str] = framework.versions()
        self.functions: TrainingFunctions
        self._replica: Any = None  # the kernel's own, where replicas live there

    @property
    def world(self) -> World:
        """The world that this process's own cells compute in: on a rank all replicas of all."""
        devices, here = self.setup.devices, rank_info.here()
        if here is None:
            return World(0, devices.count, self.devices, devices.kind, devices.gpus)
        everywhere = self.setup.of_all_nodes
        alone = here.ranks_a_node == devices.count  # one rank for each device
        return World(
            here.rank,
            everywhere.count,
            (self.devices[here.local_rank],) if alone else self.devices,
            everywhere.kind,
            everywhere.gpus,
            here.nodes,
            here.node,
            here.virtual,
        )

    @property
    def shares_gpus(self) -> bool:
        """Whether replicas are on one GPU together, which NCCL refuses."""
        return self.setup.of_all_nodes.shared_gpus is not None

    @property
    def on_gpu(self) -> bool:
        """Whether the devices are GPUs; else they are CPU devices."""
        return self.setup.devices.kind == "gpu"

    @cached_property
    def images(self) -> Data:
        """The images' tables, ``train``, ``valid`` and ``test``, and what reads them."""
        with exchange.first_rank_first():
            return image_data.load_data(self.setup)

    @property
    def network(self) -> str:
        """The network that the recipe names, one of ``networks.shapes.NETWORKS``, or ``own``."""
        return self.recipe.recipe.network

    def work(self) -> Work:
        """What each of the run's processes has to know."""
        functions, images = self.functions, self.images
        return Work(self.framework, functions, images, self.recipe, self.workers, self.monitor)

    @property
    def _in_process(self) -> bool:
        """Whether this process has the replica, and starts none for it."""
        return rank_info.here() is not None or self.functions.processes == IN_KERNEL

    @property
    def processes(self) -> int:
        """How many take part, on all nodes."""
        return self.world.processes

    def everywhere(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What ``function(world, work, *args)`` gives in each of the run's processes."""
        world, work = self.world, self.work()
        if self._in_process:
            exchange.renew_port()
            return exchange.exchange(function(world, work, *args))

        def replica(rank: int) -> Any:
            return function(world, work, *args)

        return replicas.run(replica, 1, heard=lambda told: self.lines.heard(told))

    def with_replica(
        self, function: Callable[..., Any], arrays: Arrays, first_step: int = 0, *args: Any
    ) -> list[Any]:
        """As :meth:`everywhere`, with a replica that has these weights.

        This process keeps its replica: a graph that was compiled belongs to it. A process that it
        starts makes one each time, and ends with it.
        """
        if not self._in_process:
            return self.everywhere(train_loop.with_replica, function, arrays, first_step, *args)
        world, work = self.world, self.work()
        if self._replica is None:
            exchange.renew_port()
            network = self.functions.build_model(arrays)
            self._replica = self.functions.start(world, network, first_step=first_step)
        else:
            self.framework.load_weights(self._replica.network, arrays)
        return exchange.exchange(function(world, work, self._replica, *args))

    def _end_replica(self) -> None:
        if self._replica is not None:
            self.functions.stop(self._replica)
            self._replica = None
