"""What `--quick` means, in every benchmark."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from helpers.recipe.settings import LEAST_CROP

QUICK: dict[str, Any] = {
    "recipe": "demo",
    "pixels": 32,
    "batch_size": 4,
    "images": 48,
    "steps": 2,
    "rounds": 3,
}
"""The options that `--quick` sets, of those that a benchmark has. Of frameworks it takes the first.

So small that most of the time goes into starting a framework and compiling its graph: it is meant
to take less than a minute of two idle cores. The figures say that a benchmark works, no more.
"""


def parse(parser: argparse.ArgumentParser, **own: Any) -> argparse.Namespace:
    """The command line, with `--quick` added to what ``parser`` knows.

    An option that is given with `--quick` keeps its value. ``own`` are what `--quick` sets for
    this benchmark alone.
    """
    known = {name: value for name, value in QUICK.items() if parser.get_default(name) is not None}
    everything = parser.get_default("frameworks")
    one = {"frameworks": everything.split(",")[0]} if everything else {}
    sets = known | one | own
    parser.add_argument(
        "--quick", action="store_true", help=f"small, to see that it works: {_words(sets)}"
    )
    given = parser.parse_args()
    if given.quick:
        parser.set_defaults(**sets)
        given = parser.parse_args()
        if not getattr(given, "inside", ""):
            now = {name: getattr(given, name) for name in sets}
            print(f"--quick (one run, to see that it works, not to quote): {_words(now)}")
            if everything and given.frameworks != everything:
                print(f"only {given.frameworks}; for all: --quick --frameworks {everything}")
            print(flush=True)
    _check_numbers(parser, given)
    return given


def _check_numbers(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """End with one line if an option is too small; without steps, a benchmark would never end."""
    for name, value in vars(given).items():
        option = f"--{name.replace('_', '-')} {value}"
        if isinstance(parser.get_default(name), float):
            if not (0 < value < math.inf):
                parser.error(f"{option}: give a number above 0")
        elif isinstance(value, int) and not isinstance(value, bool):
            least = LEAST_CROP["densenet121"] if name == "pixels" else 1
            if value < least:
                parser.error(f"{option}: give {least} or more")


def folder(text: str) -> Path:
    """The type of an option that names a folder."""
    if not (found := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{found}: there is no such folder")
    return found


def _words(options: dict[str, Any]) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
