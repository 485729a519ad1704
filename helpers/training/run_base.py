"""What a run's kernel and its ranks have in common: what a notebook's cells ask ``this_run``."""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import Any

from helpers.networks.weights import Weights
from helpers.training import image_data, parameters
from helpers.training.image_data import Data
from helpers.training.in_world import Work
from helpers.training.world import Lesson, World


class RunBase:
    """A run, as the notebook's cells see it up to section 9.

    ``devices`` are the framework's handles of this machine, ``recipe`` is scaled to all devices of
    all nodes, ``workers`` serve the loaders of all of them together, ``folder`` holds what the run
    leaves.
    """

    monitor: Any
    initial: Weights

    def __init__(
        self, framework: ModuleType, setup: parameters.Setup, devices: tuple[Any, ...]
    ) -> None:
        self.setup, self.framework, self.devices = setup, framework, devices
        self.folder, self.recipe, self.workers = setup.folder, setup.recipe, setup.workers
        self.versions: dict[str, str] = framework.versions()
        self.lesson: Lesson

    @property
    def world(self) -> World:
        """The world that this process's own cells compute in: in the kernel this machine alone."""
        devices = self.setup.devices
        return World(0, devices.count, self.devices, devices.kind, devices.gpus)

    @property
    def shares_gpus(self) -> bool:
        """Whether replicas are on one GPU together, which NCCL refuses."""
        return self.setup.of_all_nodes.shared_gpus is not None

    @property
    def on_gpu(self) -> bool:
        """Whether the devices are GPUs; else they are virtual ones, on the CPU."""
        return self.setup.devices.kind == "gpu"

    @cached_property
    def images(self) -> Data:
        """The images' tables, ``train``, ``valid`` and ``test``, and what reads them."""
        return image_data.load_data(self.setup)

    @property
    def network(self) -> str:
        """The network that the recipe names, one of ``networks.shapes.NETWORKS``, or ``own``."""
        return self.recipe.recipe.network

    def work(self) -> Work:
        """What each of the run's processes has to know."""
        lesson, images = self.lesson, self.images
        return Work(self.framework, lesson, images, self.recipe, self.workers, self.monitor)
