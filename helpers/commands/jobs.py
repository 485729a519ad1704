"""``rosetta slurm``: print or submit a recipe's Slurm job."""

import argparse

from helpers.commands.parser import Commands, command, options
from helpers.terminal import say


def add(commands: Commands) -> None:
    parser = command(
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
    parser.add_argument("file", metavar="FILE.toml", help="the file of a recipe (docs/recipes.md)")
    options(parser, {"--submit": "submit the job with sbatch, and print its number"})
    parser.set_defaults(run=_slurm)


def _slurm(given: argparse.Namespace) -> int:
    from helpers.runner import slurm  # here, because most runs are on one machine

    job = slurm.job_of(given.file)
    if given.submit:
        slurm.submit(job)
    else:
        say(slurm.script(job).rstrip("\n"))
    return 0
