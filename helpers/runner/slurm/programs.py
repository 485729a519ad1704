"""Slurm's own programs, and what they answer."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from types import MappingProxyType

from helpers.errors import UserError

SECONDS = 60.0
"""After which a controller that does not answer is given up."""


def ask(
    *words: str, given: str | None = None, told: Mapping[str, str] = MappingProxyType({})
) -> str:
    """What one of Slurm's programs prints.

    Args:
        words: the command.
        given: on its standard input.
        told: variables of its environment, beside ours.

    Raises:
        UserError: it is not here, refuses, or does not answer.
    """
    if shutil.which(words[0]) is None:
        raise UserError(f"no {words[0]} here: Slurm's programs are on a cluster's login node")
    try:
        done = subprocess.run(
            words,
            input=given,
            env=os.environ | told,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{words[0]} has not answered for {SECONDS:.0f} s; try again") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        why = next((line for line in said if "error" in line), said[0])  # a site's greeting first
        raise UserError(f"{words[0]}: {why.removeprefix(f'{words[0]}: ')}")
    return done.stdout


NEVER = (
    *("PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown"),
    *("PartitionInactive", "BadConstraints", "AccountNotAllowed", "InvalidAccount", "InvalidQOS"),
)
"""What Slurm says of a job that it took, and that will not run however long one waits."""


def queue(script: str, *options: str, told: Mapping[str, str] = MappingProxyType({})) -> str:
    """Hand a batch script to ``sbatch``; the job's number.

    Args:
        script: its text.
        options: of sbatch, beside those in the script.
        told: variables that the job's environment gets beside ours.

    Raises:
        UserError: as ``ask``, or nobody can tell whether it is queued.
    """
    said = ask("sbatch", "--parsable", *options, given=script, told=told)
    # A site's own sbatch may say more, on lines of its own.
    numbers = re.findall(r"^(\d+)(?:;\S+)?$", said, re.MULTILINE)
    if not numbers:
        raise UserError(f"sbatch named no job, but said {said.strip()[:80]!r}: look at squeue --me")
    return str(numbers[-1])


def jobs_called(name: str) -> list[str]:
    """The numbers of this user's jobs of that name that wait or run."""
    return ask("squeue", "--me", "--noheader", f"--name={name}", "--format=%i").split()
