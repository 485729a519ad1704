"""The methods of a run that a notebook's cells call up to section 9."""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import Any

from helpers.frameworks import ROWS, rank_info, row_of
from helpers.launch import exchange
from helpers.networks.weights import Weights
from helpers.recipe.settings import ON_GPU
from helpers.training import image_data, parameters
from helpers.training.image_data import Data
from helpers.training.work import Work
from helpers.training.world import TrainingFunctions, World


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
        self.functions: TrainingFunctions

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

    def why_not_decoded(self, notebook: str) -> str | None:
        """Why the recipe's decoder cannot read the images of this notebook; None if it can."""
        recipe = self.recipe.recipe
        if recipe.decoder != ON_GPU:
            return None
        row = row_of(notebook, self.framework.KERNEL)
        if row is None or not row.decodes_on_gpu:
            able = ", ".join(one.notebook for one in ROWS if one.decodes_on_gpu)
            why = f"only the notebook {able} can decode on the GPU"
        elif not self.on_gpu:
            why = "these devices are CPU devices"
        elif not self.images.files or self.images.format not in ("jpg", "jpeg"):
            why = "it reads JPEGs that data-prep wrote, and these images are others"
        else:
            return None
        return f'decoder gpu: {why}; write decoder = "cpu" under [data] of the recipe'

    @property
    def network(self) -> str:
        """The network that the recipe names, one of ``networks.shapes.NETWORKS``, or ``own``."""
        return self.recipe.recipe.network

    def work(self) -> Work:
        """What each of the run's processes has to know."""
        functions, images = self.functions, self.images
        return Work(self.framework, functions, images, self.recipe, self.workers, self.monitor)
