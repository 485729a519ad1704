"""Kernels whose framework is NumPy: small enough to test in a second, and to break on purpose.

A kernel's Python is a script that starts the tests' own one; asked for a self-test, it puts the
folder of such frameworks before ``helpers.frameworks``' own modules.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SMALL = """
import os, signal, subprocess, sys, time
from pathlib import Path
import numpy as np
from helpers.fairness import reference

HERE = Path(__file__).parent
with (HERE / "begun").open("a") as file:
    file.write(f"{Path(__file__).stem} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n")


def versions():
    return {"small": np.__version__}


def list_devices(kind, count):
    return list(range(count))


def configure(precision, kind):
    pass


def of_the_bias(weights, pixels):
    return np.zeros((len(pixels), 1)) + weights["classifier.bias"]


reference.shallow_logits = of_the_bias


def shallow(weights, devices):
    return weights


def gradients(weights, images, targets, devices):
    logits = of_the_bias(weights, images)
    found = {name: np.zeros_like(array) for name, array in weights.items()}
    found["classifier.bias"] = (1 / (1 + np.exp(-logits)) - targets).sum(0) / targets.size
    return float((np.logaddexp(0, logits) - targets * logits).mean()), found
"""
PYTHON = """#!{python}
import os, runpy, sys
if "helpers.runner.self_test_worker" not in sys.argv:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
import helpers.frameworks
helpers.frameworks.__path__.insert(0, {planted!r})
sys.argv = sys.argv[2:]
runpy.run_module("helpers.runner.self_test_worker", run_name="__main__", alter_sys=True)
"""
HANGS = """
def gradients(*given):
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(sleep)
    own = subprocess.Popen(sleep, start_new_session=True)
    (HERE / "pids").write_text(f"{os.getpid()} {child.pid} {own.pid}")
    time.sleep(600)
"""


def plant(folder: Path, kernel: str, fault: str = "") -> Path:
    """A kernel that Jupyter finds below ``folder / "jupyter"``; returns its Python."""
    planted, python = folder / "planted", folder / "python"
    planted.mkdir(exist_ok=True)
    (planted / f"{kernel}.py").write_text(SMALL + fault, encoding="utf-8")
    python.write_text(PYTHON.format(python=sys.executable, planted=str(planted)), encoding="utf-8")
    python.chmod(0o755)
    lay = folder / "jupyter" / "kernels" / kernel
    lay.mkdir(parents=True, exist_ok=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    content = {"argv": argv, "display_name": kernel, "language": "python"}
    (lay / "kernel.json").write_text(json.dumps(content), encoding="utf-8")
    return python


def self_tests(folder: Path) -> list[str]:
    """Each self-test that was begun: the framework, and the GPUs that it was given."""
    told = folder / "planted" / "begun"
    return told.read_text(encoding="utf-8").splitlines() if told.exists() else []
