"""Train with sections 4 to 9 of a notebook in another project, without this one's helpers.

The end of each notebook says how. Images are files in ``train/CLASS/`` and ``valid/CLASS/``, at
least as large as the crop. Afterwards ``this_run.replica.network`` is trained; save it, in the
process of rank 0, as your framework does. Left out: the fairness check, the monitor, checkpoints,
the test and the record. On Linux alone, because loaders fork their workers.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

RENDEZVOUS = "RENDEZVOUS"  # an environment variable: where PyTorch's processes meet
os.environ.setdefault(RENDEZVOUS, "env://")
IN_CHILD = None  # the cells name them; here the script's launcher decides


class LoaderError(Exception):
    """A loader gave too few images."""


@dataclass(frozen=True)
class Rule:
    """How the optimiser updates weights: ``adam``, ``momentum`` or ``sgd``."""

    name: str
    momentum: float = 0.0
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how: change these."""

    epochs: int = 5
    batch_size: int = 64  # images per device
    learning_rate: float = 1e-4  # of one device; n devices have n times as much
    crop: int = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    rule: Rule = Rule("adam")
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8
    precision: str = "fp32"  # "bf16" or "fp16", but not in MXNet and Chainer
    execution: str = "default"  # "compiled" (PyTorch, TensorFlow, Keras), "eager" (not PyTorch)
    task: str = "multiclass"  # "multilabel": targets are float32 (images, findings)
    seed: int = 0  # of order and crops; seed the weights as your framework does


@dataclass(frozen=True)
class OnDevices:
    """A recipe on a number of devices."""

    recipe: Recipe
    devices: int

    @property
    def global_batch_size(self) -> int:
        return self.recipe.batch_size * self.devices

    def steps(self, images: int) -> int:
        """Steps of an epoch; a last batch that is not full is left out."""
        if images < self.global_batch_size:
            raise ValueError(
                f"{images} training images do not fill a batch of {self.global_batch_size}: "
                "set a smaller batch_size in standalone.py"
            )
        return images // self.global_batch_size

    def learning_rate_at(self, step: int, steps_per_epoch: int) -> float:
        return self.recipe.learning_rate * self.devices


class Images:
    """RGB images in folders named after their classes.

    For other data, give ``Run`` an object with the same attributes. ``train`` and ``valid`` are
    tables with a column ``row``, what ``read`` gets; ``planes`` is 3 or 1 (grey). ``files`` and
    ``array`` are for TensorFlow, which reads JPEG and PNG files from the column ``path`` by itself;
    with ``files = False`` it calls ``read``.
    """

    planes, array, files = 3, None, True

    def __init__(self, folder: Path, crop: int) -> None:
        self.train, self.valid, self.crop = _table(folder / "train"), _table(folder / "valid"), crop
        self.paths = [*self.train["path"], *self.valid["path"]]
        self.valid["row"] += len(self.train)
        self.classes = sorted(set(self.train["class"]))
        if len(self.classes) < 2:
            raise ValueError(f"{folder / 'train'}: one class only, {self.classes[0]}")
        if unknown := set(self.valid["class"]) - set(self.classes):
            raise ValueError(f"{folder / 'valid'}: classes that train lacks: {sorted(unknown)}")

    def read(self, row: int) -> np.ndarray:
        """One image: uint8 (H, W, 3)."""
        path = self.paths[row]
        try:
            with Image.open(path) as image:
                if image.mode[0] in "IF":
                    raise ValueError(f"it has {image.mode} pixels; save it with 8 bits")
                if min(image.size) < self.crop:
                    raise ValueError(f"{image.size} pixels are less than the crop of {self.crop}")
                return np.asarray(image.convert("RGB"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None

    def targets(self, table: pd.DataFrame) -> np.ndarray:
        """The numbers of the images' classes: int64 (N,)."""
        return np.array([self.classes.index(name) for name in table["class"]], np.int64)


def _table(folder: Path) -> pd.DataFrame:
    known = Image.registered_extensions()
    paths = sorted(p for p in folder.glob("[!.]*/[!.]*") if p.suffix.lower() in known)
    if not paths:
        raise FileNotFoundError(f"{folder}: no images in CLASS/ below it")
    classes, names = [path.parent.name for path in paths], [str(path) for path in paths]
    return pd.DataFrame({"row": range(len(paths)), "path": names, "class": classes})


@dataclass(frozen=True)
class World:
    """All devices that train, seen from one of the processes that drive them."""

    rank: int
    size: int  # devices of all processes
    devices: tuple[Any, ...]  # this process's
    on_gpu: bool
    shares_gpus: bool = False

    @property
    def kind(self) -> str:
        return "gpu" if self.on_gpu else "cpu"

    @property
    def processes(self) -> int:
        return self.size // len(self.devices)

    @property
    def on_machine(self) -> int:
        return self.size

    @property
    def device(self) -> Any:
        return self.devices[0]


class Run:
    """What a notebook calls ``this_run``: the images, the devices, and the loop over the epochs.

    ``images`` is a folder, or an object like :class:`Images`. ``devices`` are this process's. One
    of several processes has a ``place``, its rank and their number, which `torchrun` tells it.
    """

    initial = SimpleNamespace(arrays=None)  # the weights that the network begins with: its own
    network = None

    def __init__(
        self,
        images: Any,
        devices: Sequence[Any],
        *,
        on_gpu: bool,
        workers: int = 0,  # of all processes; 0: a worker for each core
        place: tuple[int, int] | None = None,
    ) -> None:
        self.devices, self.workers = tuple(devices), workers or usable_cores()
        told = os.environ.get("RANK", 0), os.environ.get("WORLD_SIZE", 1)
        rank, processes = map(int, place or told)
        self.world = World(rank, processes * len(self.devices), self.devices, on_gpu)
        self.recipe = OnDevices(Recipe(), self.world.size)
        folder = isinstance(images, str | Path)
        self.images = Images(Path(images), self.recipe.recipe.crop) if folder else images
        self.functions: dict[str, Any] = {}

    def check_training_loop(self, **functions: Any) -> None:
        """Takes the notebook's functions; nothing is checked."""
        self.functions = functions

    def show_images(self, evaluate_pixels: Callable) -> None: ...

    def check_fairness(self, *given: Any) -> None: ...

    def train(self) -> None:
        does = self.functions
        self.replica = does["start"](self.world, does["build_model"](None))
        does["train"](self.world, self.replica, Training(self, self.replica))
        does.get("stop", _nothing)(self.replica)


def _nothing(*given: Any) -> None: ...


@dataclass
class Training:
    """What the notebook's ``train`` calls ``run``."""

    run: Run
    replica: Any
    epochs_done: int = 0

    @property
    def workers(self) -> int:
        return self.run.workers

    def epochs(self, loader: Any, validation: Any) -> Iterator["Epoch"]:
        self.run.functions.get("ready", _nothing)(self.replica, [loader])
        for number in range(1, self.run.recipe.recipe.epochs + 1):
            yield Epoch(self.run, number, loader, validation)


@dataclass
class Epoch:
    """One pass over the training images, and one over those for validation."""

    run: Run
    number: int
    loader: Any
    validation: Any
    loss: float = float("nan")
    seconds: float = float("nan")

    @cached_property
    def steps(self) -> int:
        return self.run.recipe.steps(len(self.run.images.train))

    @contextmanager
    def train(self) -> Iterator[tuple[Any, type["Clock"]]]:
        began = time.perf_counter()
        yield self.loader, Clock
        self.seconds = time.perf_counter() - began

    @contextmanager
    def validate(self) -> Iterator[Iterator[Any]]:
        yield iter(self.validation)

    def log(self, scores: np.ndarray, valid_loss: float) -> None:
        """Print the epoch's line; ``scores`` are logits (images, classes)."""
        targets = self.run.images.targets(self.run.images.valid)
        if self.run.recipe.recipe.task == "multilabel":
            what, right = "findings right", np.mean((scores > 0) == (targets > 0.5))
        else:
            what, right = "right", np.mean(scores.argmax(axis=1) == targets)
        if self.run.world.rank == 0:
            print(
                f"epoch {self.number}: training loss {self.loss:.4f}, "
                f"validation loss {valid_loss:.4f}, {what} {right:.3f}, "
                f"{self.steps * self.run.recipe.global_batch_size / self.seconds:.0f} images/s",
                flush=True,
            )


class Clock:
    """Measures nothing."""

    observer = None
    batches = staticmethod(lambda batches: batches)
    queued = staticmethod(_nothing)


class DeviceLosses:
    """The mean loss of all images; read once, after the last step."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self.sums: dict[int, tuple[Any, int]] = {}  # of losses, and how many, on each device

    def add(self, device: int, loss: Any, images: int) -> None:
        # A loss of PyTorch or Chainer would keep its graph in memory.
        detached = getattr(loss, "detach", lambda: getattr(loss, "array", loss))
        total, count = self.sums.get(device, (0, 0))
        self.sums[device] = total + detached() * images, count + images

    def mean(self) -> float:
        own = [(_number(total), count) for total, count in self.sums.values()]
        total, count = summed(np.sum([(0.0, 0), *own], axis=0))
        return float(total / count)


def _number(loss: Any) -> float:
    as_number = getattr(loss, "asscalar", getattr(loss, "item", lambda: loss))
    return float(as_number())


class Batches:
    """A notebook's dataset, a batch at a time."""

    def __init__(self, dataset: Any, shape: Sequence[int]) -> None:
        self.dataset, self.shape = dataset, shape

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
        pixels = np.empty((len(numbers), *self.shape), np.uint8)
        return pixels, self.dataset.write(numbers, pixels)


def summed(own: np.ndarray) -> np.ndarray:
    """The sum over all processes; where there are several, the script replaces this."""
    return own


def copy_into(place: np.ndarray, pixels: np.ndarray) -> None:
    place[:] = pixels


def configure(precision: str, kind: str) -> None:
    """Nothing is switched on: your framework's defaults hold, for TF32 too."""


def load_weights(network: Any, arrays: None) -> None: ...


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with(processes: Sequence[Any]) -> None:
    """End this process when one of its own fails, for which it would wait for ever."""

    def watch(process: Any) -> None:
        process.join()
        if process.exitcode:
            print(f"{process.name} ended with exit code {process.exitcode}", flush=True)
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(1)

    for process in processes:
        Thread(target=watch, args=[process], daemon=True).start()


def in_order(own: np.ndarray, total: int) -> np.ndarray:
    """The evaluated images without the padding of the last batch."""
    return own[:total]


def of_first(value: Any) -> Any:
    return value
