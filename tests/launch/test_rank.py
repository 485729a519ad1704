"""Which GPUs a rank sees."""

import os
import subprocess
import sys
from pathlib import Path

import fake_nvml
from fake_nvml import A100, uuid

from helpers import paths

SEES = """
import os, sys
from helpers.frameworks.rank_info import Place
from helpers.launch import __main__ as rank
hosts = ("a", "b")
rank._see_own_gpus(Place(1, 2, 2, sys.argv[1] == "1", 2, "gpu", hosts, hosts, hosts, 1))
print(os.environ["CUDA_VISIBLE_DEVICES"])
"""


def seen(folder: Path, shown: str, *, virtual: bool) -> list[str]:
    """By rank 1 of two nodes, on a machine with four GPUs; ``shown``: what Slurm says."""
    (folder / "script").write_text(fake_nvml.machine(*[A100] * 4))
    env = {**os.environ, **fake_nvml.environment(folder / "script"), "PYTHONPATH": str(paths.ROOT)}
    words = [sys.executable, "-c", SEES, str(int(virtual))]
    env["CUDA_VISIBLE_DEVICES"] = shown
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip().split(",")


def test_on_a_node_of_its_own_a_rank_names_what_slurm_gave_it_by_uuid(tmp_path: Path) -> None:
    assert seen(tmp_path, "2,3", virtual=False) == [uuid(2), uuid(3)]


def test_simulated_nodes_share_out_the_gpus_of_their_machine(tmp_path: Path) -> None:
    assert seen(tmp_path, ",".join(map(uuid, range(4))), virtual=True) == [uuid(2), uuid(3)]
