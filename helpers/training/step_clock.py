"""Measure step by step, from inside the training loop, where the time of an epoch goes.

A framework that queues its work returns from a step before the device has done it, and a loop that
waited for the device would slow it down. So a second thread waits for each step's result.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self

from helpers.training import epoch_lines

Wait = Callable[[], None]
TELL_SECONDS = 1.0


class StepClock:
    """Entered around one epoch's loop, which calls :meth:`arrived` and :meth:`queued` in turn.

    ``completion`` is the framework module's ``queued``; ``report`` gets the number of steps done,
    at the start and every ``TELL_SECONDS`` or later.
    """

    def __init__(
        self,
        completion: Callable[[Any], Wait | None],
        report: Callable[[int], None] = lambda steps: None,
    ) -> None:
        self._completion, self._report = completion, report
        self._arrived: list[float] = []
        self._done: list[float] = []
        self._pending: SimpleQueue[Wait | None] = SimpleQueue()
        self._watcher: Thread | None = None
        self._error: BaseException | None = None
        self._start = self._told = float("nan")

    def __enter__(self) -> Self:
        self._report(0)
        self._start = self._told = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: Any) -> None:
        if self._watcher is None:
            return
        self._pending.put(None)
        if kind is None:  # after an error the devices may never finish
            self._watcher.join()
            if self._error is not None:
                raise self._error

    def arrived(self, at: float) -> None:
        """The next batch arrived at this time of ``time.perf_counter``."""
        self._arrived.append(at)

    def queued(self, result: Any) -> None:
        """A step was queued; ``result`` is what it returned."""
        wait = self._completion(result)
        if wait is None:
            self._note()
            return
        if self._watcher is None:
            self._watcher = Thread(target=self._watch, daemon=True)
            self._watcher.start()
        self._pending.put(wait)

    @property
    def steps(self) -> int:
        return len(self._done)

    @property
    def first_step_seconds(self) -> float:
        """From the loop's start until its first step was done."""
        return self._done[0] - self._start if self._done else float("nan")

    @property
    def step_seconds(self) -> list[float]:
        """From one step's end to the next one's: the first does not count."""
        return [after - before for before, after in pairwise(self._done)]

    @property
    def data_seconds(self) -> float:
        """The time in which the devices were idle because the next batch had not arrived."""
        free = [self._start, *self._done]
        return sum(max(0.0, at - since) for since, at in zip(free, self._arrived, strict=False))

    def _note(self) -> None:
        self._done.append(time.perf_counter())
        if self._done[-1] - self._told >= TELL_SECONDS:
            self._told = self._done[-1]
            epoch_lines.beat()
            self._report(self.steps)

    def _watch(self) -> None:
        try:
            while (wait := self._pending.get()) is not None:
                wait()
                self._note()
        except BaseException as error:
            self._error = error  # a framework may tell it only once: to the thread that waits
