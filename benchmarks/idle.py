"""Measure the cost of tf.data's autotuning: each notebook's training without and with it.

    .venvs/lab/bin/python benchmarks/idle.py [--quick] [--frameworks tensorflow,keras]
                                             [--batch-size 16] [--rounds 7] [--devices 1]

A turn is the notebook's own `train`, with loaders, validation and checkpoints, over five epochs of
generated X-rays; the graph is there from a run before. Turns without autotuning, as the notebook
has it, and with it, as TensorFlow comes, alternate in one process. Figures are medians of a turn's
seconds by the clock, of its processor time, of what validation takes in an epoch, and of the ratio
with autotuning to without, with its interval to 95 %: where the clock's is above the processor's,
the program stood idle.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import notebook_loops
import turns

from helpers.training import checkpoint, graceful_stop, train_loop

IMAGES = 120
FIGURES = ("a turn", "a turn, of processor time", "validation in an epoch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure, "tensorflow,keras")


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    import tensorflow as tf

    from helpers.frameworks import tensorflow as backend

    batch, devices = given.batch_size, given.devices
    names = notebook_loops.names_of(framework, folder, batch, until="## 10.", devices=devices)
    as_it_comes = mock.patch.object(
        tf.data.Dataset, "_apply_debug_options", backend._apply_debug_options
    )

    def tuned() -> tuple[float, ...]:
        with as_it_comes:
            return turn(names["this_run"])

    loads: dict[str, Callable[[], tuple[float, ...]]]
    loads = {"without": partial(turn, names["this_run"]), "with": tuned}
    taken = turns.by_turns(loads, given.rounds)
    names["this_run"].monitor.stop()
    for figure, found in zip(FIGURES, taken, strict=True):
        what = f"{figure} of {framework} without autotuning"
        turns.report(what, "s", found["without"], found["with"], "with it")


def turn(run: Any) -> tuple[float, ...]:
    """Seconds of one training: of the clock, of the processor, and of validation in an epoch."""
    begin = checkpoint.Checkpoint(run.initial.arrays, run.folder, {})
    agreement = graceful_stop.Agreement(run.folder)
    given = (begin.weights, 0, begin, agreement, lambda row: None)
    trained: list[Any] = []
    seconds = turns.seconds(lambda: trained.extend(run.with_replica(train_loop.train, *given)))
    return *seconds, statistics.mean(epoch["valid_seconds"] for epoch in trained[0].history)


if __name__ == "__main__":
    main()
