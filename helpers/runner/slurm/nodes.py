"""Whether the Slurm job that this process runs in has lost nodes, or what ran there."""

import os
import shutil
import subprocess

from helpers.launch.failures import TERMINATED

SECONDS = 60.0
"""In which a node answers; a daemon that is gone refuses at once, a node without power never."""


def gone(error: Exception) -> str | None:
    """Why this job is to begin again, and not go on with its next run; None where it can go on.

    Slurm itself ends a job whose node died, and queues it again. It takes some minutes to notice
    (``SlurmdTimeout``), in which every run that needs all nodes would fail. On a node that had come
    back, Slurm 22.05 ended what the job, begun again, ran there, by SIGTERM; why was not found out.

    Args:
        error: that ended a run on several nodes.
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
