"""Write and submit a recipe's batch script for Slurm.

One job runs all runs of the recipe's ``[sweep]`` one after the other, on the same nodes. Runs on
fewer nodes use some of these nodes.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.errors import GO_ON, UserError
from helpers.recipe import file_of, tables
from helpers.runner import experiments, plans, sweep_file
from helpers.runner.plans import counted
from helpers.terminal import say

LOG = "slurm-%x-%j.log"
"""The file under ``runs/`` to which a job prints; sbatch fills in the job's name and number."""
ON_NODES = ("devices", "launcher", "data")
"""Choices that only a compute node can check."""
OF_A_JOB = ("SLURM_", "SBATCH_", "PMI_", "PMIX_")
"""Slurm's variables in a job begin like this, such as its numbers of nodes, cores and tasks. A job
that is queued from inside another must not inherit them."""
KEPT = "SLURM_CONF"
"""The variable that names Slurm's configuration file."""
NOTICE = 120
"""Seconds before the time limit at which the job begins to stop."""
TEMPLATE = f"""\
#!/bin/bash
# The runs of {{file}} as a Slurm job. To submit it by hand: sbatch job.sh
#SBATCH --job-name={{name}}
#SBATCH --nodes={{nodes}}
#SBATCH --ntasks-per-node=1
#SBATCH --chdir={{root}}
#SBATCH --output={{log}}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@{NOTICE}
{{options}}
export SLURM_EXPORT_ENV=ALL # for sites that start steps without variables
{{setup}}
unset PYTHONPATH PYTHONHOME # a loaded module's packages would replace ours

# {NOTICE} s before the time limit Slurm sends USR1, and the runner stops. It ends with {GO_ON}
# if it has finished an epoch or a run. Then the job is queued again and continues.
.venvs/lab/bin/rosetta run --recipe {{recipe}} --name {{name}} &
runner=$!
trap 'kill -USR1 "$runner"' USR1
while kill -0 "$runner" 2>/dev/null; do wait "$runner"; done
wait "$runner" # once more, for its exit code
code=$?
if [ "$code" = {GO_ON} ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
"""


@dataclass(frozen=True)
class Job:
    """A job, and the experiment of the same name that it runs."""

    recipe: Path
    name: str
    nodes: int
    slurm: dict[str, Any]
    """What the recipe's table ``[slurm]`` says."""

    @property
    def setup(self) -> list[str]:
        found = self.slurm.get("setup", [])
        return found if isinstance(found, list) else [found]


def job_of(path: str) -> Job:
    """The job that a recipe's file asks for, whose ``[sweep]`` is checked."""
    if not path.endswith(".toml"):
        raise UserError(f"{path}: give a recipe's file, such as mine.toml (docs/recipes.md)")
    found = file_of(path)
    choices = sweep_file.read(found)
    name = str(choices.pop("name", found.path.stem))
    experiments.check_name(name)
    with tables.located(found.path):
        known = {key: value for key, value in choices.items() if key not in ON_NODES}
        plan = plans.make_plan(**known, recipe=path, devices=[1])
    nodes = max((run.nodes for run in plan.runs), default=1)
    return Job(found.path.resolve(), name, nodes, found.slurm)


def script(job: Job) -> str:
    """The batch script."""
    return TEMPLATE.format(
        file=job.recipe.name,
        name=job.name,
        nodes=job.nodes,
        root=_quoted(paths.ROOT),
        log=_quoted(Path(os.path.relpath(paths.RUNS / LOG, paths.ROOT))),
        options="\n".join(f"#SBATCH {option}" for option in _options(job.slurm)),
        setup="\n".join(job.setup),
        recipe=shlex.quote(str(job.recipe)),
    )


def _options(slurm: dict[str, Any]) -> Iterator[str]:
    for key, value in slurm.items():
        if key != "setup":
            yield f"--{key}" if value is True else f"--{key}={value}"
    # Without a number of cores the job has its nodes for itself: others would be measured too. On
    # some sites such a job still has only a part of their memory, unless it asks for all (0).
    if "cpus-per-task" not in slurm:
        yield "--exclusive"
        if not any(key.startswith("mem") for key in slurm):
            yield "--mem=0"


def _quoted(path: Path) -> str:
    """A path as sbatch reads it in an ``#SBATCH`` line."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def submit(job: Job) -> None:
    """Queue the job, and print its number and its log."""
    paths.RUNS.mkdir(parents=True, exist_ok=True)  # else Slurm could not write the job's output
    for line in job.setup:
        say(f"The job first runs this line of {job.recipe.name}: {line}")
    number = _sbatch(script(job))
    log = paths.RUNS / LOG.replace("%x", job.name).replace("%j", number)
    say(f"Job {number}: {job.name}, {counted(job.nodes, 'node')}; it prints to {log}")


def _sbatch(text: str) -> str:
    """Queue a batch script, and return the job's number.

    From inside a job (an interactive one, say) the new job does not inherit that job's variables.
    """
    if shutil.which("sbatch") is None:
        raise UserError("no sbatch here: Slurm's programs are on a cluster's login node")
    environment = dict(os.environ)
    if "SLURM_JOB_ID" in environment:
        found = [name for name in environment if name.startswith(OF_A_JOB) and name != KEPT]
        environment = {name: environment[name] for name in environment.keys() - found}
    done = subprocess.run(
        ["sbatch", "--parsable"],
        input=text,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    # A site's sbatch may print other lines too.
    numbers = re.findall(r"^(\d+)(?:;\S+)?$", done.stdout, re.MULTILINE)
    if done.returncode or not numbers:
        said = (done.stderr + done.stdout).strip().splitlines() or ["nothing"]
        reason = next((line for line in said if "error" in line), said[0])
        raise UserError(f"sbatch queued no job, but said: {reason}")
    return str(numbers[-1])
