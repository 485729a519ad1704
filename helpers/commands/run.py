"""``rosetta run``: train with every framework, each in its own environment, and compare."""

import argparse
from dataclasses import fields
from operator import attrgetter

from helpers.commands.parser import Commands, Parser, command, listed, minutes
from helpers.errors import UserError
from helpers.frameworks import ROWS
from helpers.recipe import file_of
from helpers.runner import experiments, hangs, plans, run_experiment, sweep_file

CHOICES = [field.name for field in fields(plans.Choices)]
"""Options that choose what is run."""

EPILOG = """\
examples:
  rosetta run --frameworks pytorch,keras --devices 1,2
                                           train in two frameworks on one device, then on two
  rosetta run --devices 1,2,4,8 --repeats 3 --dry-run
                                           list the runs of a night and estimate their time
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


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "run",
        help="train in every framework and compare (default: all GPUs)",
        epilog=EPILOG,
    )
    _add_what(parser)
    _add_devices(parser)
    _add_training(parser)
    _add_experiment(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the experiment; the exit code."""
    choices = {name: getattr(given, name) for name in CHOICES if getattr(given, name) is not None}
    how = {"dry_run": given.dry_run, "stall_minutes": given.hang_timeout}
    if given.resume is not None:
        asked = [name for name in (*CHOICES, "name", "sweep") if getattr(given, name) is not None]
        if asked:
            option = asked[0].replace("_", "-")
            raise UserError(f"--resume continues an experiment as it was: leave out --{option}")
        return run_experiment.run(None, resume=given.resume, **how)
    sweeps = [] if given.sweep is None else [sweep_file.read(given.sweep)]
    merged = sweep_file.merged(choices, sweeps)
    recipe = str(merged.get("recipe", "auto"))
    if recipe.endswith(".toml"):
        sweeps.append(sweep_file.of_recipe(file_of(recipe)))
        merged = sweep_file.merged(merged, sweeps[-1:])
    name = merged.pop("name", None)  # a name is no part of a plan
    of_command = [*choices, *(["recipe"] if recipe.endswith(".toml") else [])]  # it names its file
    with sweep_file.located(sweeps, of_command):
        plan = plans.make_plan(**merged)
    return run_experiment.run(plan, name=name if given.name is None else given.name, **how)


def _add_what(parser: Parser) -> None:
    words = {row.word: row.optional for row in sorted(ROWS, key=attrgetter("optional"))}
    group = parser.add_argument_group("what to train")
    group.add_argument(
        "--frameworks",
        type=listed,
        metavar="NAME,...",
        help=f"train in these frameworks: {', '.join(words)} (default: all but the last "
        f"{sum(words.values())})",
    )
    group.add_argument(
        "--notebooks",
        type=listed,
        metavar="NAME,...",
        help="run these notebooks instead of --frameworks; 'rosetta notebooks' lists the names "
        "(default: the notebooks of --frameworks)",
    )
    group.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help="train the network, images and settings of this recipe; 'rosetta recipes' lists the "
        "names (default: chexnet on GPUs, demo on CPUs)",
    )
    group.add_argument(
        "--data",
        metavar="FOLDER",
        help="train on the images in FOLDER (default: the images prepared under data/; if there "
        "are no such images, generated images)",
    )


def _add_devices(parser: Parser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--devices",
        "--nproc-per-node",
        type=listed,
        metavar="N,...",
        help="train on N devices of each node, with one run for each number (default: all GPUs, or "
        "two CPU devices)",
    )
    group.add_argument(
        "--nnodes",
        type=listed,
        metavar="N,...",
        help="train on N nodes, with one run for each number; without --launcher hosts or a Slurm "
        "job, the nodes are simulated on this machine (default: 1)",
    )
    group.add_argument(
        "--launcher",
        metavar="mpiexec:HOST,...",
        help="name the machines of several nodes (default: the nodes of a Slurm job, else this "
        "machine)",
    )
    group.add_argument(
        "--cores-per-device",
        metavar="N",
        help="give each CPU device N cores; 'shared' lets every device use all cores, and the run "
        "is not ranked (default: all cores divided by the largest number in --devices)",
    )
    group.add_argument(
        "--loader-cores",
        metavar="PLACE",
        help="place the loader workers of CPU devices: 'device' uses the device's cores, 'own' "
        "separate cores, 'siblings' second hardware threads (default: the recipe's)",
    )


def _add_training(parser: Parser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", metavar="N", help="train N epochs (default: the recipe's)")
    group.add_argument(
        "--batch-size",
        metavar="N",
        help="train with N images per device, and scale the learning rate by the recipe's rule "
        "(default: the recipe's)",
    )
    group.add_argument(
        "--num-workers",
        metavar="N",
        help="start N loader workers for each device (default: the CPU cores per device, 8 at "
        "most)",
    )
    group.add_argument(
        "--precision",
        type=listed,
        metavar="NAME,...",
        help="compute in fp32, tf32, bf16 or fp16, with one run for each (default: auto, which is "
        "tf32 on GPUs that have it, and fp32 elsewhere)",
    )
    group.add_argument(
        "--execution",
        type=listed,
        metavar="NAME,...",
        help="execute steps eager or compiled, with one run for each (default: as the recipe "
        "says, or else as is usual for the framework)",
    )
    group.add_argument(
        "--warmup-epochs",
        metavar="N",
        help="raise the learning rate step by step over N epochs (default: the recipe's)",
    )
    group.add_argument(
        "--seeds",
        "--seed",
        type=listed,
        metavar="N,...",
        help="seed the split, weights and augmentation, with one run for each seed (default: 0)",
    )


def _add_experiment(parser: Parser) -> None:
    group = parser.add_argument_group("experiment")
    group.add_argument(
        "--name", help="write the experiment to runs/NAME (default: the date and time)"
    )
    group.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="repeat every run N times; tables then show median and range (default: 1)",
    )
    group.add_argument(
        "--sweep",
        metavar="FILE",
        help="read options from a TOML file, which the command line overrides. docs/experiments.md "
        "describes it (default: the recipe's [sweep], if the recipe is a file)",
    )
    group.add_argument(
        "--resume",
        nargs="?",
        const=experiments.LATEST,
        metavar="NAME",
        help="continue an experiment: keep its finished runs and resume the others (default: the "
        "last experiment)",
    )
    group.add_argument(
        "--hang-timeout",
        type=minutes,
        default=hangs.MINUTES,
        metavar="MINUTES",
        help="end a run that has taken no step and printed nothing for MINUTES; 0 never ends a run "
        f"(default: {hangs.MINUTES:g})",
    )
    group.add_argument(
        "--dry-run",
        action="store_true",
        help="list the runs and estimate their time, without starting a run",
    )
