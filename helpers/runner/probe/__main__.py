"""``make probe``: what each kernel can do on each device here, as a table for a bug report."""

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from helpers import paths
from helpers.errors import UserError, exits_cleanly
from helpers.frameworks import NOTEBOOKS, cpu_cores, devices, installed, optional_kernels
from helpers.frameworks.devices import Devices
from helpers.runner import kernel_processes, locks, plans, stopping
from helpers.runner.options import Parser, listed
from helpers.runner.probe import known, machine, outside
from helpers.runner.probe.outside import Outcome, numbered
from helpers.terminal import Line, say, table

WHAT = ("start", *known.LAYERS, known.ALL_REDUCE)

EXAMPLES = """\
examples:
  make probe                                     every kernel, on all GPUs (or two virtual CPU
                                                 devices where there is none)
  make probe ARGS="--kernels pytorch,mxnet --devices 1,2"
  python -m helpers.runner.probe --here pytorch         PyTorch in this Python, without 'make envs'

Exit code: 0 everything works, 1 something does not, 2 a mistake in the command, 130 Ctrl-C.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (``sys.argv`` by default); returns the exit code."""
    return exits_cleanly(_main)(sys.argv[1:] if arguments is None else arguments)


def _main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    names = _chosen(given)
    try:
        sets = [devices.resolve(number, "auto", cpu_cores.SHARED) for number in given.devices]
    except devices.DriverError as error:
        say(machine.plain(_table([], str(error))))
        return 1
    with locks.only_one(), stopping.in_order(), Line(sys.stderr) as line:
        found = [_probe(name, on, given, line) for name in names for on in dict.fromkeys(sets)]
    say(machine.plain(_table(found)))
    return 0 if all(outcome.reason is None for outcome in found) else 1


def _chosen(given: argparse.Namespace) -> list[str]:
    """The kernels that were asked for, else all that are made unasked or are there.

    With ``--here`` the frameworks' modules.
    """
    if given.here:
        known, asked, what = list(NOTEBOOKS), given.here, "framework"
    else:
        kernels_named = dict.fromkeys(kernel for _, kernel in plans.framework_notebooks().values())
        known = [kernel for kernel in kernels_named if kernel in NOTEBOOKS]
        extra = optional_kernels()
        made = [name for name in known if name not in extra or installed.problem(name) is None]
        asked, what = given.kernels or made, "kernel"
    for name in asked:
        if name not in known:
            raise UserError(f"unknown {what} '{name}': the {what}s are {', '.join(known)}")
    return list(dict.fromkeys(asked))


def _probe(name: str, on: Devices, given: argparse.Namespace, line: Line) -> Outcome:
    """One kernel on one set of devices; one that cannot be tried says why."""
    line.show(f"probing {name} on {on.short}")
    gpus = devices.used(on.count, on.gpus)
    if given.here:
        paths_of = [str(paths.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        python, environment = sys.executable, {**os.environ, "PYTHONPATH": ":".join(paths_of)}
    elif problem := installed.problem(name, gpus):
        return Outcome(name, on.names, 0.0, problem)
    else:
        python, environment = outside.start_of(name)
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
    log = given.logs / f"{name}-{on.count}x.log"
    found = outside.run(
        name,
        on.kind,
        on.names,
        python=python,
        # Not the folder of the logs: a batch that runs below that is somebody else's.
        environment=environment | {kernel_processes.MARK: str(log.resolve())},
        log=log,
        limit=given.limit,
    )
    return replace(found, reason=found.reason and f"{found.reason} ({log} has the details)")


def _table(found: Sequence[Outcome], broken: str | None = None) -> str:
    """The machine, the versions, what works in how many seconds, and what does not and why.

    Where the driver is ``broken`` no kernel was probed, and this says why.
    """
    about = machine.rows()
    width = max(len(what) for what, _ in about)
    lines = [f"{what:{width}}  {value}" for what, value in about]
    if broken is not None:
        return "\n".join([*lines, "", f"No kernel was probed: {broken}"])
    told = {outcome.kernel: outcome.versions for outcome in found if outcome.versions}
    lines += [
        f"{kernel}: " + ", ".join(f"{what} {version}" for what, version in versions.items())
        for kernel, versions in told.items()
    ]
    header = ["kernel", "devices", "device", *WHAT]
    cells = [
        [
            outcome.kernel,
            str(len(outcome.devices)),
            numbered(number, name),
            *_cells(outcome, number),
        ]
        for outcome in found
        for number, name in enumerate(outcome.devices)
    ]
    failed = [
        f"{outcome.kernel}, {outside.of(outcome.devices)}: {outcome.reason}"
        for outcome in found
        if outcome.reason is not None
    ]
    ending = failed or ["Everything works: each result was the known one."]
    return "\n".join([*lines, "", table(header, cells), "", *ending])


def _cells(outcome: Outcome, device: int) -> list[str]:
    """Of each step how long it took on a device, or that it failed or was not come to."""
    said = dict.fromkeys(WHAT, "-")
    for step in outcome.steps:
        if step["device"] in (None, device):
            works = step["reason"] is None
            said[step["what"]] = f"{step['seconds']:.2f} s" if works else "failed"
    return list(said.values())


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m helpers.runner.probe",
        description="Try the layers and the all-reduce of each kernel on each device, and say what "
        "works on which versions and hardware.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.help_by = "--help"
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--kernels",
        type=listed,
        metavar="NAME,...",
        help="which of them (default: all that have a framework)",
    )
    which.add_argument(
        "--here",
        type=listed,
        metavar="NAME,...",
        help="these frameworks in this very Python, not in the kernels' environments",
    )
    parser.add_argument(
        "--devices",
        type=listed,
        default=["auto"],
        metavar="N,...",
        help="on how many devices, one probe for each number (default: auto, all there are)",
    )
    parser.add_argument(
        "--limit",
        type=_seconds,
        default=outside.LIMIT_SECONDS,
        metavar="SECONDS",
        help=f"end a probe that takes longer (default: {outside.LIMIT_SECONDS:g})",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        default=paths.RUNS / ".probe",
        metavar="FOLDER",
        help="where each probe's own output goes (default: runs/.probe)",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}': give seconds, more than 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
