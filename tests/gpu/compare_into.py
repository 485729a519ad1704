"""``compare`` with its batches in a folder of one's own: compare_into.py RUNS OPTION ..."""

import sys
from pathlib import Path

from helpers import paths
from helpers.__main__ import main

paths.RUNS = Path(sys.argv[1])
paths.VENVS = paths.RUNS / ".no-venvs"  # what `make envs` made has no part in this
sys.exit(main(sys.argv[2:]))
