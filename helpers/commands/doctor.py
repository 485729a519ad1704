"""``rosetta doctor``: check each framework on the devices of this machine and print a table."""

import argparse
import platform
from pathlib import Path

from helpers import paths
from helpers.commands.parser import Commands, command, options
from helpers.errors import UserError, unknown
from helpers.frameworks import ROWS, cpu_cores, devices
from helpers.frameworks.devices import Devices
from helpers.record import run_identity
from helpers.runner import locks, self_test, shutdown
from helpers.terminal import say, table

EPILOG = """\
examples:
  rosetta doctor                             check every environment on all GPUs
  rosetta doctor --environments pytorch,mxnet --devices 1,2
                                             check two environments on one device, then on two

Exit codes: 0 every check passed; 1 a check failed.
"""
LOGS = ".self-test"


def run(given: argparse.Namespace) -> int:
    """Describe the machine, run all self-tests, print the table and return the exit code."""
    known = list(dict.fromkeys(row.kernel for row in ROWS if row.kernel == row.module))
    names = dict.fromkeys(given.environments or known)
    for name in names:
        if name not in known:
            raise UserError(unknown("environment", name, known))
    _describe_machine()
    sets = dict.fromkeys(devices.resolve(count, cpu_cores.SHARED) for count in given.devices)
    with locks.only_one(), shutdown.in_order():
        found = [_test(name, on) for name in names for on in sets]
    for name, versions in {each.kernel: each.versions for each in found if each.versions}.items():
        say(f"{name}: " + ", ".join(f"{what} {version}" for what, version in versions.items()))
    rows = [
        [each.kernel, each.devices.short, "failed" if each.reason else f"{each.seconds:.1f} s"]
        for each in found
    ]
    say(f"\n{table(['environment', 'devices', 'check'], rows)}\n")
    bad = [each for each in found if each.reason]
    failed = [f"{each.kernel}, {each.devices.short}: {each.reason}" for each in bad]
    failed += [f"{paths.RUNS / LOGS} has the details"] * bool(bad)
    for line in failed or ["Everything works."]:
        # Without folder names that contain the user's name.
        say(line.replace(f"{paths.ROOT}/", "").replace(f"{Path.home()}/", "~/"))
    return 1 if failed else 0


def _describe_machine() -> None:
    about = devices.hardware()
    rows = {
        "commit": run_identity.commit() or "unknown",
        "system": about["platform"],
        "Python": platform.python_version(),
        "CPU": f"{about['cpu']}, {about['cores']} cores, {about['memory_bytes'] / 2**30:.0f} GiB",
        "driver": about["driver"] or "none",
        "GPUs": ", ".join(about["gpus"]) or "none",
    }
    say("\n".join(f"{what:6}  {value}" for what, value in rows.items()))


def _test(name: str, on: Devices) -> self_test.Outcome:
    say(f"testing {name} on {on.short}", error=True)
    log = paths.RUNS / LOGS / f"{name}-{on.count}x.log"
    return self_test.test(name, on, devices.visible()[: on.count], log=log)


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "doctor",
        help="check frameworks on devices, and print a table for a bug report",
        epilog=EPILOG,
    )
    table = {
        "--environments NAME,...": "check these environments (default: all)",
        "--devices N,...": "check N devices, with one check for each number (default: all GPUs, or "
        "two CPU devices)",
    }
    options(parser, table)
    parser.set_defaults(run=run, devices=["auto"])
