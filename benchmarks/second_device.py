"""What a second CPU device brings where one process drives both, and what our settings add to it.

    .venvs/lab/bin/python benchmarks/second_device.py [--quick] [--frameworks mxnet,tensorflow]
                                                      [--batch-size 16] [--steps 4] [--rounds 7]

The notebook's own training loop on synthetic data, each device on a core of its own: on one device,
on two as the framework comes, and on two as the notebook sets it up (docs/speed.md, "Two devices in
one process"). Such settings are a process's for good, so each load has a process, and these take
turns. Figures are medians of images/s, ratios are medians of the rounds' ratios with their interval
to 95 %. Where the notebook sets nothing, both pairs of devices are set up alike.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import notebook_loops
from notebook_loops import Take
from turns import by_turns, report_turns, timed

from helpers.frameworks import cpu_cores

IMAGES = 60
IN_THE_KERNEL = ("mxnet", "tensorflow", "keras", "jax")
"""Frameworks that train in the notebook's own process."""
ONE, COMES, SET = "one device", "two as they come", "two as set"
DEVICES = {ONE: 1, COMES: 2, SET: 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4, help="steps in each turn")
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure, "mxnet,tensorflow")


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    if framework not in IN_THE_KERNEL:
        sys.exit(f"{framework} trains in processes of its own: give {', '.join(IN_THE_KERNEL)}")
    context = multiprocessing.get_context("spawn")
    turns = {}
    with contextlib.ExitStack() as pipes:  # a process ends when its pipe is closed
        for load in DEVICES:
            ours, theirs = context.Pipe()
            pipes.enter_context(ours)
            args = (theirs, framework, folder, given.batch_size, load)
            context.Process(target=serve, args=args).start()
            theirs.close()
            answer(ours)  # it is ready
            turns[load] = asked(ours, given.steps)
        for turn in turns.values():
            turn()
        found = by_turns(turns, given.rounds)
    report_turns("training", framework, found, SET, COMES)
    report_turns("training", framework, found, SET, ONE)


def asked(pipe: Connection, steps: int) -> Callable[[], tuple[float, float]]:
    def turn() -> tuple[float, float]:
        pipe.send(steps)
        found: tuple[float, float] = answer(pipe)
        return found

    return turn


def answer(pipe: Connection) -> Any:
    """What a process says; its failure ends this one."""
    found = pipe.recv()
    if isinstance(found, str):
        sys.exit(found)
    return found


def serve(pipe: Connection, framework: str, folder: Path, batch: int, load: str) -> None:
    """Take the requested numbers of steps in a separate process, until the pipe is closed.

    What it fails by is sent in one line.
    """

    def use(names: dict[str, Any], noise: Take, files: Take) -> None:
        def taken(steps: int) -> int:
            noise(steps)
            return steps * int(names["scaled"].global_batch_size)

        pipe.send(None)
        with contextlib.suppress(EOFError):
            while True:
                pipe.send(timed(partial(taken, pipe.recv())))

    multiprocessing.set_start_method("fork", force=True)  # of loader workers, as in a notebook
    with as_it_comes() if load == COMES else contextlib.nullcontext():
        given = {"devices": DEVICES[load], "cores_per_device": 1, "run": str(folder / load)}
        try:
            notebook_loops.with_loops(framework, folder, batch, use, **given)
        except Exception as error:
            pipe.send(f"{load}: {error}")


@contextlib.contextmanager
def as_it_comes() -> Iterator[None]:
    """Without what MXNet's and TensorFlow's notebooks set on CPU devices of one core each."""
    with (
        mock.patch.dict(os.environ, {"MXNET_CPU_TEMP_COPY": "4"}),
        mock.patch.object(cpu_cores, "threads_of_a_device", lambda: None),
    ):
        yield


if __name__ == "__main__":
    main()
