"""The command line of every benchmark, and a process for each framework in its environment."""

from __future__ import annotations

import argparse
import importlib.util
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.frameworks import NOTEBOOKS
from helpers.paths import ROOT, VENVS
from helpers.runner import selection

HERE = Path(__file__).resolve().parent
QUICK = {"recipe": "demo", "pixels": 32, "batch_size": 4, "images": 60, "steps": 2, "rounds": 3}
"""What `--quick` sets of the options that a benchmark has; of frameworks it takes the first."""


def parse(parser: argparse.ArgumentParser, **own: Any) -> argparse.Namespace:
    """The command line, with `--quick`; ``own`` is what that sets for this benchmark alone.

    An option that is given with `--quick` keeps its value. Numbers have to be above 0.
    """
    sets = {name: value for name, value in QUICK.items() if parser.get_default(name) is not None}
    if frameworks := parser.get_default("frameworks"):
        sets["frameworks"] = frameworks.split(",")[0]
    sets |= own
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in sets.items())
    parser.add_argument("--quick", action="store_true", help=f"see that it works: {words}")
    given = parser.parse_args()
    if given.quick:
        parser.set_defaults(**sets)
        given = parser.parse_args()
    for name, value in vars(given).items():
        if isinstance(value, int | float) and value is not False and not 0 < value < math.inf:
            parser.error(f"--{name.replace('_', '-')} {value}: give a number above 0")
    return given


def add_arguments(parser: argparse.ArgumentParser, frameworks: str = ",".join(NOTEBOOKS)) -> None:
    """``--rounds`` and ``--frameworks`` for the user, ``--inside`` for :func:`run`."""
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--frameworks", default=frameworks)
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)


def measure_each(
    script: str,
    parser: argparse.ArgumentParser,
    given: argparse.Namespace,
    measure: Callable[[str, Path, argparse.Namespace], None],
    make: Callable[[Path], object],
) -> None:
    """Call ``measure(framework, folder, given)`` for each framework asked for, in its environment.

    ``make`` has put into the folder what is read. Exit code 1 if one did not come to its end.
    """
    names: list[str] = given.frameworks.split(",")
    if unknown := set(names) - set(NOTEBOOKS):
        parser.error(f"unknown framework '{unknown.pop()}': it is one of {', '.join(NOTEBOOKS)}")
    if given.inside:
        measure(names[0], Path(given.inside), given)
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        done = [run(script, name, folder) for name in names]
    sys.exit(not all(done))


def run(script: str, framework: str, inside: str) -> bool:
    """Run ``script`` again with the same options, for one framework; ``inside`` is handed on.

    In this environment if it has the framework, else in the framework's own. What frameworks
    remark on stderr is shown only if it fails. Returns whether it came to its end.
    """
    print(framework, flush=True)
    _, kernel = selection.framework_notebooks()[NOTEBOOKS[framework]]
    python = VENVS / kernel / "bin" / "python"
    if importlib.util.find_spec({"pytorch": "torch"}.get(framework, framework)):
        python = Path(sys.executable)
    if not python.exists():
        print(f"failed: no {kernel} environment: make envs ARGS='--environments lab,{kernel}'")
        return False
    command = [str(python), "-W", "ignore", script, *sys.argv[1:]]
    command += ["--frameworks", framework, "--inside", inside]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return not done.returncode


def module(folder: str, framework: str) -> Any:
    """The framework's module in a folder here; one line if there is none."""
    if not (file := HERE / folder / f"{framework}.py").exists():
        sys.exit(f"{framework} has none: {file.relative_to(ROOT)} is missing")
    return importlib.import_module(f"{folder}.{framework}")
