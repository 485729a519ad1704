"""The ranks and devices of a run (``World``), and the functions that a notebook defines for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

Share = tuple[np.ndarray, np.ndarray]
"""One device's part of a batch: pixels, uint8 (N, H, W, 1) of grey images or (N, H, W, 3) of RGB
ones, and targets: float32 (N, findings), or int64 (N,), the numbers of classes."""

IN_KERNEL = "in the kernel"
IN_CHILD = "in a process of its own"


@dataclass(frozen=True)
class World:
    """All replicas of a run, seen from one of the processes that drive them.

    ``rank`` is the number of this process, ``devices`` are the framework's handles of those that
    it drives, and ``size`` counts all devices, those of other processes too.
    """

    rank: int
    size: int
    devices: tuple[Any, ...]
    kind: str  # of the devices: "gpu" or "cpu"
    gpus: int = 0
    """How many GPUs all these devices are; fewer than ``size`` where replicas share them."""
    nodes: int = 1
    node: int = 0
    """Which of them this process is on."""
    simulated_nodes: bool = False
    """Whether all nodes are one machine, whose cores they share."""

    @property
    def processes(self) -> int:
        """How many processes take part; each drives equally many devices."""
        return self.size // len(self.devices)

    def own(self, total: int) -> int:
        """How many of a part's images this process evaluates, with every n-th its own."""
        return len(range(self.rank, total, self.processes))

    @property
    def on_machine(self) -> int:
        """How many of the devices are this machine's, and share its cores."""
        return self.size if self.simulated_nodes else self.size // self.nodes

    @property
    def device(self) -> Any:
        """The device of a process that drives one, else the first."""
        return self.devices[0]

    @property
    def shares_gpus(self) -> bool:
        """Whether replicas are on one GPU together, which NCCL refuses."""
        return 0 < self.gpus < self.size

    @property
    def on_gpu(self) -> bool:
        return self.kind == "gpu"


@dataclass(frozen=True)
class TrainingFunctions:
    """What a notebook defines and hands over, with the same names and arguments in each.

    ``start`` gives a *replica*: any object that has the bare ``network`` and its ``optimizer``
    (and a ``scaler`` where fp16's factor is not the optimiser's own). It stands for all devices of
    its process. Loaders give batches without end, except those of evaluation.
    """

    build_model: Callable[..., Any]
    """``(arrays)``: the network with these weights."""
    make_train_loader: Callable[..., Any]
    """``(world, epoch, workers)``: the training batches that follow after so many epochs."""
    make_evaluation_loader: Callable[..., Any]
    """``(world, part, workers)``: every image of a table once, over all processes."""
    make_fixed_loader: Callable[..., Any]
    """``(world, shares)``: the same batch again and again, a ``Share`` for each own device."""
    start: Callable[..., Any]
    """``(world, network, first_step, rule, rates)``: a replica, ready to train from that step
    on; the training-loop check gives a ``helpers.recipe.Rule`` and its steps' rates, else both are
    the recipe's."""
    train: Callable[..., None]
    """``(world, replica, run)``: the loop over the epochs that ``run``, a
    ``helpers.training.epochs.Training``, has left."""
    train_epoch: Callable[..., float]
    """``(replica, loader, steps, clock)``: that many steps; the mean loss over all devices."""
    predict: Callable[..., tuple[np.ndarray, float]]
    """``(replica, loader, total)``: logits (total, classes) of all images, in order; mean loss."""
    load_alone: Callable[..., Iterator[Any]] = lambda replica, loader: loader
    """``(replica, loader)``: the training batches, on the devices, with nothing computed; needed
    where it is the step that sends them there."""
    without_all_reduce: Callable[..., None] | None = None
    """``(replica, loader, steps, clock)``: trains, but every device for itself."""
    all_reduce_alone: Callable[..., None] | None = None
    """``(replica, steps, clock)``, in place of it where a step cannot do without: reduces only."""
    ready: Callable[..., None] = lambda replica, loaders: None
    """``(replica, loaders)``: before its first step a replica gets all that it will train on
    (nothing where it only evaluates), for a framework that has to know it beforehand."""
    stop: Callable[[Any], None] = lambda replica: None
    """``(replica)``: gives back what ``start`` took."""
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext
    """``()``: what a network has to be built in."""
    read_ahead: int = 0
    """Batches that each worker of the training loader may have ready; of all of it, below 0."""
    processes: str = IN_KERNEL
    """Where replicas live in a run of one process: ``IN_KERNEL`` or ``IN_CHILD``. Those of a rank
    live in the rank."""
