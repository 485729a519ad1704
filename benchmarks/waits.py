"""How often a report names a wait that is not there, or that is, by simulation.

    python benchmarks/waits.py [--reports 2000] [--seed 1] [--quick]

Turns of seven frameworks go through the program's own rules: how many rounds are taken
(helpers/training/measurement_rounds.py) and when a wait is named (helpers/training/attribution.py).
Each turn's time is the true one times noise, lognormal and its own.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import Any

import numpy as np
import quick

from helpers import terminal
from helpers.training import attribution, measurement_rounds

FRAMEWORKS = 7
NOISES = (0.03, 0.06, 0.10, 0.20)
ROUND_SECONDS = {"CPU demo": 6.0, "GPU": 3.5}
"""Three turns of training and their uncounted steps, the loader's and the product's."""
WAITS = (0.0, 0.1)
"""The share of an epoch that devices wait for data."""
HEADER = ("round", "noise", "wait for data", "rounds", "a wait named", "a share printed")
EPOCH = {"images_per_second": 100.0, "train_seconds": 9.0, "valid_seconds": 1.0, "steps": 9}
TRAINING = {"seconds": 40.0, "first_step_seconds": 1.0}


def attributed(random: np.random.Generator, noise: float, wait: float, seconds: float) -> Any:
    """The section attribution of a run, and how many rounds it took."""
    true = {"files": 1.0, "synthetic": 1.0 - wait / 0.9, "no_allreduce": 1.0 - wait / 0.9}
    now = [0.0]

    def turn(kind: str) -> measurement_rounds.Turn:
        def taken(steps: int) -> float:
            now[0] += seconds / len(true)
            return true[kind] * float(np.exp(noise * random.normal()))

        return taken

    found = measurement_rounds.take_turns(
        lambda name, **about: contextlib.nullcontext(),
        {kind: turn(kind) for kind in true},
        steps=dict.fromkeys(true, 1),
        images=100,
        first=lambda more: more,
        clock=lambda: now[0],
    )
    content: dict[str, Any] = measurement_rounds.as_record(
        found | {"loader": [0.01]}, steps={}, images=100
    )
    content |= {"epochs": [EPOCH], "training": TRAINING}
    told = attribution.attribute(content, devices="2 devices", replicas=2)
    return told, len(found["files"])


def row(random: np.random.Generator, reports: int, noise: float, wait: float, of: str) -> list[str]:
    """How many of so many reports name a wait of any framework."""
    named, printed, rounds = 0, 0, []
    for _ in range(reports):
        each = [attributed(random, noise, wait, ROUND_SECONDS[of]) for _ in range(FRAMEWORKS)]
        named += any(attribution.telling(found) for found, _ in each)
        printed += sum(attribution.is_measured(found, "data") for found, _ in each)
        rounds += [count for _, count in each]
    shares = (named / reports, printed / reports / FRAMEWORKS)
    first = [of, f"{100 * noise:.0f} %", f"{100 * wait:.0f} %" if wait else "none"]
    count = f"{np.median(rounds):.0f} ({min(rounds)} to {max(rounds)})"
    return [*first, count, *(f"{100 * share:.1f} %" for share in shares)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=2000, help="of each row")
    parser.add_argument("--seed", type=int, default=1)
    given = quick.parse(parser, reports=20)
    started, random = time.perf_counter(), np.random.default_rng(given.seed)
    rows = [
        row(random, given.reports, noise, wait, of)
        for of in ROUND_SECONDS
        for wait in WAITS
        for noise in NOISES
    ]
    print(terminal.table(HEADER, rows))
    print(f"{given.reports} reports a row, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
