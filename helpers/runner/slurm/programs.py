"""Call Slurm's programs and read their output."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from helpers.errors import UserError
from helpers.terminal import say

SECONDS = 60.0
"""The time to wait for an answer from Slurm's controller."""


def ask(*words: str, given: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run one of Slurm's programs, ``given`` on its standard input, and return its output.

    ``environment`` is this process's by default.
    """
    if shutil.which(words[0]) is None:
        raise UserError(f"no {words[0]} here: Slurm's programs are on a cluster's login node")
    try:
        done = subprocess.run(
            words,
            input=given,
            env=environment,
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


OF_A_JOB = ("SLURM_", "SBATCH_", "PMI_", "PMIX_")
"""How the variables begin that a job has of Slurm, and a job queued from it would mistake for its
own: its number of nodes, cores and tasks."""
KEPT = "SLURM_CONF"
"""It says where Slurm is."""


def queue(script: str, *options: str) -> str:
    """Queue a batch script with ``sbatch``, and return the job's number.

    From inside a job (an interactive one, say) the new job does not inherit that job's variables.
    """
    environment = dict(os.environ)
    if (here := environment.get("SLURM_JOB_ID")) is not None:
        found = [name for name in environment if name.startswith(OF_A_JOB) and name != KEPT]
        environment = {name: environment[name] for name in environment.keys() - found}
        say(
            f"Queued from inside job {here}, whose {len(found)} variables the new job does not "
            f"inherit: {', '.join(sorted(found))}"
        )
    said = ask("sbatch", "--parsable", *options, given=script, environment=environment)
    # A site's sbatch may print other lines too.
    numbers = re.findall(r"^(\d+)(?:;\S+)?$", said, re.MULTILINE)
    if not numbers:
        printed = repr(said.strip()[:80])
        raise UserError(f"sbatch printed no job number, but {printed}: check with squeue --me")
    return str(numbers[-1])
