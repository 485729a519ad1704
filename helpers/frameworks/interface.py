"""The functions that every framework's module has, and what they exchange with their callers.

This is their only full documentation. A module describes a function only where it differs from
what is said here. ``tests/frameworks/test_contract.py`` compares names, signatures and order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

Device: TypeAlias = Any
"""A framework's handle for a device; each module has its own type."""
Model: TypeAlias = Any
"""A framework's network; each module has its own type."""
Found = TypeVar("Found")
"""What a function finds."""


@dataclass(frozen=True)
class Seen:
    """What a framework's own objects say of a training when it has ended.

    ``constants`` are those of the optimiser's rule: ``beta 1``, ``beta 2`` and ``epsilon`` of Adam,
    ``momentum``, and ``weight decay`` as it is added to the gradient; each the smallest and the
    largest that any weight has. ``rate factor`` is what a weight's own rate is of the optimiser's,
    where some have one. What cannot be read is None.
    """

    optimizer: str
    constants: Mapping[str, tuple[float, float]]
    updates: int | None
    """Updates of the weights, counted by the optimiser."""
    convolutions: str | None
    """The type that they compute in, such as ``bfloat16``."""
    execution: str
    """``eager``, ``graph`` or ``compiled``, and by what."""
    tf32: bool | None = None
    threads: int | None = None
    weights: int | None = None
    """How many numbers the optimiser updates."""
    rate_in_velocity: bool = False
    """Whether momentum's velocity has the rate in it: then a step at which the rate changes has
    its momentum times the change."""


class Watch(NamedTuple):
    """How a framework's own objects are read while a replica trains, and after."""

    rate: Callable[[], float | None]
    """The learning rate of the step that was queued last; None where it changed no weight."""
    updates: Callable[[], int]
    """Updates of the weights until now, counted by the optimiser; may wait for the device."""
    seen: Callable[[], Seen]
    """Called once, when training has ended."""
    held: Callable[[], list[np.ndarray]]
    """The last of the trained arrays, as each of this process's devices holds it. The devices are
    waited for."""
    waits: bool = False
    """Whether ``rate`` waits for the device, so that it is not to be called at every step."""
    live: bool = True
    """Whether ``held`` tells of each step; else the notebook has the arrays until an epoch ends."""


class Watching(AbstractContextManager[Any], Protocol):
    """What is noted of batches that a framework reads. Nothing waits for a device."""

    def batch(self, batch: Any, at: float) -> None:
        """This batch was there at this time, of ``time.perf_counter``; a step is taken on it."""

    def step(self) -> None:
        """The step on it is queued."""


class Framework(Protocol):
    """A framework's module in this folder."""

    NAME: str
    """The framework's name in the registry."""
    KERNEL: str
    """The environment that it runs in."""

    @property
    def SKIPPED(self) -> Mapping[str, str]:
        """What the framework cannot do, and why.

        A name that ends in "on CPUs" or "on GPUs" applies to these devices only. The fairness check
        looks up "training in float64".
        """

    def versions(self) -> dict[str, str]:
        """Versions of the framework and of the libraries its speed depends on."""

    def list_devices(self, kind: str, count: int) -> list[Device]:
        """The framework's handles for the devices of a run.

        Called before :meth:`configure`, and before anything is computed.

        Args:
            kind: ``gpu`` or ``cpu``.
            count: number of replicas.

        Raises:
            UserError: the devices cannot be had.
        """

    def configure(self, precision: str, kind: str) -> None:
        """Set the process up for a precision, and for speed on the given kind of device.

        The notebook says what is cast.

        Args:
            precision: ``fp32``, ``tf32``, ``bf16`` or ``fp16``.
            kind: ``gpu`` or ``cpu``.

        Raises:
            UnsupportedError: the framework cannot compute in this precision there.
        """

    def synchronize(self, devices: Sequence[Device]) -> None:
        """Wait until the devices have finished all queued work; for timing only."""

    def load_weights(self, model: Model, weights: Mapping[str, np.ndarray]) -> None:
        """Copy canonical weights into ``model``, on every replica.

        Args:
            model: the notebook's model.
            weights: float arrays by torchvision's names; convolutions are (out, in, height,
                width). Those of a custom network (``custom.is_own``) have the framework's names.

        Raises:
            ValueError: an array is missing, or there is one that the model has not.
        """

    def dump_weights(self, model: Model) -> dict[str, np.ndarray]:
        """The model's weights in the canonical layout; the inverse of :meth:`load_weights`."""

    def load_optimizer(
        self, model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
    ) -> None:
        """Restore the optimiser's state as :meth:`dump_optimizer` returned it.

        Args:
            model: the model whose weights the optimiser updates.
            optimizer: the optimiser to restore.
            state: arrays by name; if empty, nothing changes.
            scaler: what multiplies fp16's loss, if that is not part of the optimiser.
        """

    def dump_optimizer(
        self, model: Model, optimizer: Any, scaler: Any = None
    ) -> dict[str, np.ndarray]:
        """The optimiser's state as arrays in the canonical layout.

        Args:
            model: the model whose weights the optimiser updates.
            optimizer: the optimiser to save.
            scaler: what multiplies fp16's loss, if that is not part of the optimiser.

        Returns:
            Adam's two moments of each weight (``first/...``, ``second/...``), or momentum's
            velocity (``first/...``) as PyTorch has it, without the rate; the number of steps
            (``step``) and, if something scales fp16's loss, its factor (``scale``).
        """

    def watch(self, replica: Any) -> Watch:
        """Look on while a replica trains; it must not have taken a step yet.

        Args:
            replica: the notebook's.

        Returns:
            What the framework's own objects say of it, while it trains and afterwards.
        """

    def exact(
        self,
        build_model: Callable[[Mapping[str, np.ndarray]], Model],
        weights: Mapping[str, np.ndarray],
    ) -> Model:
        """The notebook's model in float64.

        The fairness check and the self-test call this function and the next four a few times at
        most, so a compiler should not optimise there.

        Args:
            build_model: the notebook's function, which makes a model of canonical weights.
            weights: arrays by torchvision's names, of float32 or float64.
        """

    def shallow(self, weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
        """A network of one convolution, BatchNorm and classifier, to test a training loop on.

        Args:
            weights: arrays by the names in ``shapes.SHALLOW``; their dtype is the network's.
            devices: the devices that hold a replica.
        """

    def logits(self, model: Model, images: np.ndarray) -> np.ndarray:
        """The model's logits in evaluation mode.

        Args:
            model: the notebook's model.
            images: normalised floats (N, 3, H, W).

        Returns:
            Logits before the sigmoid (N, outputs).
        """

    def train_forward(
        self, model: Model, images: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """A forward pass in training mode, on one device.

        Args:
            model: the notebook's model; it is not changed.
            images: normalised floats (N, 3, H, W).

        Returns:
            Logits (N, outputs), and the weights after the pass, in which only BatchNorm's running
            statistics differ.
        """

    def gradients(
        self, model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
    ) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradients of the mean loss, as the optimiser would get them.

        Args:
            model: the notebook's model; BatchNorm uses its running statistics, so that the split
                over devices cannot change the result.
            images: normalised floats (N, 3, H, W).
            targets: labels (N, outputs), 0 or 1.
            devices: the devices that share the batch.

        Returns:
            The mean loss, and the gradients by torchvision's names.
        """

    def slowest(self, seconds: float, devices: Sequence[Device]) -> float:
        """The longest time that any replica's process measured.

        Args:
            seconds: what this process measured.
            devices: handles from :meth:`list_devices`.

        Returns:
            Seconds.
        """


class WithPool(Protocol):
    """What a framework's module has in addition if it takes most of a GPU's memory at its start."""

    def peak_bytes(self, devices: Sequence[Device]) -> int | None:
        """The most that arrays and programs took on one of these GPUs; None of CPU devices.

        The driver tells of the pool instead, of which they are a part.
        """


class OverNodes(Protocol):
    """What a framework's module has in addition if a notebook of it spans several nodes.

    ``<module>_ranks.py`` beside it, if there is one, has what comes before or besides training:
    ``environment(place)`` gives the variables that a rank has before any cell runs.
    """

    def rank_gradients(
        self, model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
    ) -> tuple[float, dict[str, np.ndarray]]:
        """Loss and gradients of the mean loss over all ranks, as the optimiser would get them.

        Called by all ranks, in the world that the notebook's ``start`` has joined.

        Args:
            model: the notebook's model; BatchNorm uses its running statistics.
            images: normalised floats (N, 3, H, W), those of all ranks.
            targets: labels (N, outputs), 0 or 1.
            devices: this process's.

        Returns:
            The mean loss, and the gradients by torchvision's names.
        """


class Notebook(Protocol):
    """What a framework's module has in addition if its notebook calls ``helpers.begin``.

    The notebook's loader gives batches of pixels, targets and image numbers. Its replica has a
    ``network`` and an ``optimizer``.
    """

    def queued(self, device: Device) -> Callable[[], None] | None:
        """A callable that waits for the work that the device has been given up to now.

        Returns:
            A callable for another thread; None if the device has finished.
        """

    def free_memory(self, devices: Sequence[Device]) -> None:
        """Give back what a framework's pool has and nothing uses: the fairness check has ended."""

    def state_of(self, model: Model, weights: Mapping[str, np.ndarray]) -> Any:
        """Canonical weights as the framework's own function loads them into ``model``.

        BatchNorm's layers get the recipe's epsilon and momentum, but not a custom network's.

        Args:
            model: the notebook's model, not yet on a device.
            weights: arrays as for :meth:`Framework.load_weights`.
        """

    def as_loaded(self, pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
        """A batch as the notebook's loader gives it.

        Args:
            pixels: uint8 (N, crop, crop, 1 or 3).
            targets: float32 (N, findings), or int64 (N,) classes.
            numbers: of the images in their part, (N,).
        """

    def set_epoch(self, loader: Any, epoch: int) -> None:
        """Give the notebook's training loader another epoch's order and crops; the first is 0."""

    def set_step(self, replica: Any, step: int) -> None:
        """Go on in the learning-rate schedule at this step, from 0, after a checkpoint."""

    def seen_by(self, model: Model) -> AbstractContextManager[list[np.ndarray]]:
        """What a shallow network is given meanwhile, normalised floats (N, 3, H, W) a batch."""


class Apart(Protocol):
    """What a framework's module has in addition if a notebook must not start its GPUs too early."""

    def apart(self, function: Callable[[], Found], devices: Sequence[Device]) -> Found:
        """Call a function that uses the devices, in a process of its own where these are GPUs.

        Args:
            function: with its result, it can be pickled by cloudpickle.
            devices: this process's.

        Returns:
            What the function returned.
        """


class Placed(Protocol):
    """What a framework's module has in addition if the notebook's weights need a context."""

    def beside(self, model: Model) -> AbstractContextManager[Any]:
        """A network that is made inside is placed as this one of the notebook is."""


class Reads(Protocol):
    """What a framework's module has in addition if a function of the framework reads the batches.

    Keras's ``fit`` does; a loop of the notebook's own iterates over ``run.watch(batches)``.
    """

    def watched(self, batches: Iterable[Any], watching: Watching) -> Any:
        """What ``run.watch`` returns: the batches as that function accepts them, to be noted.

        Args:
            batches: the notebook's loader, or an iterable of batches as it gives them.
            watching: to be entered now, and left when the function has ended.
        """


class Launched(Protocol):
    """What a framework's module has in addition if its notebook calls ``run.launch``.

    A notebook whose ranks a launcher starts needs :meth:`make_current` only.
    """

    def make_current(self, device: Device, threads: int | None) -> None:
        """Let this process compute on the device unless it names another one.

        Args:
            device: a handle from :meth:`Framework.list_devices`.
            threads: for how many threads a CPU device has cores; None: as many as there are.
        """

    def rendezvous(self) -> AbstractContextManager[dict[str, str]]:
        """Where the processes of ``run.launch`` find each other, while they run.

        Returns:
            The environment variables that they get in addition to torchrun's of ranks.
        """

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, by rank, in each of them; alone where they have not joined.

        Args:
            value: anything that can be pickled.
        """
