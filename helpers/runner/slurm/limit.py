"""The time limit of the Slurm job that this process runs in, and what to do about it."""

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
        """Whether it is why the job was asked to stop; else somebody wants its nodes.

        The notice is at most twice the patience (``script.patience``).
        """
        return self.left <= 2 * shutdown.patience() + script.EARLY


def of_this_job() -> Limit | None:
    """None where this is no job, has no limit, or nobody can tell."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    try:
        said = programs.ask("squeue", "--noheader", f"--jobs={job}", "--format=%l %L").split()
        return Limit(*map(script.seconds_of, said))
    except (UserError, ValueError, TypeError):  # UNLIMITED, NOT_SET, INVALID; nothing
        return None


def without_gain(said: str) -> shutdown.InOrder:
    """How an experiment ends that was stopped before it had gained anything, and what to ask for.

    It is gone on with where somebody wanted the nodes. Where its own time was over, the next job
    would not come further.
    """
    said = f"{said}, none of them now, and no training step was gained"
    limit = of_this_job()
    if limit is None:
        return shutdown.InOrder(
            f"{said}, so that to go on would take for ever: ask for a longer time limit", code=1
        )
    had, whole = clock(limit.seconds - limit.left), clock(limit.seconds)
    said = f"{said} in {had} of the {whole} that this job may take"
    if not limit.near:
        return shutdown.InOrder(said)
    minutes, seconds = divmod(2 * limit.seconds, 60)
    more = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    return shutdown.InOrder(
        f"{said}, so that to go on would take for ever: ask for more, to begin with for twice as "
        f'much (time = "{more}")',
        code=1,
    )
