"""``rosetta slurm`` and ``status``: queue a recipe's jobs, and show their progress."""

import argparse

from helpers.commands.parser import Commands, command
from helpers.terminal import say


def add(commands: Commands) -> None:
    status = command(
        commands,
        "status",
        help="show the progress of experiments and their Slurm jobs (default: all unfinished)",
    )
    status.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="an experiment under runs/ (default: all unfinished experiments)",
    )
    status.set_defaults(run=_status)
    _add_slurm(commands)


def _add_slurm(commands: Commands) -> None:
    parser = command(
        commands,
        "slurm",
        help="print a recipe's Slurm script, check its nodes or submit its jobs (default: print)",
        epilog="""\
examples:
  rosetta slurm mine.toml > job.sh     print the script
  rosetta slurm mine.toml --check      check the nodes with a short job
  rosetta slurm mine.toml --submit     submit the jobs, or continue them

The recipe's [slurm] table sets the job options, and its [sweep] table lists the runs. Each number
of nodes gets one job (docs/slurm.md).
""",
    )
    parser.add_argument("file", metavar="FILE.toml", help="the file of a recipe (docs/recipes.md)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--submit", action="store_true", help="submit the jobs with sbatch, and print their numbers"
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="check the nodes with a short job, and print a table",
    )
    parser.add_argument(
        "--name",
        help="name the experiments NAME-1n for one node, and so on (default: the name in [sweep], "
        "or the file's name)",
    )
    parser.set_defaults(run=_slurm)


# Slurm's modules are imported by the commands, because most runs are on one machine.


def _slurm(given: argparse.Namespace) -> int:
    from helpers.runner.slurm import check, script, submit

    job = script.job_of(given.file, given.name)
    if given.check:
        return check.check(job)
    if given.submit:
        submit.submit(job)
    else:
        say(script.text(job).rstrip("\n"))
    return 0


def _status(given: argparse.Namespace) -> int:
    from helpers.runner.slurm import status

    status.show(given.names)
    return 0
