"""Detect that this process's Slurm job has lost a node, or the processes on a node."""

import os
import shutil
import subprocess

from helpers.launch.failures import TERMINATED

SECONDS = 60.0
"""The time for a node to answer; a stopped daemon refuses at once, a node without power never."""


def gone(error: Exception) -> str | None:
    """Return why this job has to restart; None if it can continue with its next run.

    Slurm ends and requeues a job whose node died, but takes some minutes to notice
    (``SlurmdTimeout``). Every run that needs all nodes would fail in that time. Slurm 22.05 also
    sent SIGTERM to the processes of a restarted job on a node that had come back.

    Args:
        error: the error that ended a run on several nodes.
    """
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    if "SLURM_JOB_ID" not in os.environ or nodes == "1" or shutil.which("srun") is None:
        return None
    if getattr(error, "ename", "") == TERMINATED:
        return "Slurm has ended what ran on a node of this job"
    asked = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    asked += ["--overlap", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=1", "true"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"a node of this job has not answered for {SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    why = next((line for line in said if "error" in line), said[0])  # what it notes comes first
    return f"a node of this job is gone ({why.removeprefix('srun: ').removeprefix('error: ')})"
