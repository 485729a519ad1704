"""Queue a recipe's batch script with ``sbatch``, one job for each number of nodes.

The same command continues existing experiments. A complete experiment, or one whose job waits or
runs, is left alone. An experiment with failed runs gets another job, which keeps the finished runs.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from helpers import paths
from helpers.errors import UserError, naming
from helpers.frameworks import installed
from helpers.runner import experiments, journal, locks
from helpers.runner.experiments import Experiment
from helpers.runner.plans import counted
from helpers.runner.slurm import programs, script
from helpers.runner.slurm.script import Job
from helpers.terminal import say
from helpers.training import parameters


def check_as_queued(recipe: str, experiment: str | None) -> None:
    """Inside a job: check that the ``recipe``'s file still asks for what was queued, hours ago."""
    queued = os.environ.get(script.QUEUED)
    if queued is not None and queued != script.digest(script.job_of(recipe, experiment)):
        raise UserError(
            f"{recipe}: was changed since this job was queued, so nothing is run: put it back, or "
            f"queue it again (rosetta slurm {recipe} --submit)"
        )


def submit(job: Job) -> None:
    """Queue the jobs that have something to do, and say what they are called."""
    paths.RUNS.mkdir(parents=True, exist_ok=True)
    with naming(paths.RUNS), tempfile.TemporaryFile(dir=paths.RUNS):
        pass  # else Slurm could not write the job's output, and no error would be shown
    lock = locks.of_batch(f"_queueing-{job.name}")
    with locks.held(lock, f"another rosetta slurm queues {job.name}"):
        _queue(job)


def _queue(job: Job) -> None:
    begun = {nodes: _begun(job, nodes) for nodes in job.nodes}
    left_alone = {nodes: said for nodes in job.nodes if (said := _why_not(job, nodes, begun))}
    if len(left_alone) == len(job.nodes):
        raise UserError(f"{'; '.join(left_alone.values())}; or give another --name")
    kernels = {run.kernel for nodes in job.nodes for run in job.plan(nodes).runs}
    problems = {kernel: said for kernel in sorted(kernels) if (said := installed.problem(kernel))}
    if problems.keys() == kernels:
        raise UserError("; ".join(problems.values()))
    text = script.text(job)
    for problem in problems.values():
        say(f"Some runs will be skipped, and the job will end as failed: {problem}")
    if mode := preemption(job.slurm.get("partition")):
        say(
            f"A job that is preempted here is ended and not queued again (PreemptMode={mode}): "
            "then the same command continues the experiment"
        )
    if kinds := kinds_of_nodes(job.slurm):
        say(
            f"The job may get nodes that differ, whose times are not comparable: {kinds}. Ask for "
            'one kind in [slurm], such as gres = "gpu:a100:4", or sbatch_args = '
            '["--constraint=NAME"]'
        )
    for line in job.slurm.get("setup", []):
        say(f"The job first runs this line of {job.recipe.name}: {line}")
    for nodes, experiment in begun.items():
        if nodes in left_alone:
            say(f"Not queued: {left_alone[nodes]}")
            continue
        name = job.experiment(nodes)
        number = programs.queue(text, f"--nodes={nodes}", f"--job-name={name}")
        log = paths.RUNS / script.LOG.replace("%x", name).replace("%j", number)
        say(f"Job {number}: {name}, {counted(nodes, 'node')}; it prints to {log}")
        if experiment is not None:
            done = f"{sum(map(experiment.is_finished, experiment.runs))} of {len(experiment.runs)}"
            say(f"  It continues the experiment: {done} runs are finished")
    names = " ".join(job.experiment(nodes) for nodes in job.nodes)
    say(f"Progress: rosetta status {names}; afterwards: rosetta report {names}")


def preemption(partition: str | None) -> str | None:
    """The site's or the partition's ``PreemptMode`` if it cancels jobs; None if not, or unknown."""
    with suppress(UserError):
        said = programs.ask("scontrol", "show", "config")
        if partition is not None:
            said += programs.ask("scontrol", "--oneliner", "show", "partition", partition)
        modes = re.findall(r"\bPreemptMode\s*=\s*(\S+)", said)
        return next((mode for mode in modes[-1:] if "CANCEL" in mode), None)
    return None


def kinds_of_nodes(slurm: Mapping[str, Any]) -> str | None:
    """The cores and GPUs of the nodes that a job may get; None if alike, chosen, or unknown."""
    chosen = ("--constraint=", "--nodelist=", "--exclude=")
    if any(option.startswith(chosen) for option in slurm.get("sbatch_args", [])):
        return None
    partitions = slurm.get("partition")
    wanted = [f"gpu:{kind}:" if kind else "gpu:" for kind, _ in script.gpus(slurm)]
    found: dict[str, set[str]] = {}
    with suppress(UserError, ValueError):  # as for preemption: what is not known is not told
        asked = [f"--partition={partitions}"] if partitions else []
        said = programs.ask("sinfo", "--noheader", "--Node", "--format=%P %N %c %G", *asked)
        for partition, node, cores, gres in (line.split(None, 3) for line in said.splitlines()):
            gpus = re.findall(r"gpu:[^,(\s]+", gres)
            fits = all(any(gpu.startswith(kind) for gpu in gpus) for kind in wanted)
            if fits and (partitions or partition.endswith("*")):  # the default one
                kind = f"{cores} cores and {', '.join(sorted(gpus)) or 'no GPU'}"
                found.setdefault(kind, set()).add(node)
    kinds = [f"{kind} ({', '.join(sorted(nodes)[:4])})" for kind, nodes in found.items()]
    return "; ".join(kinds[:4]) if len(kinds) > 1 else None


def _why_not(job: Job, nodes: int, begun: Mapping[int, Experiment | None]) -> str | None:
    """Why nothing is to be queued for so many nodes; None where there is something to do."""
    name, experiment = job.experiment(nodes), begun[nodes]
    asked = "squeue", "--me", "--noheader", f"--name={name}", "--format=%i"
    if queued := programs.ask(*asked).split():
        number = queued[0]
        return f"job {number} is called {name} already: wait for it, or end it (scancel {number})"
    if experiment is not None and experiment.finished is not None and not experiment.failed:
        return f"{name} has finished: rosetta report {name}"
    return None


def _begun(job: Job, nodes: int) -> Experiment | None:
    """What there is of that experiment."""
    name = job.experiment(nodes)
    folder = paths.RUNS / name
    if not experiments.is_taken(folder):
        return None
    if folder not in journal.folders():
        raise UserError(
            f"{folder}: is not an experiment: give another --name, or remove the folder"
        )
    experiment = experiments.load(name)
    if differing := _differing(experiment, job, nodes):
        raise UserError(
            f"{folder}: was started with other runs, as {differing} since: put that back, or give "
            "another --name"
        )
    return experiment


def _differing(experiment: Experiment, job: Job, nodes: int) -> str | None:
    """What sets the job's runs apart from the experiment's; None where they are the same.

    As far as a login node can tell: devices and GPUs are those of the compute nodes.
    """
    plan = job.plan(nodes)
    names = plan.recipe_digests.keys() | experiment.plan.recipe_digests.keys()
    was, now = experiment.plan.recipe_digests.get, plan.recipe_digests.get
    if changed := sorted(name for name in names if was(name) != now(name)):
        return f"{', '.join(changed)} was changed"
    found, asked = experiment.plan.parameters(), plan.parameters()
    if other := [key for key in asked if key not in script.ON_NODES and found[key] != asked[key]]:
        return f"{', '.join(other).replace('_', ' ')} was changed"
    runs = [
        {
            (run.label, run.nodes, run.variant, run.seed, run.precision, run.execution)
            for run in each.runs
        }
        for each in (experiment.plan, plan)
    ]
    devices = {parameters.whole(number) for number in job.choices.get("devices", ["auto"])}
    known = None in devices or devices == {run.devices for run in experiment.runs}
    return None if runs[0] == runs[1] and known else "[sweep] was changed"
