"""Run a benchmark for each framework in that framework's own environment."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = {
    "pytorch": "PyTorch_MultiGPU",
    "keras": "Keras_MultiGPU",
    "tensorflow": "TensorFlow_MultiGPU",
    "mxnet": "MXNet_Gluon_MultiGPU",
    "chainer": "Chainer_MultiGPU",
}
KERNELS = {name: "tensorflow" if name == "keras" else name for name in NOTEBOOKS}


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
    python = ROOT / ".venvs" / KERNELS[framework] / "bin" / "python"
    command = [str(python), "-W", "ignore", script, *sys.argv[1:]]
    command += ["--frameworks", framework, "--inside", inside]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
