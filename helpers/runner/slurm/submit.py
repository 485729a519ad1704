"""Hands a recipe's batch script to ``sbatch``: a job for each number of nodes."""

from helpers import paths
from helpers.errors import UserError
from helpers.runner import batch_folder
from helpers.runner.slurm import programs, script
from helpers.runner.slurm.script import Job
from helpers.terminal import say


def submit(job: Job) -> None:
    """Queue the jobs, and say what they are called.

    Raises:
        UserError: a batch of that name has finished, or a job of that name is queued already;
            then none is queued. Or ``sbatch`` refuses.
    """
    for nodes in job.nodes:
        _check_free(job.batch(nodes))
    paths.RUNS.mkdir(parents=True, exist_ok=True)  # else Slurm could not write the job's output
    text = script.text(job)
    for line in script.setting_up(job.slurm):
        if line:
            say(f"The job first runs this line of {job.recipe.name}: {line}")
    for nodes in job.nodes:
        name = job.batch(nodes)
        options = [f"--nodes={nodes}", f"--job-name={name}"]
        number = programs.ask("sbatch", "--parsable", *options, given=text).strip().split(";")[0]
        log = paths.RUNS / script.LOG.replace("%x", name).replace("%j", number)
        say(f"Job {number}: {name}, {nodes} node{'s' * (nodes > 1)}; it prints to {log}")
    names = " ".join(job.batch(nodes) for nodes in job.nodes)
    say(f"How far they are: compare status {names}; afterwards: compare report {names}")


def _check_free(name: str) -> None:
    if queued := programs.jobs_called(name):
        raise UserError(
            f"job {queued[0]} is called {name} already: wait for it, end it (scancel {queued[0]}), "
            "or give another --name"
        )
    try:
        batch = batch_folder.load(name)
    except UserError:
        return  # none yet, or none to go on with: the job itself says so
    if batch.finished is not None:
        raise UserError(f"{batch.folder}: has finished; give another --name, or remove it")
