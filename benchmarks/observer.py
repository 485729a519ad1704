"""What it costs to look on while a notebook trains: it should cost nothing.

    .venvs/lab/bin/python benchmarks/observer.py [--quick] [--frameworks pytorch,mxnet]
                                                 [--batch-size 16] [--steps 48] [--rounds 9]

The notebook's own `train_epoch` on files of 64 px, on one device, takes turns with an observer and
without one (`helpers/training/observer.py`). It notes each step's learning rate and labels, and in
every turn the pixels of the first batches, as in the first and last epoch of a run. A ratio of 0.99
means that observing costs one per cent. So small a share is hidden by the noise of a shared
machine; so the time spent in the observer itself is printed too, as a share of the turns. What the
fairness check does after training, outside the epochs, is timed at the end: the loader is asked
again, and each crop is searched for in its image.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import notebook_loops
from notebook_loops import Take
from turns import report_turns, take_turns

IMAGES = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=48, help="steps in each turn")
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    from helpers.training import train_loop
    from helpers.training.observer import Observer

    spent: list[float] = []

    class Timed(Observer):
        """An observer that notes how long it takes."""

        def batch(self, batch: Any) -> None:
            began = time.perf_counter()
            super().batch(batch)
            spent.append(time.perf_counter() - began)

        def step(self) -> None:
            began = time.perf_counter()
            super().step()
            spent.append(time.perf_counter() - began)

    def loops(world: Any, work: Any, replica: Any) -> None:
        loader = work.functions.make_train_loader(world, 0, work.workers)
        work.functions.ready(replica, [loader])
        last: list[Observer] = []
        taken: list[float] = []

        def alone(steps: int) -> None:
            train_loop.take_steps(work, replica, loader, steps)

        def observed(steps: int) -> None:
            observer = Timed(world, work, replica, 1)
            observer.begin(1, 0)
            began = time.perf_counter()
            train_loop.take_steps(work, replica, loader, steps, observer=observer)
            taken.append(time.perf_counter() - began)
            last[:] = [observer]

        loads: dict[str, Take] = {"observed": observed, "alone": alone}
        turns = take_turns(loads, given.batch_size, given.rounds, given.steps)
        report_turns("observer", framework, turns, "observed", "alone", "without")
        share = 100 * sum(spent) / sum(taken)
        print(f"  in the observer: {share:.3f} % of the turns' time (one run)", flush=True)
        began = time.perf_counter()
        last[0].end()
        last[0].observed()
        print(f"  after training: {time.perf_counter() - began:.2f} s (one run)", flush=True)

    notebook_loops.in_replica(notebook_loops.names_of(framework, folder, given.batch_size), loops)


if __name__ == "__main__":
    main()
