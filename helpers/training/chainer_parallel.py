"""Extend Chainer's updaters with exchangeable loaders and with threads for CPU devices.

An updater keeps the iterators that it was made with, and ``MultiprocessParallelUpdater`` forks its
processes, with a copy of them each, once and for good. Here an updater reads a :class:`Feed`, which
goes from loader to loader while the updater, its processes and their memory on the GPUs stay.

An *example*, in Chainer's words, is here a *part* of a batch: images, uint8 (n, 1, crop, crop), and
targets, int32 (n, 14), for to hand over an example costs Chainer more than to crop an image.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import chainer
import numpy as np
from chainer import training

if TYPE_CHECKING:  # a project into which this file is copied has none of them
    from helpers.recipe import Rule
    from helpers.training.step_clock import StepClock

Device: TypeAlias = chainer.backend.Device
Arrays: TypeAlias = tuple[Any, ...]

OWN_RATE = chainer.optimizers.MomentumSGD().lr
"""Before the first step; a velocity that was restored is of this rate."""


class Fixed:
    """A part that is used again and again. It is sent to its device when it is first needed there:
    earlier CUDA must not start."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.arrays: Arrays = arrays
        self.device: Device | None = None

    def on(self, device: Device | None) -> Arrays:
        """The arrays, on ``device`` (None: where they are)."""
        if device is not None and device != self.device:
            self.arrays, self.device = device.send(self.arrays), device
        return self.arrays


def rate_of_step(rule: Rule, rates: Iterator[float]) -> Callable[[Any], None]:
    """An optimiser's hook: each step is taken at the next of ``rates``.

    Chainer has the rate in momentum's velocity, where the old one would live on: for a step at
    which the rate changes the momentum is corrected (Goyal et al. 2017, section 3).
    """
    before = OWN_RATE

    def rate_of_step(optimizer: Any) -> None:
        nonlocal before
        rate = next(rates)
        if rule.momentum:
            optimizer.momentum = rule.momentum * (rate / before)
        setattr(optimizer, "alpha" if rule.name == "adam" else "lr", rate)
        before = rate

    return rate_of_step


@chainer.dataset.converter()
def join(parts: Sequence[Any], device: Device | None = None) -> Arrays:
    """The converter: the parts of a batch as one array of each kind, on ``device``.

    Args:
        parts: tuples of arrays, or one :class:`Fixed`.
        device: None for the host's memory.
    """
    if isinstance(parts[0], Fixed):
        (part,) = parts
        return part.on(device)
    arrays = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    return arrays if device is None else tuple(device.send(arrays))


def at_once(function: Callable[..., Any], *each: Sequence[Any]) -> list[Any]:
    """``function`` of every device's arguments, in a thread for each; the results in order."""
    with ThreadPoolExecutor(len(each[0])) as threads:
        return list(threads.map(function, *each))


@contextmanager
def evaluating(device: Device) -> Iterator[None]:
    """In this thread, for Chainer's configuration belongs to one: no training, and no graph."""
    with (
        chainer.using_device(device),
        chainer.using_config("train", False),
        chainer.no_backprop_mode(),
    ):
        yield


class ShareOfEpoch:
    """An order sampler: an iterator's share of every epoch's parts, those at ``places``.

    Each epoch's parts have numbers of their own: epoch times ``parts`` plus the part's place.
    """

    def __init__(self, parts: int, places: np.ndarray, epoch: int) -> None:
        self.parts, self.places, self.epoch = parts, places, epoch

    def __call__(self, order: np.ndarray, position: int) -> np.ndarray:
        """The next epoch's numbers: Chainer asks when an iterator is made, and at each end."""
        numbers: np.ndarray = self.epoch * self.parts + self.places
        self.epoch += 1
        return numbers


class Loader:
    """Training batches without end: an iterator for each process that an updater has."""

    def __init__(self, iterators: Iterable[chainer.dataset.Iterator]) -> None:
        self.iterators = list(iterators)

    def __iter__(self) -> Iterator[Arrays]:
        """Global batches as arrays in the host's memory; to close it ends the loader's workers."""
        try:
            for shares in self._shares():
                yield join(list(chain(*shares)))
        finally:
            self.finalize()

    def once(self) -> list[list[Any]]:
        """One global batch, as an evaluation reads it: a list of parts."""
        return [list(chain(*next(self._shares())))]

    def on_devices(self, devices: Sequence[Device]) -> Iterator[list[Arrays]]:
        """Global batches, the share of each iterator on its device."""
        for shares in self._shares():
            yield [join(parts, device) for parts, device in zip(shares, devices, strict=False)]

    def finalize(self) -> None:
        """End the workers."""
        for iterator in self.iterators:
            iterator.finalize()

    def _shares(self) -> Iterator[list[list[Any]]]:
        with ThreadPoolExecutor(len(self.iterators)) as threads:
            while True:
                yield list(threads.map(next, self.iterators))


class Steps:
    """A Trainer's stop trigger: after so many steps of an updater that took others before."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.first: int | None = None

    def __call__(self, trainer: training.Trainer) -> bool:
        """Whether the Trainer is to end; it asks before each step."""
        iteration = trainer.updater.iteration
        self.first = iteration if self.first is None else self.first
        return iteration - self.first == self.steps


class Again:
    """All batches of an iterator that ends, as often as asked for.

    Its workers read the first batches from ``iter`` on, before the training asks for one.
    """

    def __init__(self, iterator: chainer.dataset.Iterator) -> None:
        self.iterator, self.begun = iterator, False

    def __iter__(self) -> Iterator[list[Any]]:
        if self.begun:
            self.iterator.reset()
            return self.iterator
        self.begun = True  # with the first batch that is asked for, MultiprocessIterator's start
        return chain([next(self.iterator)], self.iterator)


class Feed(chainer.dataset.Iterator):
    """What an updater reads in one of its processes: its iterator of the loader in use.

    Which loader that is, the processes share. The first one also notes on a clock when each batch
    arrives.
    """

    is_new_epoch = False  # a batch says nothing of an epoch's end, nor does the updater need it

    def __init__(self, loaders: Sequence[Loader], place: int, number: Any) -> None:
        self.loaders = list(loaders)
        self.iterators = [loader.iterators[place] for loader in loaders]
        self.dataset = self.iterators[0].dataset  # updaters compare the lengths of theirs
        self.number = number
        self.noted: Iterator[list[Any]] | None = None

    def use(self, loader: Loader, clock: StepClock) -> None:
        """In all processes, continue with this loader; called in the first one.

        Raises:
            ValueError: the updater was not made for that loader.
        """
        self.number.value = self.loaders.index(loader)
        if clock.observer is not None:
            clock.observer.shares = len(self.loaders[self.number.value].iterators)
        self.noted = clock.batches(self.iterators[self.number.value])

    def __next__(self) -> list[Any]:
        return next(self.noted or self.iterators[self.number.value])

    def finalize(self) -> None:
        """End the workers of all its loaders."""
        for iterator in self.iterators:
            iterator.finalize()


def feeds(loaders: Sequence[Loader]) -> list[Feed]:
    """One for each process of an updater, which may then read any of these loaders."""
    number = multiprocessing.Value("i", 0)
    return [Feed(loaders, place, number) for place in range(len(loaders[0].iterators))]


class Lasting:
    """An updater that outlives its Trainer, which would end its workers and processes."""

    def __init__(self, updater: training.Updater) -> None:
        self.updater = updater

    def __getattr__(self, name: str) -> Any:
        return getattr(self.updater, name)

    def finalize(self) -> None:
        """Do nothing: the creator of the updater finalizes it."""


class ThreadedUpdater(training.updaters.ParallelUpdater):
    """ParallelUpdater for CPU devices: a thread for each.

    ParallelUpdater works through its devices one after another. GPUs do not mind, for their work
    is only queued; NumPy computes at once, with most of its functions on one core.

    Args:
        optimizer: of the first of ``copies``.
        copies: the network with its loss, for each of ``devices``.
    """

    def __init__(
        self,
        feed: chainer.dataset.Iterator,
        optimizer: chainer.Optimizer,
        converter: Callable[..., Arrays],
        copies: Sequence[chainer.Chain],
        devices: Sequence[Device],
    ) -> None:
        names = ["main", *(f"device {number}" for number in range(1, len(devices)))]
        models, places = (dict(zip(names, each, strict=True)) for each in (copies, devices))
        super().__init__(feed, optimizer, converter, models, places)
        self._silent = False

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Meanwhile nothing goes between the devices."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def update_core(self) -> None:
        """One step of the optimiser, on a batch of which device ``i`` of ``n`` takes every n-th
        part, beginning with the i-th."""
        optimizer, batch = self.get_optimizer("main"), self.get_iterator("main").next()
        copies, devices = list(self._models.values()), list(self._devices.values())

        def backward(number: int, copy: chainer.Chain, device: Device) -> None:
            share = self.converter(batch[number :: len(copies)], device)
            copy.cleargrads()
            copy(*share).backward()

        at_once(backward, range(len(copies)), copies, devices)
        others = [] if self._silent else copies[1:]
        for other in others:
            copies[0].addgrads(other)  # the sum
        optimizer.update()
        for other in others:
            other.copyparams(copies[0])  # and the running statistics of BatchNorm
