"""The command ``compare``: run the framework notebooks and compare what they measured."""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data_prep.__main__ import Version
from helpers.errors import UserError, exits_cleanly
from helpers.recipe import file_of
from helpers.results import regression
from helpers.runner import batch_folder, plans, run_batch, stalls, sweep_file
from helpers.runner.options import Parser, listed
from helpers.runner.slurm import submit
from helpers.terminal import say

CHOICES = (
    "notebooks",
    "frameworks",
    "devices",
    "gpus",
    "recipe",
    "data",
    "seeds",
    "repeats",
    "precision",
    "epochs",
    "batch_size",
    "workers",
    "warmup_epochs",
    "nodes",
    "launcher",
    "cores_per_device",
    "loader_cores",
)
"""Options that choose what is run; a sweep's file has the same under the same names."""

SLURM = ("slurm", "status")
"""Commands about jobs on a cluster."""

EXAMPLES = """\
examples:
  compare                                        the usual seven notebooks, on all GPUs (or two
                                                 CPU devices where there is none)
  compare --frameworks pytorch,keras --devices 1,2
  compare --devices 4 --gpus 1                   4 replicas on one GPU: is the parallel path right?
  compare --devices 1,2,4,8 --repeats 3 --dry-run
                                                 what an overnight sweep would run, and how long
  compare --epochs 1 --batch-size 16             a short trial; the report says that it is not
                                                 the recipe's own training
  compare --nodes 1,2 --devices 1                one machine and two: virtual ones on a laptop
  compare --sweep sweep.toml                     the same choices, from a file (docs/sweeps.md)
  compare --recipe mine.toml                     your own network or images (docs/recipes.md)
  compare --data ~/chest-xrays                   your own X-rays, in the NIH's layout
  compare --resume                               the last batch: keep what finished, redo the rest
  compare report [NAME ...]                      write report.html again, of one or several batches
  compare slurm mine.toml [--submit]             the recipe as a Slurm job: its batch script
  compare slurm mine.toml --check                will its nodes do?
  compare status [NAME ...]                      how far are the batches, and their Slurm jobs?
  compare --against OLD [--name NEW]             what moved since OLD? runs nothing (NEW: the last)

A batch that was cut short (Ctrl-C, a crash, a reboot) is resumed by itself when you give the same
command again. Every run has a kernel of its own, which sees only the run's GPUs.
Results: runs/latest/report.html, Compare.ipynb and, for each run, its notebook, record and trace.
Exit code: 0 all finished, 1 a run failed or was skipped (with --against: a figure moved),
2 a mistake in the command or the data, or a disk or pipe that refuses, 75 stopped by SIGUSR1 (the
same command goes on), 130 Ctrl-C, SIGTERM or a closed terminal, 141 the output's reader ended
before a batch began (compare --help | head).
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (``sys.argv`` by default); returns the exit code."""
    return exits_cleanly(_main)(sys.argv[1:] if arguments is None else arguments)


def _main(arguments: Sequence[str]) -> int:
    if list(arguments[:1]) == ["report"]:
        return _report(arguments[1:])
    if arguments and arguments[0] in SLURM:
        # Imported here, because most runs are on a machine of one's own.
        from helpers.runner.slurm import command

        run: Callable[[Sequence[str]], int] = getattr(command, arguments[0])
        return run(arguments[1:])
    given = _parser().parse_args(arguments)
    choices = {name: getattr(given, name) for name in CHOICES if getattr(given, name) is not None}
    if given.against is not None:
        runs = given.resume is not None or given.dry_run or given.stall_minutes is not None
        if choices or given.sweep is not None or runs:
            raise UserError("--against runs nothing: with it goes --name, and nothing else")
        return regression.check(
            given.against, batch_folder.LATEST if given.name is None else given.name
        )
    how = {"dry_run": given.dry_run}
    if given.stall_minutes is not None:
        how["stall_minutes"] = given.stall_minutes
    if given.resume is not None:
        if choices or given.name is not None or given.sweep is not None:
            other = "name" if given.name is not None else "sweep"
            option = next(iter(choices), other).replace("_", "-")
            raise UserError(f"--resume takes everything from the batch: leave out --{option}")
        return run_batch.run(None, resume=given.resume, **how)
    sweeps = [sweep_file.read(given.sweep)] if given.sweep is not None else []
    merged = _merged(sweeps, choices)
    recipe = str(merged.get("recipe", "auto"))
    if recipe.endswith(".toml"):
        sweeps.append(sweep_file.of_recipe(file_of(recipe).file))
        merged = _merged(sweeps, choices)
        submit.check_as_queued(recipe, given.name)
    name = merged.pop("name", None)  # a name is no part of a plan
    try:
        plan = plans.make_plan(**merged)
    except plans.ChoiceError as error:
        if error.option in choices or (error.option == "recipe" and recipe.endswith(".toml")):
            raise  # the command line's mistake, or one that names its file
        files = [sweep for sweep in sweeps if error.option in sweep.choices]
        raise UserError(
            f"{files[0].where(error.option)}: {error}" if files else str(error)
        ) from None
    except UserError as error:
        raise UserError(f"{sweeps[0].file.path}: {error}" if sweeps else str(error)) from None
    return run_batch.run(plan, name=name if given.name is None else given.name, **how)


def _merged(sweeps: Sequence[sweep_file.Sweep], choices: dict[str, Any]) -> dict[str, Any]:
    """What the command line says, then the first file, then the second."""
    merged = choices
    for sweep in sweeps:
        merged = sweep.beside(merged)
    return merged


def _report(arguments: Sequence[str]) -> int:
    parser = Parser(prog="compare report", description="Write a batch's report again.")
    parser.add_argument(
        "batches",
        nargs="*",
        metavar="NAME",
        default=[batch_folder.LATEST],
        help="a name under runs/, or a folder; several are reported together (default: the last)",
    )
    parser.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where (default: the first batch's folder)"
    )
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="PRICE",
        help="what an hour on a machine costs: 12.24/h, 12.24 EUR/h, or box=12.24/h for the "
        "machine called box; can be given several times",
    )
    parser.add_argument(
        "--json", action="store_true", help="write no file, but all numbers to the terminal as JSON"
    )
    given = parser.parse_args(arguments)
    if given.json and given.to:
        raise UserError("--json writes no file, so --to has nothing to say; give one of them")
    # Imported here because it needs Jinja and the charts, which running a batch does not.
    from helpers.results import prices, report

    each = prices.read(given.price)
    if given.json:
        print(report.as_json(report.load(given.batches, each)))
    else:
        say(report.write(given.batches, given.to, each))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="compare",
        description="Train with every framework, each in its own kernel, measure it, compare.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    parser.add_argument(
        "--notebooks",
        type=listed,
        metavar="NAME,...",
        help="which notebooks, without .ipynb (default: every framework's, but Horovod's only if "
        "named, and ChainerMN's only on several nodes or if named)",
    )
    parser.add_argument(
        "--frameworks",
        type=listed,
        metavar="NAME,...",
        help="all notebooks of these frameworks, instead of --notebooks; horovod: those of that "
        "kernel; keras-jax, keras-torch: Keras on another backend",
    )
    parser.add_argument(
        "--devices",
        type=listed,
        metavar="N,...",
        help="on how many devices, one run for each number (default: auto, all there are)",
    )
    parser.add_argument(
        "--nodes",
        type=listed,
        metavar="N,...",
        help="on how many machines with so many devices each, one run for each number; virtual "
        "ones, processes of this machine, where no others are named (default: 1; "
        "docs/many-machines.md)",
    )
    parser.add_argument(
        "--launcher",
        metavar="NAME",
        help="what starts the processes of several nodes: mpiexec, mpiexec:HOST,HOST,..., srun in "
        "a Slurm allocation, torchrun (default: auto, srun in an allocation, else mpiexec)",
    )
    parser.add_argument(
        "--gpus",
        metavar="N",
        help="on how many GPUs the devices are: fewer than devices are shared, and not ranked; "
        "0 for CPU devices (default: auto, as many as devices)",
    )
    parser.add_argument(
        "--cores-per-device",
        metavar="N",
        help="cores of each CPU device, or 'shared': devices share all cores, and are not ranked "
        "(default: auto, an equal part for the largest number of devices)",
    )
    parser.add_argument(
        "--loader-cores",
        metavar="PLACE",
        help="where the loader workers of CPU devices run: 'device' on its cores, 'own' on cores "
        "that do not compute, 'siblings' on second hardware threads (default: the recipe's)",
    )
    parser.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help="which network on which images: chexnet (the article's), demo (small), "
        "resnet44-cifar10, resnet50-imagenet, or a file of your own, mine.toml (docs/recipes.md); "
        "default: chexnet where there is a GPU, else demo",
    )
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="a folder with images in the format that the recipe reads (default: auto, the "
        "real ones under data/ if prepared, else generated ones)",
    )
    parser.add_argument(
        "--seeds",
        "--seed",
        type=_whole_numbers,
        metavar="N,...",
        help="one run for each seed, of split, weights and augmentation alike (default: 0)",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="run everything N times; tables then show median and range (default: 1)",
    )
    parser.add_argument(
        "--precision",
        type=listed,
        metavar="NAME,...",
        help="fp32, tf32, bf16, fp16: one run for each (default: fp32)",
    )
    parser.add_argument("--epochs", metavar="N", help="epochs of every run (default: the recipe's)")
    parser.add_argument(
        "--batch-size",
        metavar="N|auto",
        help="images per device; the learning rate follows as the recipe scales it; auto: the "
        "largest that fits (default: the recipe's)",
    )
    parser.add_argument("--batch", nargs="?", action=_Batch, help=argparse.SUPPRESS)
    parser.add_argument(
        "--workers",
        metavar="N|auto",
        help="loader workers, for all devices together; auto: each run measures how many "
        "(default: by the CPU cores)",
    )
    parser.add_argument(
        "--warmup-epochs",
        metavar="N",
        help="epochs in which the learning rate climbs, step by step, from one device's to that of "
        "all (default: the recipe's)",
    )
    parser.add_argument(
        "--sweep",
        metavar="FILE",
        help="take the choices above from a TOML file; options given beside it replace its own",
    )
    parser.add_argument(
        "--name", help="name of the batch of runs, a folder under runs/ (default: the time)"
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=batch_folder.LATEST,
        metavar="NAME",
        help="go on with a batch (default: the last): keep what finished, redo the rest",
    )
    parser.add_argument(
        "--against",
        metavar="OLD",
        help="compare the last batch (or --name NEW) with this one, figure by figure",
    )
    parser.add_argument(
        "--stall-minutes",
        type=_minutes,
        metavar="N",
        help="end a run that has taken no step and printed nothing for so long "
        f"(default: {stalls.MINUTES:g}; 0: never)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be run, and start nothing"
    )
    return parser


class _Batch(argparse.Action):
    """``--batch``, which was the name of a folder while a notebook's batch was a number."""

    def __call__(self, *given: object) -> None:
        raise UserError(
            "--batch is two things: give --name for the folder of the runs, or --batch-size for "
            "images per device"
        )


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 <= minutes < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}': give minutes, 0 or more")
    return minutes


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in listed(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}': give whole numbers") from None


if __name__ == "__main__":
    sys.exit(main())
