"""Measure in every step how long PyTorch's replicas wait for each other's gradients.

DistributedDataParallel reduces gradients in buckets while the backward pass still computes. What
a step waits for is the rest: from the moment the last bucket was ready, and nothing was left to
compute, until all were reduced. A communication hook sees both, and adds no waiting of its own: on
a GPU it records events, which are read once an epoch.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from helpers.training.step_parts import Wait, Waited


class AllReduceClock:
    """Watches a model's all-reduce from here on; with one replica there is none.

    ``reduce`` is the communication hook that does the work; the default is what DDP does.
    """

    def __init__(
        self, model: DistributedDataParallel, reduce: Callable[..., Any] = allreduce_hook
    ) -> None:
        self._device = next(model.parameters()).device
        self._reduce = reduce
        self._ready: list[Any] = []  # of each step, when its last bucket was
        self._reduced: dict[int, Any] = {}  # by step, when its latest bucket was, so far
        self._buckets: dict[int, list[list[Any]]] = {}  # by step: when each began, and was reduced
        if dist.get_world_size() > 1:
            model.register_comm_hook(None, self._hook)

    def seconds(self) -> Waited:
        """What the steps since the last call waited, all together; waits for the devices.

        All replicas must call it. A replica that is early waits in the all-reduce for the others,
        so of each step counts what the last one waited: for the all-reduce alone. How long each
        waited itself, and until when, is in its ``steps``.
        """
        waits = [self._between(at, self._reduced[step]) for step, at in enumerate(self._ready)]
        totals = [self._total(self._buckets[step]) for step in range(len(waits))]
        until = [self._reduced[step] for step in range(len(waits))]
        if self._device.type != "cpu":
            until = [None] * len(waits)
        self._ready.clear()
        self._reduced.clear()
        self._buckets.clear()
        shortest = torch.tensor(waits, dtype=torch.float64, device=self._device)
        if waits:
            dist.all_reduce(shortest, dist.ReduceOp.MIN)
        own = [Wait(*each) for each in zip(waits, until, totals, strict=True)]
        return Waited.of(float(shortest.sum()), own)

    def _hook(self, group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        step = len(self._ready)
        times = [self._now()]
        self._buckets.setdefault(step, []).append(times)
        if bucket.is_last():
            self._ready.append(times[0])

        def note(reduced: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            # On a GPU this runs at once, on a stream that continues after the all-reduce.
            self._reduced[step] = self._now()
            times.append(self._reduced[step])
            return reduced.value()

        return self._reduce(group, bucket).then(note)

    def _total(self, buckets: list[list[Any]]) -> float:
        """Seconds in which any of a step's buckets was being reduced."""
        first, total, end = buckets[0][0], 0.0, 0.0
        for times in buckets:  # they begin in this order
            since, until = (self._between(first, moment) for moment in times)
            total += max(0.0, until - max(since, end))
            end = max(end, until)
        return total

    def _now(self) -> Any:
        """On a GPU a mark in what is queued there, which costs no waiting."""
        if self._device.type == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _between(self, start: Any, end: Any) -> float:
        if self._device.type == "cpu":
            return float(end - start)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000
