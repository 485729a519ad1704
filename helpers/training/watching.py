"""The notes of ``run.watch`` on a loop over batches, whoever iterates over them."""

from __future__ import annotations

from typing import Any

from helpers.training.step_clock import StepClock


class Watching:
    """The notes on a loop over batches, in the phase in which this is made.

    A context manager: its clock runs inside.
    """

    def __init__(self, loop: Any) -> None:
        run, phase = loop.run, loop.phase_now
        self._device, self._training = run.own_devices[0], phase == "train"
        self._notes: Any = loop.notes if self._training else loop.turn
        if phase in ("validate", "test"):
            self._notes = loop.evaluation
        report = loop.within if self._training and run.rank == 0 else None
        self._clock = loop.clock = StepClock(run.framework.queued, report)

    def __enter__(self) -> Watching:
        self._clock.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._clock.__exit__(*raised)

    def batch(self, batch: Any, at: float) -> None:
        """This batch arrived at this time of ``time.perf_counter``; a step is taken on it."""
        self._clock.arrived(at)
        if self._notes is not None:
            self._notes.batch(batch)

    def step(self) -> None:
        """The step on it is queued."""
        self._clock.queued(self._device)
        if self._training:
            self._notes.step()
