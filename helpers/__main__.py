"""Run the command ``rosetta``: train with every framework and compare the measurements."""

import argparse
import sys
from collections.abc import Sequence

from data_prep.__main__ import Version
from helpers.commands import doctor, reports, run
from helpers.commands.parser import Commands, Parser
from helpers.errors import UserError, exit_code, unknown

DESCRIPTION = """\
Train the same network in every framework, and compare speed, accuracy and waiting times.
"""

EPILOG = """\
start here:
  rosetta run                      train in every framework on all GPUs (without a GPU: on two CPU
                                   devices)
  rosetta run --frameworks pytorch,jax --devices 1,2
                                   train in two frameworks on one device, then on two
  rosetta open                     open the last experiment's report in a browser
  rosetta COMMAND --help           show a command's options, with examples

Exit codes: 0 success; 1 a run failed or a result changed; 2 a mistake in the command or its input.
'rosetta run --help' lists the exit codes of an interrupted experiment.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (``sys.argv`` by default); returns the exit code."""
    return exit_code(_main, sys.argv[1:] if arguments is None else arguments)


def _main(arguments: Sequence[str]) -> int:
    parser, commands = build()
    if not arguments:
        parser.print_help()
        return 2
    first = arguments[0]
    if not first.startswith("-"):
        if first not in commands.choices:
            what = unknown("command", first, commands.choices)
            raise UserError(f"{what} (rosetta --help lists them)")
    elif first.partition("=")[0] not in parser._option_string_actions:
        raise UserError(f"{first} is an option of a command: did you mean 'rosetta run {first}'?")
    given = parser.parse_args(arguments)
    code: int = given.run(given)
    return code


def build() -> tuple[Parser, Commands]:
    """The parser of ``rosetta``, and its subcommands."""
    parser = Parser(
        prog="rosetta",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (run, reports, doctor):
        module.add(commands)
    return parser, commands


if __name__ == "__main__":
    sys.exit(main())
