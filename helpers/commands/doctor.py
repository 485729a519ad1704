"""``rosetta doctor``: check each framework on each device of this machine and print a table."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from helpers import paths
from helpers.commands.parser import Commands, command, listed, number
from helpers.errors import UserError, unknown
from helpers.frameworks import NOTEBOOKS, cpu_cores, devices, installed, optional_kernels
from helpers.frameworks.devices import Devices
from helpers.runner import locks, plans, shutdown
from helpers.runner.plans import counted
from helpers.runner.self_test import expected, machine, starting
from helpers.runner.self_test.starting import Outcome, numbered
from helpers.terminal import Line, say, table

WHAT = ("start", *expected.LAYERS, expected.ALL_REDUCE)

EPILOG = """\
examples:
  rosetta doctor                             check every environment on all GPUs
  rosetta doctor --environments pytorch,mxnet --devices 1,2
                                             check two environments on one device, then on two
  python -m helpers doctor --here pytorch    check PyTorch in this Python, without 'make envs'

Exit codes: 0 every check passed; 1 a check failed.
"""


def run(given: argparse.Namespace) -> int:
    """Run all self-tests, print the table and return the exit code."""
    names = _chosen(given)
    try:
        sets = [devices.resolve(count, "auto", cpu_cores.SHARED) for count in given.devices]
    except devices.DriverError as error:
        say(machine.plain(_table([], str(error))))
        return 1
    with locks.only_one(), shutdown.in_order(), Line(sys.stderr) as line:
        found = [_self_test(name, on, given, line) for name in names for on in dict.fromkeys(sets)]
    say(machine.plain(_table(found)))
    return 0 if all(outcome.reason is None for outcome in found) else 1


def _chosen(given: argparse.Namespace) -> list[str]:
    """The requested environments, else the default ones and every optional one that is installed.

    With ``--here`` the names are those of the frameworks' modules.
    """
    if given.here:
        known, asked, what = list(NOTEBOOKS), given.here, "framework"
    else:
        kernels = dict.fromkeys(kernel for _, kernel in plans.framework_notebooks().values())
        known = [kernel for kernel in kernels if kernel in NOTEBOOKS]
        extra = optional_kernels()
        made = [name for name in known if name not in extra or installed.problem(name) is None]
        asked, what = given.environments or made, "environment"
    for name in asked:
        if name not in known:
            raise UserError(unknown(what, name, known))
    return list(dict.fromkeys(asked))


def _self_test(name: str, on: Devices, given: argparse.Namespace, line: Line) -> Outcome:
    line.show(f"testing {name} on {on.short}")
    log = given.logs / f"{name}-{on.count}x.log"
    log.unlink(missing_ok=True)
    found = starting.test(
        name,
        on,
        devices.used(on.count, on.gpus),
        mark=log.resolve(),  # not the logs' folder: another experiment may run below it
        log=log,
        limit=given.limit,
        here=bool(given.here),
    )
    named = found.reason and log.exists() and f"{found.reason} ({log} has the details)"
    return replace(found, reason=named or found.reason)


def _table(found: Sequence[Outcome], broken: str | None = None) -> str:
    """The machine, the versions, the seconds of each step, and the reason of each failure.

    ``broken`` is why the driver does not start; then no environment was tested.
    """
    about = machine.rows()
    width = max(len(what) for what, _ in about)
    lines = [f"{what:{width}}  {value}" for what, value in about]
    if broken is not None:
        return "\n".join([*lines, "", f"No environment was tested: {broken}"])
    for kernel, versions in {each.kernel: each.versions for each in found}.items():
        if versions:
            said = ", ".join(f"{what} {version}" for what, version in versions.items())
            lines.append(f"{kernel}: {said}")
    header = ["environment", "devices", "device", *WHAT]
    cells = []
    for outcome in found:
        for place, name in enumerate(outcome.devices):
            count, named = str(len(outcome.devices)), numbered(place, name)
            cells.append([outcome.kernel, count, named, *_cells(outcome, place)])
    failed = [
        f"{outcome.kernel}, {counted(len(outcome.devices), 'device')}: {outcome.reason}"
        for outcome in found
        if outcome.reason is not None
    ]
    ending = failed or ["Everything works: every result was the expected one."]
    return "\n".join([*lines, "", table(header, cells), "", *ending])


def _cells(outcome: Outcome, device: int) -> list[str]:
    """The time of each step on a device, ``failed``, or ``-`` if the step was not reached."""
    said = dict.fromkeys(WHAT, "-")
    for step in outcome.steps:
        if step["device"] in (None, device):
            works = step["reason"] is None
            said[step["what"]] = f"{step['seconds']:.2f} s" if works else "failed"
    return list(said.values())


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "doctor",
        help="check frameworks on devices, and print a table for a bug report (default: all)",
        epilog=EPILOG,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--environments",
        type=listed,
        metavar="NAME,...",
        help="check these environments (default: all, and optional ones that are installed)",
    )
    which.add_argument(
        "--here",
        type=listed,
        metavar="NAME,...",
        help="check these frameworks in the current Python instead of their environments",
    )
    parser.add_argument(
        "--devices",
        "--nproc-per-node",
        type=listed,
        default=["auto"],
        metavar="N,...",
        help="check N devices, with one check for each number (default: all GPUs, or two CPU "
        "devices)",
    )
    parser.add_argument(
        "--limit",
        type=lambda text: number(text, "seconds", above=True),
        default=starting.LIMIT_SECONDS,
        metavar="SECONDS",
        help=f"end a check after this many seconds (default: {starting.LIMIT_SECONDS:g})",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        default=paths.RUNS / ".self-test",
        metavar="FOLDER",
        help="write the output of each check to FOLDER (default: runs/.self-test)",
    )
    parser.set_defaults(run=run)
