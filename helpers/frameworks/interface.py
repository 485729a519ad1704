"""The functions that every framework's module has; it documents one only if that differs.

Images are normalised floats (N, 3, H, W), targets labels (N, outputs) of 0 or 1, ``devices``
handles from :meth:`Framework.list_devices`, and ``weights`` float arrays in torchvision's layout
and by its names (a custom network's by the framework's). A replica is the notebook's, with a
``network`` and an ``optimizer``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

Device: TypeAlias = Any
Model: TypeAlias = Any
"""A framework's handle for a device, and its network; each module has its own types."""
BuildModel: TypeAlias = Callable[[Mapping[str, np.ndarray]], Any]
"""Makes a network with these initial weights."""
Found = TypeVar("Found")


@dataclass(frozen=True)
class Seen:
    """What a framework's own objects reveal about a training that has ended.

    ``constants`` are those of the optimiser's rule, each with the values that weights have:
    ``beta 1``, ``beta 2`` and ``epsilon`` of Adam, ``momentum``, ``weight decay`` as it is added to
    the gradient, and ``rate factor``, a weight's own rate by the optimiser's; others are to be 0.
    What cannot be read is None.
    """

    optimizer: str
    constants: Mapping[str, Sequence[float]]
    convolutions: str | None
    """The type that they compute in, such as ``bfloat16``."""
    execution: str
    """``eager``, ``graph`` or ``compiled``, and by what."""
    tf32: bool | None = None
    threads: int | None = None
    weights: int | None = None
    """How many numbers the optimiser updates."""
    rate_in_velocity: bool = False
    """Whether a step at which the rate changes has its momentum times the change."""
    updates: int | None = None
    """Updates of the weights in this training."""


class Watch(NamedTuple):
    """How a framework's own objects are read while a replica trains, and after."""

    rate: Callable[[], float | None]
    """The learning rate of the step that was queued last; None if it changed no weight."""
    updates: Callable[[], int]
    """All updates of the weights, as the optimiser counts them; may wait for the device."""
    seen: Callable[[], Seen]
    """Called once, when training has ended."""
    held: Callable[[], list[np.ndarray]]
    """The last trained array, as each of this process's devices holds it; waits for them."""
    waits: bool = False
    """Whether ``rate`` waits for the device, so that it is not to be called at every step."""
    live: bool = True
    """Whether ``held`` tells of each step; else the notebook has the arrays until an epoch ends."""


def rule_of(optimizer: Any, momentum: float | None) -> str:
    """A recipe's name of an optimiser's rule, by its class: ``adam``, ``momentum`` or ``sgd``."""
    kind = type(optimizer).__name__
    if kind in ("SGD", "MomentumSGD", "CorrectedMomentumSGD"):  # the last two are Chainer's
        return "momentum" if momentum else "sgd"
    return "adam" if kind == "Adam" else kind


class Framework(Protocol):
    """A framework's module in this folder."""

    @property
    def SKIPPED(self) -> Mapping[str, str]:
        """Why it lacks a precision, or "training in float64" and what else the check looks up."""

    def versions(self) -> dict[str, str]:
        """Versions of the framework and of the libraries its speed depends on."""

    def list_devices(self, kind: str, count: int) -> list[Device]:
        """Handles for ``count`` devices, ``gpu`` or ``cpu``, before anything else is called."""

    def configure(self, precision: str, kind: str) -> None:
        """Set the process up for a precision, and for speed; the notebook decides what is cast.

        Raises:
            UnsupportedError: the framework cannot compute in this precision there.
        """

    def synchronize(self, devices: Sequence[Device]) -> None:
        """Wait until the devices have finished all queued work; for timing only."""

    def queued(self, device: Device) -> Callable[[], None] | None:
        """What waits, in another thread, for the work the device has by now; None if for none."""

    def load_weights(self, model: Model, weights: Mapping[str, np.ndarray]) -> None:
        """Copy weights into ``model``, on every replica.

        Raises:
            ValueError: an array is missing, or the model has no such array.
        """

    def dump_weights(self, model: Model) -> dict[str, np.ndarray]:
        """The model's weights; the inverse of :meth:`load_weights`."""

    def state_of(self, model: Model, weights: Mapping[str, np.ndarray]) -> Any:
        """Weights as the framework's own function loads them into ``model``.

        BatchNorm's layers get the recipe's epsilon and momentum, but not a custom network's.
        """

    def load_optimizer(self, replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
        """Restore the state that :meth:`dump_optimizer` returned; ``step`` is the next, from 0."""

    def dump_optimizer(self, replica: Any) -> dict[str, np.ndarray]:
        """All that the optimiser keeps from step to step, copied, by names of the framework's."""

    def as_loaded(self, pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
        """A batch as the notebook's loader gives it.

        ``pixels`` are uint8 (N, crop, crop, 1 or 3), ``targets`` float32 (N, findings) or classes,
        int64 (N,), and ``numbers`` those of the images in their split, (N,).
        """

    def set_epoch(self, loader: Any, epoch: int) -> None:
        """Give the notebook's training loader another epoch's order and crops; the first is 0."""

    def watch(self, replica: Any) -> Watch:
        """Look on while a replica trains; it must not have taken a step yet."""

    def exact(self, build_model: BuildModel, weights: Mapping[str, np.ndarray]) -> Model:
        """The network in float64 that the notebook's function makes of ``weights``.

        This function and those below are called a few times, so a compiler should not optimise.
        """

    def shallow(self, weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
        """The network ``shallow`` with these weights, whose dtype is its own, on these devices."""

    def logits(self, model: Model, images: np.ndarray) -> np.ndarray:
        """The model's logits (N, outputs), before the sigmoid, in evaluation mode."""

    def train_forward(
        self, model: Model, images: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Training mode's logits (N, outputs), and weights with new statistics; the model stays."""

    def gradients(
        self, model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
    ) -> tuple[float, dict[str, np.ndarray]]:
        """The mean loss and gradients as the optimiser gets them, BatchNorm as in evaluation."""

    def seen_by(self, model: Model) -> AbstractContextManager[list[np.ndarray]]:
        """What a shallow network is given meanwhile, images of a batch each."""

    def slowest(self, seconds: float, devices: Sequence[Device]) -> float:
        """The longest time that any replica's process measured, by the framework's collectives."""


class Optional(Protocol):
    """Functions that a framework's module has only if its notebook needs them."""

    def free_memory(self, devices: Sequence[Device]) -> None:
        """Free unused memory of the framework's pool, after the fairness check."""

    def peak_bytes(self, devices: Sequence[Device]) -> int | None:
        """The most memory in use on one GPU, of a framework that reserves most of it; else None."""

    def rank_gradients(
        self, model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
    ) -> tuple[float, dict[str, np.ndarray]]:
        """:meth:`Framework.gradients` over all ranks, of all ranks' images; all call it.

        ``<module>_ranks.py`` may have ``environment(place)``, the variables that a rank has before
        any cell runs.
        """

    def apart(self, function: Callable[[], Found], devices: Sequence[Device]) -> Found:
        """Call a function in another process if the devices are GPUs, which must not start here."""

    def watched(self, batches: Iterable[Any], watching: Any) -> Any:
        """Batches for the framework's function; ``watching`` is entered now and left at its end."""

    def make_current(self, device: Device, threads: int | None) -> None:
        """Let a rank's process compute on this device, and on a CPU with this number of threads."""

    def rendezvous(self) -> AbstractContextManager[dict[str, str]]:
        """Variables by which the processes of ``run.launch`` find each other while they run."""

    def gather(self, value: Any) -> list[Any]:
        """Gather a value from every process of ``run.launch`` in each of them, by rank."""
