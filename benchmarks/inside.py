"""Run a benchmark for each framework in that framework's own environment, and say what it found."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from helpers import plans
from helpers.frameworks import NOTEBOOKS

ROOT = Path(__file__).resolve().parent.parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--frameworks`` for the user, ``--inside`` for :func:`run`."""
    parser.add_argument("--frameworks", default=",".join(NOTEBOOKS))
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)


def chosen(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[str]:
    """The frameworks asked for."""
    names: list[str] = given.frameworks.split(",")
    if unknown := set(names) - set(NOTEBOOKS):
        parser.error(f"unknown framework '{unknown.pop()}': it is one of {', '.join(NOTEBOOKS)}")
    return names


def run(script: str, framework: str, inside: str = "here") -> None:
    """Run ``script`` again with the same options, for one framework; ``inside`` is handed on.

    What frameworks remark on stderr is shown only if it fails.
    """
    _, kernel = plans.framework_notebooks()[NOTEBOOKS[framework]]
    python = ROOT / ".venvs" / kernel / "bin" / "python"
    command = [str(python), "-W", "ignore", script, *sys.argv[1:]]
    command += ["--frameworks", framework, "--inside", inside]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def report(figure: str, ours: list[float], rival: list[float], name: str) -> None:
    """Medians of images/s in all rounds, and the median of the rounds' ratios; also as JSON."""
    ratio = statistics.median(a / b for a, b in zip(ours, rival, strict=True))
    mine, theirs = statistics.median(ours), statistics.median(rival)
    print(f"  {figure}: {mine:,.1f} images/s, {name} {theirs:,.1f}: {ratio:.3f} times")
    line = {"figure": figure, "unit": "images/s", "ours": mine, "rival": theirs}
    print(json.dumps(line | {"rival_name": name, "ratio": ratio, "rounds": len(ours)}), flush=True)
