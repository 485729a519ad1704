"""Two hosts with a slow link: the ranks use it, and each host is sampled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import paths

sys.path.append(str(paths.ROOT / "benchmarks"))

import hosts

MBIT = 40


def test_ranks_on_two_hosts_use_their_link_and_are_in_one_chart(tmp_path: Path) -> None:
    try:
        with hosts.up(2, MBIT) as two:
            script = paths.ROOT / "tests/kernels/on_hosts.py"
            path = f"PYTHONPATH={paths.ROOT}"  # this checkout's, whatever is installed
            words = ("env", path, sys.executable, script, tmp_path, "2")
            process = two.start(two.first, *words, stdout=subprocess.PIPE)
            told = process.communicate(timeout=300)[0]
            names = list(two.addresses)
    except hosts.CannotBeHad as error:
        pytest.skip(str(error))
    assert process.returncode == 0, told
    found = json.loads(told.splitlines()[-1])
    assert found["hosts"] == names and not found["virtual"]
    assert found["interface"] == ", ".join(f"{name}e" for name in names)
    assert 0.3 < 1e-6 * found["bits_per_second"] / MBIT < 1.05
    assert found["devices"][-2:] == [f"{name}:host" for name in names]
    assert found["phases"] == ["all-reduce alone"] * 2, "each rank marks it on its host"
