"""What ``NVIDIA_TF32_OVERRIDE`` is at the moment a notebook first imports its framework.

    python tests/kernels/import_order.py NOTEBOOK MODULE PRECISION

The CUDA libraries, which come with that import, may read it then and never again.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

from helpers.runner.notebook_code import run_cells

VARIABLE = "NVIDIA_TF32_OVERRIDE"


def at_import(notebook: str, module: str, precision: str) -> str:
    """Its value in a fresh process; empty where it is not set."""
    command = [sys.executable, __file__, notebook, module, precision]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


class Found(Exception):
    """The import has come."""


class Watch(MetaPathFinder):
    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name == self.module:
            raise Found


def main(notebook: str, module: str, precision: str) -> None:
    sys.meta_path.insert(0, Watch(module))
    try:
        run_cells(notebook, until="## 4.", precision=precision)
    except Found:
        print(os.environ.get(VARIABLE, ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
