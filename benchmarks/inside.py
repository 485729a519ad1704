"""Run a benchmark in each framework's environment, and print the results."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from helpers.frameworks import NOTEBOOKS
from helpers.runner import plans

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def add_arguments(
    parser: argparse.ArgumentParser, *, rounds: int = 7, frameworks: str = ",".join(NOTEBOOKS)
) -> None:
    """``--rounds`` and ``--frameworks`` for the user, ``--inside`` for :func:`run`."""
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--frameworks", default=frameworks)
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)


def measure_each(
    script: str,
    parser: argparse.ArgumentParser,
    given: argparse.Namespace,
    what: str,
    measure: Callable[[str, Path, argparse.Namespace], None],
    make: Callable[[Path], object] = lambda folder: None,
) -> None:
    """Call ``measure(framework, folder, given)`` for each framework asked for, in its environment.

    Each is under a heading that says ``what``. ``make`` has put into the folder what is read.
    Exit code 1 if one did not come to its end.
    """
    names: list[str] = given.frameworks.split(",")
    if unknown := set(names) - set(NOTEBOOKS):
        parser.error(f"unknown framework '{unknown.pop()}': it is one of {', '.join(NOTEBOOKS)}")
    if given.inside:
        measure(names[0], Path(given.inside), given)
        return
    done = []
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        for name in names:
            print(f"{name}, {what}", flush=True)
            done.append(run(script, name, folder))
    sys.exit(not all(done))


def run(script: str, framework: str, inside: str) -> bool:
    """Run ``script`` again with the same options, for one framework; ``inside`` is handed on.

    In this environment if it has the framework, else in the framework's own. What frameworks
    remark on stderr is shown only if it fails. Returns whether it came to its end.
    """
    _, kernel = plans.framework_notebooks()[NOTEBOOKS[framework]]
    python = ROOT / ".venvs" / kernel / "bin" / "python"
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


def require(folder: str, framework: str, what: str) -> None:
    """End with one line if ``<folder>/<framework>.py`` is missing: there is no ``what`` then."""
    if not (file := HERE / folder / f"{framework}.py").exists():
        sys.exit(f"{framework} has no {what}: {file.relative_to(ROOT)} is missing")
