"""``rosetta run``: train with every framework, and compare; ``slurm``: as a cluster's job."""

import argparse
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from operator import attrgetter
from typing import Any

from helpers.commands.parser import Commands, command, minutes, options
from helpers.errors import UserError
from helpers.frameworks import ROWS
from helpers.recipe import RECIPES, file_of, tables
from helpers.runner import experiments, hangs, plans, run_experiment, sweep_file
from helpers.terminal import say

CHOICES = [field.name for field in fields(plans.Choices)]
"""Options that choose what is run."""

EPILOG = """\
examples:
  rosetta run --frameworks pytorch,keras --devices 1,2
                                           train in two frameworks on one device, then on two
  rosetta run --devices 1,2,4,8 --repeats 3 --dry-run
                                           list the runs of a night
  CUDA_VISIBLE_DEVICES= rosetta run        train on the CPU, although there are GPUs
  rosetta run --recipe mine.toml           train your network or images (docs/recipes.md)

After Ctrl-C, a crash or a reboot, the same command continues the experiment.
Results: runs/latest/report.html and Compare.ipynb; for each run its notebook, record and trace.
Exit codes:
    0  all runs finished
    1  a run failed or was skipped, or SIGUSR1 came before an epoch or a run was finished
    2  a mistake in the command or the data, or a full disk
   75  stopped by SIGUSR1, as Slurm sends it; repeat the command to continue
  130  stopped by Ctrl-C, SIGTERM or a closed terminal
"""
_WORDS = {row.word: row.optional for row in sorted(ROWS, key=attrgetter("optional"))}
OPTIONS = {
    "what to train": {
        "--frameworks NAME,...": f"train in these frameworks: {', '.join(_WORDS)} "
        f"(default: all except {', '.join(word for word, rare in _WORDS.items() if rare)})",
        "--notebooks NAME,...": "run these notebooks of notebooks/ instead of --frameworks "
        "(default: the notebooks of --frameworks)",
        "--recipe NAME|FILE": "use the network, images and settings of this recipe: "
        f"{', '.join(RECIPES)}, or a file (default: chexnet on GPUs, demo on CPUs)",
        "--data FOLDER": "train on the images in FOLDER (default: the images prepared under "
        "data/; if there are no such images, generated images)",
    },
    "devices": {
        "--devices N,...": "train on N devices of each node, with one run for each number "
        "(default: all GPUs, or two CPU devices)",
        "--nnodes N,...": "train on N nodes, with one run for each number; without --launcher "
        "hosts or a Slurm job, the nodes are simulated on this machine (default: 1)",
        "--launcher mpiexec:HOST,...": "name the machines of several nodes (default: the nodes of "
        "a Slurm job, else this machine)",
        "--cores-per-device N": "give each CPU device N cores; 'shared' lets every device use all "
        "cores, and the run is not ranked (default: all cores divided by the largest number in "
        "--devices)",
    },
    "training": {
        "--epochs N": "train N epochs (default: the recipe's)",
        "--batch-size N": "train with N images per device, and scale the learning rate by the "
        "recipe's rule (default: the recipe's)",
        "--num-workers N": "start N loader workers for each device (default: the CPU cores per "
        "device, 8 at most)",
        "--precision NAME,...": "compute in fp32, tf32, bf16 or fp16, with one run for each "
        "(default: auto, which is tf32 on GPUs that have it, and fp32 elsewhere)",
        "--execution NAME,...": "execute steps eager or compiled, with one run for each (default: "
        "the recipe's, otherwise the framework's)",
        "--warmup-epochs N": "raise the learning rate step by step over N epochs (default: the "
        "recipe's)",
        "--seeds N,...": "seed the split, weights and augmentation, with one run for each seed "
        "(default: 0)",
    },
    "experiment": {
        "--repeats N": "repeat every run N times; tables then show mean and range (default: 1)",
        "--name NAME": "write the experiment to runs/NAME (default: the date and time)",
        "--hang-timeout MINUTES": "end a run that has taken no step and printed nothing for "
        f"MINUTES; 0 never ends a run (default: {hangs.MINUTES:g})",
        "--dry-run": "list the runs, and start none",
    },
}
"""By group, each option and its help."""


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "run",
        help="train the same network in every framework, and write a report",
        epilog=EPILOG,
    )
    for title, table in OPTIONS.items():
        options(group := parser.add_argument_group(title), table, MINUTES=minutes)
    group.add_argument(
        "--resume",
        nargs="?",
        const=experiments.LATEST,
        metavar="NAME",
        help="continue an experiment: keep its finished runs and resume the others (default: the "
        "last experiment)",
    )
    parser.set_defaults(run=run, hang_timeout=hangs.MINUTES)
    job = command(
        commands,
        "slurm",
        help="print a recipe's Slurm script or submit it (default: print)",
        epilog="""\
examples:
  rosetta slurm mine.toml > job.sh     print the script
  rosetta slurm mine.toml --submit     submit the job, or continue it

The recipe's [slurm] table sets the job's options, and its [sweep] table lists the runs
(docs/many-machines.md).
""",
    )
    job.add_argument("file", metavar="FILE.toml", help="the file of a recipe (docs/recipes.md)")
    options(job, {"--submit": "submit the job with sbatch, and print its number"})
    job.set_defaults(run=_slurm)


def run(given: argparse.Namespace) -> int:
    """Run the experiment; the exit code."""
    said = {name: getattr(given, name) for name in (*CHOICES, "name")}
    chosen = {name: value for name, value in said.items() if value is not None}
    how = {"dry_run": given.dry_run, "stall_minutes": given.hang_timeout}
    if given.resume is not None:
        if chosen:
            option = next(iter(chosen)).replace("_", "-")
            raise UserError(f"--resume continues an experiment as it was: leave out --{option}")
        return run_experiment.run(None, resume=given.resume, **how)
    sweep: dict[str, Any] = {}
    where: AbstractContextManager[None] = nullcontext()
    if str(given.recipe).endswith(".toml"):
        file = file_of(given.recipe)
        sweep = sweep_file.read(file)
        if chosen.keys() & {"notebooks", "frameworks"}:  # either chooses what is run
            sweep = {key: sweep[key] for key in sweep.keys() - {"notebooks", "frameworks"}}
        also = " or the command" if len(chosen) > 1 else ""
        where = tables.located(f"{file.path}{also}") if sweep else where
    merged = sweep | chosen
    name = merged.pop("name", None)  # a name is not part of a plan
    with where:
        plan = plans.make_plan(**merged)
    return run_experiment.run(plan, name=name, **how)


def _slurm(given: argparse.Namespace) -> int:
    from helpers.runner import slurm  # here, because most runs are on one machine

    job = slurm.job_of(given.file)
    if given.submit:
        slurm.submit(job)
    else:
        say(slurm.script(job).rstrip("\n"))
    return 0
