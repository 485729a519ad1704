"""A wall-clock timer that is correct on devices that work asynchronously.

A GPU call returns before the GPU has done the work, so a clock read straight after it measures
how fast Python queues. ``Stopwatch`` waits for the devices at its two ends, and only there:
inside the loop nothing waits.
"""

import time
from collections.abc import Callable
from types import TracebackType


class Stopwatch:
    """``with Stopwatch(synchronize) as watch: ...`` then ``watch.seconds``.

    ``synchronize`` is a call that returns when the devices have finished what is queued, for
    example ``lambda: framework.synchronize(devices)``; None where nothing is asynchronous.
    """

    def __init__(self, synchronize: Callable[[], None] | None = None) -> None:
        self._wait = synchronize or (lambda: None)
        self.seconds = float("nan")

    def __enter__(self) -> "Stopwatch":
        self._wait()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:  # after an error the devices may never finish
            self._wait()
        self.seconds = time.perf_counter() - self._start

    def rate(self, images: int) -> float:
        """Throughput in images per second."""
        return images / self.seconds
