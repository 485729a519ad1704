"""A command of `helpers`, with its batches in a folder of one's own: into.py RUNS MODULE ..."""

import runpy
import sys
from pathlib import Path

from helpers import paths

paths.RUNS = Path(sys.argv[1])
paths.VENVS = paths.RUNS / ".no-venvs"  # what `make envs` made has no part in this
module = sys.argv[2]
sys.argv[1:3] = []
runpy.run_module(module, run_name="__main__", alter_sys=True)
