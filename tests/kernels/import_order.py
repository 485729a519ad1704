"""What the variables for TF32 are at the moment a notebook first imports its framework.

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

VARIABLES = ("NVIDIA_TF32_OVERRIDE", "CUPY_TF32")


def at_import(notebook: str, module: str, precision: str) -> str:
    """Their values in a fresh process, ``0 0``; a ``-`` where one is not set."""
    command = [sys.executable, __file__, notebook, module, precision]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
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
        print(*(os.environ.get(name, "-") for name in VARIABLES))


if __name__ == "__main__":
    main(*sys.argv[1:])
