"""Runs in the pytorch environment: its notebooks' cells in random orders (``any_order.py``)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

IN_KERNEL, IN_PROCESSES = "PyTorch_MultiGPU_Exp_Loss", "PyTorch_MultiGPU"
DAILY = [(IN_KERNEL, 2, (310,)), (IN_PROCESSES, 2, (4,))]
ALL = [(IN_KERNEL, 2, (199, *range(1000, 1030))), (IN_PROCESSES, 2, tuple(range(2000, 2010)))]
ALL += [(IN_PROCESSES, 1, (2,))]


@pytest.mark.parametrize(
    ("notebook", "devices", "seeds"),
    [*DAILY, *(pytest.param(*each, marks=pytest.mark.slow) for each in ALL)],
)
def test_in_any_order_nothing_is_raw_or_stale(
    notebook: str, devices: int, seeds: tuple[int, ...], tmp_path: Path
) -> None:
    program = [sys.executable, str(Path(__file__).with_name("any_order.py"))]
    command = [*program, notebook, str(devices), str(tmp_path), *map(str, seeds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # too little to compute for more
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
