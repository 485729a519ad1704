"""The Slurm job that this process is in: whether to continue it, and whether it lost a node."""

import os
import shutil
import subprocess
from dataclasses import dataclass

from helpers.errors import UserError
from helpers.launch.failures import TERMINATED
from helpers.runner import shutdown
from helpers.runner.slurm import programs, script
from helpers.terminal import clock, say

SECONDS = 60.0
"""The time for a node to answer; a stopped daemon refuses at once, a node without power never."""
GONE = (
    *("Communication connection failure", "Connection refused", "No route to host"),
    *("Node failure", "Node fail", "not responding", "Required node not available"),
    *("Unable to contact", "Zero Bytes were transmitted", "timeout waiting for task launch"),
    *("Invalid job id", "already completing or completed", "Job has been revoked"),
)
"""What srun says where a node, or with it the job, is gone; by Slurm's ``slurm_errno.c``."""
ON_EACH_NODE = (
    *("srun", "--ntasks-per-node=1", "--overlap", "--mpi=none", "--cpu-bind=none"),
    "--export=ALL",  # some sites have SLURM_EXPORT_ENV=NONE
)
BUSY = "Requested nodes are busy"
"""What srun says while it waits for the job's own steps."""


@dataclass(frozen=True)
class Limit:
    """Seconds that a job may take, and those that are left of them."""

    seconds: int
    left: int

    @property
    def near(self) -> bool:
        """Whether the limit caused the request to stop; else another job preempted this one.

        The notice is at most twice the patience (``script.patience``).
        """
        return self.left <= 2 * shutdown.patience() + script.EARLY


def nodes() -> int:
    """The number of nodes of this job; 1 outside a job."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))


def limit() -> Limit | None:
    """This job's limit; None outside a job, without a limit, or if the limit is unknown."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    try:
        said = programs.ask("squeue", "--noheader", f"--jobs={job}", "--format=%l %L").split()
        return Limit(*map(script.seconds_of, said))
    except (UserError, ValueError, TypeError):  # UNLIMITED, NOT_SET, INVALID; nothing
        return None


def without_gain(said: str, attempts: int, *, gone: bool = False) -> shutdown.InOrder:
    """Decide how an experiment ends that was stopped before it made any progress.

    It is resumed once if another job needed the nodes, or one is gone. If its time was over, the
    next job would not get any further, so the message asks for a longer limit.

    Args:
        attempts: how many in a row have gained no step, with this one.
        gone: whether it lost a node.
    """
    said = f"{said}, none of them now, and no training step was gained"
    if attempts > 1:
        again = f"{said}, as in the attempt before, so the job is not queued again"
        return shutdown.InOrder(again, code=1)
    if gone:
        return shutdown.InOrder(said)
    never = "so it would never finish: ask for a longer time limit"
    if (found := limit()) is None:
        return shutdown.InOrder(f"{said}, {never}", code=1)
    had, whole = clock(found.seconds - found.left), clock(found.seconds)
    said = f"{said} in {had} of the {whole} that this job may take"
    if not found.near:
        return shutdown.InOrder(said)
    minutes, seconds = divmod(2 * found.seconds, 60)
    more = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    twice = f'such as twice as much (time = "{more}")'
    return shutdown.InOrder(f"{said}, {never}, {twice}", code=1)


def lost_node(error: Exception) -> str | None:
    """Return why this job has to restart; None if it can continue with its next run.

    Only a node that is gone is a reason. ``srun`` may fail for others that a restart would not
    change, such as options that contradict each other.

    Slurm ends and requeues a job whose node died, but takes some minutes to notice
    (``SlurmdTimeout``). Every run that needs all nodes would fail in that time. Slurm 22.05 also
    sent SIGTERM to the processes of a restarted job on a node that had come back.

    Args:
        error: the error that ended a run on several nodes.
    """
    if "SLURM_JOB_ID" not in os.environ or nodes() == 1 or shutil.which("srun") is None:
        return None
    if getattr(error, "ename", "") == TERMINATED:
        return "Slurm has ended what ran on a node of this job"
    asked = [*ON_EACH_NODE, f"--nodes={nodes()}", f"--ntasks={nodes()}"]
    asked += ["--kill-on-bad-exit=1", "true"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        if BUSY in (error.stderr or b"").decode(errors="replace"):
            return None
        return f"a node of this job has not answered for {SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    why = programs.reason(done).removeprefix("srun: ").removeprefix("error: ")
    if any(said in done.stderr for said in GONE):
        return f"a node of this job is gone ({why})"
    say(f"Whether all nodes of this job are there is not known, as srun failed: {why}")
    return None
