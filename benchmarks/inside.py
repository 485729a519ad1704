"""Run a benchmark in each framework's environment, and print the results."""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path

from turns import Speeds

from helpers.frameworks import NOTEBOOKS
from helpers.results import intervals
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


def chosen(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[str]:
    """The frameworks asked for."""
    names: list[str] = given.frameworks.split(",")
    if unknown := set(names) - set(NOTEBOOKS):
        parser.error(f"unknown framework '{unknown.pop()}': it is one of {', '.join(NOTEBOOKS)}")
    return names


def run_each(script: str, frameworks: list[str], what: str, inside: str = "here") -> bool:
    """:func:`run` for one framework after the other, each under a heading that says ``what``.

    Returns whether all came to their end.
    """
    done = []
    for name in frameworks:
        print(f"{name}, {what}", flush=True)
        done.append(run(script, name, inside))
    return all(done)


def run(script: str, framework: str, inside: str = "here") -> bool:
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
    """End with one line and exit code 1 if ``<folder>/<framework>.py`` is missing here.

    Args:
        what: of which there is none then.
    """
    if not (file := HERE / folder / f"{framework}.py").exists():
        sys.exit(f"{framework} has no {what}: {file.relative_to(ROOT)} is missing")


def report(figure: str, ours: list[float], rival: list[float], name: str) -> None:
    """Medians of images/s, and of the rounds' ratios with its interval; also as JSON."""
    ratios = [a / b for a, b in zip(ours, rival, strict=True)]
    mine, theirs = map(statistics.median, (ours, rival))
    ratio, low, high = intervals.of_median(ratios)
    print(
        f"  {figure}: {mine:,.1f} images/s, {name} {theirs:,.1f}: {ratio:.3f} times "
        f"({low:.3f} to {high:.3f})"
    )
    line = {"figure": figure, "unit": "images/s", "ours": mine, "rival": theirs}
    line |= {"rival_name": name, "ratio": ratio, "low": low, "high": high, "ratios": ratios}
    line |= {"rounds": len(ours)}
    print(json.dumps(line), flush=True)


def report_turns(
    what: str, of: str, turns: tuple[Speeds, Speeds], ours: str, rival: str, name: str = ""
) -> None:
    """Report two loads of ``turns.take_turns``: by the clock, and by processor time."""
    for how, found in zip(("", ", of processor time"), turns, strict=True):
        report(f"{what}{how}, {of}", found[ours], found[rival], name or rival)
