"""Call Slurm's programs and read their output."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from types import MappingProxyType

from helpers.errors import UserError

SECONDS = 60.0
"""The time to wait for an answer from Slurm's controller."""


def ask(
    *words: str, given: str | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Run one of Slurm's programs, ``given`` on its standard input, and return its output."""
    if shutil.which(words[0]) is None:
        raise UserError(f"no {words[0]} here: Slurm's programs are on a cluster's login node")
    try:
        done = subprocess.run(
            words,
            input=given,
            env=os.environ | variables,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{words[0]} has not answered for {SECONDS:.0f} s; try again") from None
    if done.returncode:
        raise UserError(f"{words[0]}: {reason(done).removeprefix(f'{words[0]}: ')}")
    return done.stdout


def reason(done: "subprocess.CompletedProcess[str]") -> str:
    """Why a program failed: the line with its error, as a site's greeting may come first."""
    said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    return next((line for line in said if "error" in line), said[0])


NEVER = (
    *("PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown"),
    *("PartitionInactive", "BadConstraints", "AccountNotAllowed", "InvalidAccount", "InvalidQOS"),
)
"""Slurm's reasons for a queued job that will never run."""


def queue(script: str, *options: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
    """Queue a batch script with ``sbatch``, and return the job's number.

    Args:
        script: its text.
        options: options of sbatch, in addition to those in the script.
        variables: the job's environment variables, in addition to this process's.
    """
    said = ask("sbatch", "--parsable", *options, given=script, variables=variables)
    # A site's sbatch may print other lines too.
    numbers = re.findall(r"^(\d+)(?:;\S+)?$", said, re.MULTILINE)
    if not numbers:
        printed = repr(said.strip()[:80])
        raise UserError(f"sbatch printed no job number, but {printed}: check with squeue --me")
    return str(numbers[-1])


def jobs_called(name: str) -> list[str]:
    """The numbers of this user's jobs of that name that wait or run."""
    return ask("squeue", "--me", "--noheader", f"--name={name}", "--format=%i").split()
