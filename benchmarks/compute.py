"""Measure the training step with each of a framework's compute options on and off.

    .venvs/lab/bin/python benchmarks/compute.py [--quick] [--slow] [--frameworks pytorch,mxnet]
                                                [--pixels 64] [--batch-size 16]

DenseNet121's training step on one batch that is ready (`benchmarks/bare_loops/`), on a GPU where
there is one, else on the CPU. The options of a framework take turns, round by round, against the
first of them; figures are medians, ratios are medians of the rounds' ratios, by the clock and by
the processor's time (see `step.py`). `--slow` adds what takes minutes to begin, or for a step.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from pathlib import Path

import inside
import quick
from turns import report_turns, take_turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slow", action="store_true", help="measure the compilers too")
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8, help="steps in each turn")
    inside.add_arguments(parser, rounds=9)
    given = quick.parse(parser)
    what = f"{given.batch_size} images of {given.pixels} px"
    inside.measure_each(__file__, parser, given, what, measure)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    inside.require("bare_loops", framework, "bare loop")
    loops = importlib.import_module(f"bare_loops.{framework}")
    options = dict(loops.OPTIONS)
    if given.slow:
        options |= loops.SLOW
    loads: dict[str, Callable[[int], None]] = {}
    for name, what in options.items():
        began = time.perf_counter()
        loads[name] = loops.make(given.pixels, given.batch_size, **what)
        loads[name](1)
        print(f"  {name}: first step after {time.perf_counter() - began:.1f} s", flush=True)
    turns = take_turns(loads, given.batch_size, given.rounds, given.steps)
    base = next(iter(loads))
    for name in list(loads)[1:]:
        report_turns("compute", f"{framework}, {name}", turns, name, base)


if __name__ == "__main__":
    main()
