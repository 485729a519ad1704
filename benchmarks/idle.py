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
import contextlib
import io
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import notebook_loops

from helpers.frameworks import NOTEBOOKS
from helpers.results import intervals
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
    from helpers.runner.notebook_code import run_cells

    with contextlib.redirect_stdout(io.StringIO()):
        names = run_cells(
            NOTEBOOKS[framework],
            until="## 10.",
            checked=False,
            run=str(folder / "run"),
            data=str(folder / "data"),
            recipe="demo",
            devices=given.devices,
            batch_size=given.batch_size,
        )
    as_it_comes = mock.patch.object(
        tf.data.Dataset, "_apply_debug_options", backend._apply_debug_options
    )
    turns: dict[str, list[tuple[float, ...]]] = {"without": [], "with": []}
    order = list(turns)
    for _ in range(given.rounds):
        for name in order:
            with as_it_comes if name == "with" else contextlib.nullcontext():
                turns[name].append(turn(names["this_run"]))
        order.reverse()
    names["this_run"].monitor.stop()
    for number, figure in enumerate(FIGURES):
        without, tuned = ([turn[number] for turn in taken] for taken in turns.values())
        report(figure, without, tuned)


def report(figure: str, without: Sequence[float], tuned: Sequence[float]) -> None:
    ratios = [b / a for a, b in zip(without, tuned, strict=True)]
    ratio, low, high = intervals.of_median(ratios)
    print(
        f"  {figure}: {statistics.median(without):.2f} s without autotuning, "
        f"{statistics.median(tuned):.2f} s with it, {ratio:.3f} times "
        f"({low:.3f} to {high:.3f}); of single turns {min(without):.2f} to {max(without):.2f} and "
        f"{min(tuned):.2f} to {max(tuned):.2f} s",
        flush=True,
    )


def turn(run: Any) -> tuple[float, float, float]:
    """Seconds of one training: of the clock, of the processor, and of validation in an epoch."""
    began, processor = time.perf_counter(), time.process_time()
    begin = checkpoint.Checkpoint(run.initial.arrays, run.folder, {})
    agreement = graceful_stop.Agreement(run.folder)
    given = (begin.weights, 0, begin, agreement, lambda row: None)
    (trained,) = run.with_replica(train_loop.train, *given)
    seconds = time.perf_counter() - began, time.process_time() - processor
    return *seconds, statistics.mean(epoch["valid_seconds"] for epoch in trained.history)


if __name__ == "__main__":
    main()
