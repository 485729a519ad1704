"""A wall-clock timer that is correct on devices that work asynchronously.

A GPU call returns before the GPU has done the work, so a clock read straight after it measures
how fast Python queues. ``stopwatch`` waits for the devices at its two ends, and only there:
inside the loop nothing waits.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace


@contextmanager
def stopwatch(synchronize: Callable[[], None]) -> Iterator[SimpleNamespace]:
    """``with stopwatch(synchronize) as watch: ...`` then ``watch.seconds``.

    ``synchronize`` returns when the devices have finished what is queued. After an error inside it
    is not called: they may never finish.
    """
    synchronize()
    start, watch = time.perf_counter(), SimpleNamespace()
    yield watch
    synchronize()
    watch.seconds = time.perf_counter() - start
