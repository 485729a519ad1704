"""``rosetta run``: train with every framework, each in its own environment, and compare."""

import argparse
from collections.abc import Sequence
from typing import Any

from helpers.commands.parser import Commands, Parser, command, listed, number
from helpers.errors import UserError
from helpers.recipe import file_of
from helpers.runner import experiments, hangs, plans, run_experiment, sweep_file
from helpers.runner.slurm import submit

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
    "num_workers",
    "warmup_epochs",
    "nnodes",
    "launcher",
    "cores_per_device",
    "loader_cores",
)
"""Options that choose what is run; a sweep's file has the same under the same names."""

EPILOG = """\
examples:
  rosetta run                                   the usual seven notebooks, on all GPUs (or on two
                                                CPU devices where there is none)
  rosetta run --frameworks pytorch,keras --devices 1,2
  rosetta run --devices 1,2,4,8 --repeats 3 --dry-run
                                                list an overnight experiment, and estimate its time
  rosetta run --epochs 1 --batch-size 16        a short trial; the report says that it differs
                                                from the recipe
  rosetta run --nnodes 1,2 --devices 1          one machine and two: simulated ones on a laptop
  rosetta run --devices 4 --gpus 1              4 replicas on one GPU: does the parallel path work?
  rosetta run --recipe mine.toml                your network or images (docs/recipes.md)
  rosetta run --sweep sweep.toml                these options, from a file (docs/sweeps.md)
  rosetta run --resume                          continue the last experiment

The same command continues an experiment that was cut short (Ctrl-C, a crash, a reboot).
Results: runs/latest/report.html, Compare.ipynb and, for each run, its notebook, record and trace.
Exit codes: 0 all runs finished, 1 a run failed or was skipped, 2 a mistake in the command or the
data, or a full disk, 75 stopped by SIGUSR1 (the same command continues), 130 Ctrl-C, SIGTERM or a
closed terminal.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "run", help="train with every framework, and compare", epilog=EPILOG)
    _add_what(parser)
    _add_devices(parser)
    _add_training(parser)
    _add_experiment(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the experiment; the exit code."""
    choices = {name: getattr(given, name) for name in CHOICES if getattr(given, name) is not None}
    how = {"dry_run": given.dry_run}
    if given.hang_timeout is not None:
        how["stall_minutes"] = given.hang_timeout
    if given.resume is not None:
        if choices or given.name is not None or given.sweep is not None:
            other = "name" if given.name is not None else "sweep"
            option = next(iter(choices), other).replace("_", "-")
            raise UserError(f"--resume continues an experiment as it was: leave out --{option}")
        return run_experiment.run(None, resume=given.resume, **how)
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
    return run_experiment.run(plan, name=name if given.name is None else given.name, **how)


def _merged(sweeps: Sequence[sweep_file.Sweep], choices: dict[str, Any]) -> dict[str, Any]:
    """The choices of the command line, then those of the first file, then of the second."""
    merged = choices
    for sweep in sweeps:
        merged = sweep.merged(merged)
    return merged


def _add_what(parser: Parser) -> None:
    group = parser.add_argument_group("what to train")
    group.add_argument(
        "--frameworks",
        type=listed,
        metavar="NAME,...",
        help="run all notebooks of these frameworks, such as pytorch,keras,keras-jax,horovod "
        "(default: every framework, without Horovod)",
    )
    group.add_argument(
        "--notebooks",
        type=listed,
        metavar="NAME,...",
        help="run these notebooks instead; 'rosetta notebooks' lists them",
    )
    group.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help="train by this recipe; 'rosetta recipes' lists them (default: chexnet on GPUs, demo "
        "on CPUs)",
    )
    group.add_argument(
        "--data",
        metavar="FOLDER",
        help="train on the images in FOLDER (default: the prepared images under data/, else "
        "generated ones)",
    )


def _add_devices(parser: Parser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument(
        "--devices",
        "--nproc-per-node",
        type=listed,
        metavar="N,...",
        help="use N devices on each node, one run for each number (default: all GPUs, or two CPU "
        "devices)",
    )
    group.add_argument(
        "--gpus",
        metavar="N",
        help="put the devices on N GPUs: fewer than devices are shared, and not ranked; 0 trains "
        "on CPU devices (default: one GPU per device)",
    )
    group.add_argument(
        "--nnodes",
        type=listed,
        metavar="N,...",
        help="use N nodes, one run for each number; without other machines they are simulated on "
        "this one (default: 1; docs/many-machines.md)",
    )
    group.add_argument(
        "--launcher",
        metavar="NAME",
        help="start the ranks of several nodes with mpiexec, mpiexec:HOST,HOST,..., srun or "
        "torchrun (default: srun in a Slurm allocation, else mpiexec)",
    )
    group.add_argument(
        "--cores-per-device",
        metavar="N",
        help="give each CPU device N cores; 'shared' lets all devices use all cores, and is not "
        "ranked (default: an equal part for the largest number of devices)",
    )
    group.add_argument(
        "--loader-cores",
        metavar="PLACE",
        help="run the loader workers of CPU devices on the cores of the 'device', on their 'own', "
        "or on 'siblings', the second hardware threads (default: the recipe's)",
    )


def _add_training(parser: Parser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", metavar="N", help="train for N epochs (default: the recipe's)")
    group.add_argument(
        "--batch-size",
        metavar="N|auto",
        help="put N images on each device per step; 'auto' finds the largest number that fits; "
        "the learning rate follows by the recipe's rule (default: the recipe's)",
    )
    group.add_argument(
        "--num-workers",
        metavar="N|auto",
        help="start N loader workers for each device; 'auto' measures the best number "
        "(default: by the CPU cores)",
    )
    group.add_argument(
        "--precision",
        type=listed,
        metavar="NAME,...",
        help="compute in fp32, tf32, bf16 or fp16, one run for each (default: fp32)",
    )
    group.add_argument(
        "--warmup-epochs",
        metavar="N",
        help="raise the learning rate over N epochs (default: the recipe's)",
    )
    group.add_argument(
        "--seeds",
        "--seed",
        type=_whole_numbers,
        metavar="N,...",
        help="seed the split, the weights and the augmentation, one run for each (default: 0)",
    )


def _add_experiment(parser: Parser) -> None:
    group = parser.add_argument_group("experiment")
    group.add_argument("--name", help="write to the folder runs/NAME (default: the time)")
    group.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="repeat every run N times; tables then show median and range (default: 1)",
    )
    group.add_argument(
        "--sweep",
        metavar="FILE",
        help="read options from a TOML file; options on the command line replace them",
    )
    group.add_argument(
        "--resume",
        nargs="?",
        const=experiments.LATEST,
        metavar="NAME",
        help="continue an experiment: keep finished runs, repeat the others (default: the last)",
    )
    group.add_argument(
        "--hang-timeout",
        type=lambda text: number(text, "minutes"),
        metavar="MINUTES",
        help="end a run that has taken no step and printed nothing for MINUTES "
        f"(default: {hangs.MINUTES:g}; 0: never)",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="list the runs and estimate their time; start none"
    )


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in listed(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}': give whole numbers") from None
