"""Write a recipe's batch script for Slurm.

One script works for every number of nodes, because ``sbatch --nodes=2`` replaces the number in the
script. Inside the job the runner works as usual: all frameworks, one after the other, on the same
nodes. The values of the recipe's ``[slurm]`` were checked when the recipe was read
(``recipe.keys``), and are quoted here as well.
"""

import hashlib
import json
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.errors import GO_ON, UserError
from helpers.recipe import file_of
from helpers.runner import experiments, plans, shutdown, sweep_file
from helpers.runner.plans import Plan
from helpers.training import parameters

NOTICE = 180
"""Seconds before the time limit, or a preemption, at which the job begins to stop."""
EARLY = 60
"""Seconds by which Slurm may say so sooner than it was asked to (``sbatch --signal``)."""
LOG = "slurm-%x-%j.log"
"""Under ``runs/``: what a job prints; sbatch puts in its name and number."""
ROSETTA = ".venvs/lab/bin/rosetta"
QUEUED = "ROSETTA_QUEUED"
"""The variable by which a job knows what was queued (:func:`digest`)."""
ON_NODES = ("devices", "gpus", "launcher", "data")
"""Choices of which a login node cannot tell whether they can be had."""

UNHEARD = 128 + signal.SIGUSR1
"""What a shell makes of a runner that the signal itself has ended, as it did not listen yet."""
BEGIN = f"""\
# {{notice}} s before the time limit Slurm sends USR1: the runner writes a checkpoint,
# and ends with {GO_ON}: the same script continues it.
again() {{{{ {{requeue}}exit {GO_ON}; }}}}
trap again USR1 # until the runner has begun
"""
REQUEUE = 'scontrol requeue "$SLURM_JOB_ID" || echo "not queued again: do so by hand"; '
END = f"""\
{{command}} &
runner=$!
trap 'kill -USR1 "$runner"' USR1
while kill -0 "$runner" 2>/dev/null; do wait "$runner"; done
wait "$runner" # once more, for its exit code
code=$?
case "$code" in {GO_ON} | {UNHEARD}) again ;; esac # {UNHEARD}: it could not listen yet
exit "$code"
"""


@dataclass(frozen=True)
class Job:
    """What is to be queued: a recipe's file on several numbers of nodes."""

    recipe: Path
    name: str
    measured: tuple[int, ...]
    """The numbers of nodes that runs are to have."""
    slurm: dict[str, Any]
    choices: dict[str, Any]
    """What the table ``[sweep]`` says."""

    @property
    def one_job(self) -> bool:
        """Whether there is one job, in which runs on fewer nodes use some of its nodes.

        Otherwise scaling compares two sets of machines.
        """
        return bool(self.slurm.get("one_job"))

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of each job."""
        return (max(self.measured),) if self.one_job else self.measured

    def runs_on(self, nodes: int) -> tuple[int, ...]:
        """The numbers of nodes that the runs of the job on so many nodes have."""
        return self.measured if self.one_job else (nodes,)

    def experiment(self, nodes: int) -> str:
        """The name of the experiment, and of the job, on so many nodes."""
        return f"{self.name}-{nodes}n"

    def plan(self, nodes: int) -> Plan:
        """What the job on so many nodes runs, but for what only they can tell (``ON_NODES``)."""
        left_out = (*ON_NODES, "name", "nnodes")
        choices = {key: value for key, value in self.choices.items() if key not in left_out}
        where: dict[str, Any] = {"nnodes": self.runs_on(nodes), "devices": [1], "gpus": 0}
        return plans.make_plan(recipe=str(self.recipe), **where, **choices)


def job_of(path: str, name: str | None = None) -> Job:
    """The job that a recipe's file asks for.

    Its experiments have this name, ``[sweep]``'s or the file's own, before ``-1n``.
    """
    if not path.endswith(".toml"):
        raise UserError(f"{path}: give a recipe's file, such as mine.toml (docs/recipes.md)")
    found = file_of(path)
    sweep = sweep_file.of_recipe(found.file)
    if name is None:
        name = sweep.choices.get("name", found.file.path.stem)
    experiments.check_name(str(name))
    with sweep_file.located([sweep]), plans.choosing("nnodes"):
        asked = sweep.choices.get("nnodes", [1])
        nodes = tuple(
            dict.fromkeys(int(parameters.check_number("nodes", number)) for number in asked)
        )
    notice, given = found.slurm.get("signal_seconds", NOTICE), found.slurm.get("time")
    if given is not None and (limit := seconds_of(given)) <= notice + EARLY:
        raise UserError(
            f"{found.file.where('slurm', 'time')}: a time limit of {limit} s leaves no time before "
            f"the {notice} s in which the job stops itself, which Slurm may begin {EARLY} s "
            "sooner: give more time, or a smaller 'signal_seconds'"
        )
    if {"mem", "mem_per_cpu"} <= found.slurm.keys():
        raise UserError(
            f"{found.file.where('slurm', 'mem_per_cpu')}: 'mem' is the memory of a node, and "
            "'mem_per_cpu' that of a core: give one of them"
        )
    job = Job(found.file.path.resolve(), str(name), nodes, found.slurm, sweep.choices)
    with sweep_file.located([sweep]):
        job.plan(max(nodes))
    return job


def seconds_of(limit: str) -> int:
    """Seconds of a time limit as sbatch takes it: ``90``, ``02:00:00``, ``1-12``."""
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if days:  # hours first
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return 86400 * int(days) + 3600 * hours + 60 * minutes + seconds
    if len(parts) == 3:
        return 3600 * parts[0] + 60 * parts[1] + parts[2]
    return 60 * parts[0] + (parts[1] if len(parts) == 2 else 0)


def text(job: Job) -> str:
    """The batch script."""
    slurm, recipe = job.slurm, shlex.quote(str(job.recipe))
    notice = slurm.get("signal_seconds", NOTICE)
    requeue = REQUEUE if slurm.get("requeue", True) else ""
    by_hand = "; ".join(
        f"sbatch --nodes={nodes} --job-name={job.experiment(nodes)} job.sh" for nodes in job.nodes
    )
    count = ",".join(map(str, job.measured)) if job.one_job else '"$SLURM_JOB_NUM_NODES"'
    command = (
        f"{ROSETTA} run --recipe {recipe} \\\n"
        f'    --nnodes {count} --name {job.name}-"$SLURM_JOB_NUM_NODES"n'
    )
    lines = [
        "#!/bin/bash",
        f"# {job.recipe.name} as a Slurm job. To queue it by hand:",
        f"#   {by_hand}",
        *_explained(job),
        f"export {QUEUED}={digest(job)} # the recipe, as it was queued",
        "",
        *BEGIN.format(notice=notice, requeue=requeue).splitlines(),
    ]
    lines.append("export SLURM_EXPORT_ENV=ALL # for sites that start steps without variables")
    if (seconds := patience(notice)) != shutdown.PATIENCE_SECONDS:
        lines.append(f"export {shutdown.PATIENCE_VARIABLE}={seconds} # for a step that takes long")
    lines += ["", *setting_up(slurm)]
    return "\n".join(lines) + "\n" + END.format(command=command)


def digest(job: Job) -> str:
    """The digest of the job's content: the recipe, its custom code and ``[sweep]``."""
    said = [job.plan(max(job.nodes)).recipe_digests, job.choices]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def patience(notice: int) -> int:
    """Seconds after which a stop in order is given up, so that what is left can still be noted.

    Else Slurm's limit would end the job, and it would not be queued again.
    """
    return max(notice - 60, notice // 2)


def options(job: Job) -> list[str]:
    """What stands behind ``#SBATCH``, a line each."""
    slurm = job.slurm
    given = [f"--job-name={job.name}"]
    given += [f"--{key}={slurm[key]}" for key in ("partition", "account", "time") if key in slurm]
    given += [f"--nodes={job.nodes[0]}", "--ntasks-per-node=1"]
    # Without a number of cores the job has its nodes for itself: others would be measured too. On
    # some sites such a job still has only a part of their memory, unless it asks for all (0).
    given.append(f"--cpus-per-task={slurm['cpus']}" if "cpus" in slurm else "--exclusive")
    by_core = any(option.startswith("--mem-per-") for option in slurm.get("sbatch_args", []))
    if "mem_per_cpu" in slurm:
        given.append(f"--mem-per-cpu={slurm['mem_per_cpu']}")
    elif "mem" in slurm or ("cpus" not in slurm and not by_core):
        given.append(f"--mem={slurm.get('mem', 0)}")
    given += [f"--gres={slurm['gres']}"] if "gres" in slurm else []
    given += [
        f"--chdir={_quoted(paths.ROOT)}",
        f"--output={paths.RUNS.name}/{LOG}",
        "--open-mode=append",
        "--requeue" if slurm.get("requeue", True) else "--no-requeue",
        f"--signal=B:USR1@{slurm.get('signal_seconds', NOTICE)}",
    ]
    return given + list(slurm.get("sbatch_args", []))


def gpus(slurm: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The GPUs of each node that a recipe asks for: their type, or ``""``, and their number."""
    asked = slurm.get("gres", "").split(",")
    for option, _, given in (each.partition("=") for each in slurm.get("sbatch_args", [])):
        if option == "--gpus-per-node":
            asked += [f"gpu:{each}" for each in given.split(",")]
    found = [re.fullmatch(r"gpu(?::([^:]*[^:\d][^:]*))?(?::(\d+))?", each) for each in asked]
    return [(each[1] or "", int(each[2] or 1)) for each in found if each]


def _explained(job: Job) -> list[str]:
    """The ``#SBATCH`` lines, those of cores and memory below a comment with the reason for them."""
    number = sum(count for _, count in gpus(job.slurm))

    def shared(amount: str) -> str:
        if not number:
            return f"{amount} for all devices of a node"
        digits = amount.rstrip("KMGT")
        each = f"{int(digits) / number:,.1f}".removesuffix(".0") + amount.removeprefix(digits)
        return f"{each} for each of {number} GPU{'s' * (number != 1)}"

    cores, memory = (shared(str(job.slurm.get(key, 0))) for key in ("cpus", "mem"))
    reasons = {
        "--exclusive": "Whole nodes: other jobs would slow the steps that are measured.",
        "--cpus-per-task": f"Cores: {cores}: a process and up to 8 loader workers per device.",
        "--mem=0": "All memory of whole nodes: at some sites a job gets only a part of it.",
        "--mem": f"Memory: {memory}: the process, loader workers and images of a device.",
        "--mem-per-cpu": "Memory by the core, for sites that count it so.",
    }
    lines = []
    for option in options(job):
        reason = reasons.get(option) or reasons.get(option.partition("=")[0])
        lines += [f"# {reason}"] * (reason is not None) + [f"#SBATCH {option}"]
    return lines


def setting_up(slurm: dict[str, Any]) -> list[str]:
    """The lines of shell that come before the command."""
    lines = list(slurm.get("setup", []))
    modules: Sequence[str] = slurm.get("modules", ())
    if modules:
        # A module of Python's puts its own packages on PYTHONPATH, before ours.
        lines += [f"module load {shlex.join(modules)} || exit", "unset PYTHONPATH PYTHONHOME"]
    return lines


def _quoted(path: Path) -> str:
    """A path as sbatch reads it in an ``#SBATCH`` line."""
    said = str(path)
    if not said.isprintable():
        raise UserError(f"{said!r}: sbatch accepts no path with such characters; move the checkout")
    if re.fullmatch(r"[A-Za-z0-9_./+@:,-]+", said):
        return said
    return '"' + said.replace("\\", "\\\\").replace('"', '\\"') + '"'
