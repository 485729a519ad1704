"""``rosetta slurm`` and ``status``: queue a recipe's jobs, and show their progress."""

import argparse

from helpers.commands.parser import Commands, command
from helpers.terminal import say


def add(commands: Commands) -> None:
    status = command(
        commands, "status", help="show the progress of experiments and of their Slurm jobs"
    )
    status.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="an experiment's name under runs/ (default: all unfinished ones)",
    )
    status.set_defaults(run=_status)
    _add_slurm(commands)


def _add_slurm(commands: Commands) -> None:
    parser = command(
        commands,
        "slurm",
        help="print a recipe's Slurm batch script, check its nodes, or submit it",
        epilog="""\
examples:
  rosetta slurm mine.toml > job.sh     print the script
  rosetta slurm mine.toml --check      run a short job to check that the nodes are suitable
  rosetta slurm mine.toml --submit     submit it, or continue it

The settings come from the recipe's [slurm] table and the runs from [sweep]; each number of nodes
gets one job (docs/slurm.md).
""",
    )
    parser.add_argument("file", metavar="FILE.toml", help="a recipe's file (docs/recipes.md)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--submit", action="store_true", help="submit the script with sbatch, and print the jobs"
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="run a short job that checks the nodes, and print a table",
    )
    parser.add_argument(
        "--name",
        help="base name of the experiments, to which -1n is added for one node (default: the "
        "file's name)",
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
