"""Read the time limit of this process's Slurm job, and decide whether resuming makes sense."""

import os
from dataclasses import dataclass

from helpers.errors import UserError
from helpers.runner import shutdown
from helpers.runner.slurm import programs, script
from helpers.terminal import clock


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


def of_this_job() -> Limit | None:
    """This job's limit; None outside a job, without a limit, or if the limit is unknown."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    try:
        said = programs.ask("squeue", "--noheader", f"--jobs={job}", "--format=%l %L").split()
        return Limit(*map(script.seconds_of, said))
    except (UserError, ValueError, TypeError):  # UNLIMITED, NOT_SET, INVALID; nothing
        return None


def without_gain(said: str) -> shutdown.InOrder:
    """Decide how an experiment ends that was stopped before it made any progress.

    It is resumed if another job needed the nodes. If its time was over, the next job would not get
    any further, so the message asks for a longer limit.
    """
    said = f"{said}, none of them now, and no training step was gained"
    limit = of_this_job()
    if limit is None:
        return shutdown.InOrder(
            f"{said}, so it would never finish: ask for a longer time limit", code=1
        )
    had, whole = clock(limit.seconds - limit.left), clock(limit.seconds)
    said = f"{said} in {had} of the {whole} that this job may take"
    if not limit.near:
        return shutdown.InOrder(said)
    minutes, seconds = divmod(2 * limit.seconds, 60)
    more = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    return shutdown.InOrder(
        f"{said}, so it would never finish: ask for a longer time limit, such as twice as much "
        f'(time = "{more}")',
        code=1,
    )
