"""``compare slurm`` and ``compare status``: from a recipe to queued jobs, and how far they are."""

import argparse
from collections.abc import Sequence

from helpers.errors import UserError
from helpers.runner.options import Parser
from helpers.runner.slurm import check, script, submit
from helpers.runner.slurm import status as status_of
from helpers.terminal import say

EPILOG = """\
The script's settings are the recipe's table [slurm]; its runs are those of [sweep], where nodes
gives a job for each number. See docs/slurm.md.
"""


def slurm(arguments: Sequence[str]) -> int:
    """``compare slurm FILE.toml``: print the batch script, or hand it to sbatch."""
    parser = Parser(
        prog="compare slurm",
        description="A recipe as a Slurm job: print its batch script, or queue it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE.toml", help="a recipe's file (docs/recipes.md)")
    parser.add_argument(
        "--submit", action="store_true", help="hand the script to sbatch, and print the jobs"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run a short job that looks whether the nodes have what is asked, and print a table",
    )
    parser.add_argument(
        "--name", help="name of the batches, before -1n for one node (default: the file's)"
    )
    given = parser.parse_args(arguments)
    job = script.job_of(given.file, given.name)
    if given.check and given.submit:
        raise UserError("--check looks, --submit queues: give one of them")
    if given.check:
        return check.check(job)
    if given.submit:
        submit.submit(job)
    else:
        say(script.text(job).rstrip("\n"))
    return 0


def status(arguments: Sequence[str]) -> int:
    """``compare status [NAME ...]``: how far the jobs are."""
    parser = Parser(
        prog="compare status",
        description="How far batches of runs are, and the Slurm jobs that have their names.",
    )
    parser.add_argument(
        "batches",
        nargs="*",
        metavar="NAME",
        help="a name under runs/ (default: all that are not finished)",
    )
    status_of.show(parser.parse_args(arguments).batches)
    return 0
