"""``make probe``: what each kernel can do on each device here, as a table for a bug report."""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from helpers import paths
from helpers.errors import UserError, exits_cleanly
from helpers.probe import outside
from helpers.progress import say

EXAMPLES = """\
examples:
  make probe                                     every kernel, on all GPUs (or two virtual CPU
                                                 devices where there is none)
  make probe ARGS="--kernels pytorch,mxnet --devices 1,2"
  python -m helpers.probe --here pytorch         PyTorch in this Python, without 'make envs'

Exit code: 0 everything works, 1 something does not, 2 a mistake in the command, 130 Ctrl-C.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (``sys.argv`` by default); returns the exit code."""
    return exits_cleanly(_main)(sys.argv[1:] if arguments is None else arguments)


def _main(arguments: Sequence[str]) -> int:
    _parser().parse_args(arguments)
    say("not yet")
    return 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{message} (--help shows all options)")

    def print_help(self, file: object = None) -> None:
        say(self.format_help())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m helpers.probe",
        description="Try the layers and the all-reduce of each kernel on each device, and say what "
        "works on which versions and hardware.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--kernels",
        type=_list,
        metavar="NAME,...",
        help="which of them (default: all that have a framework)",
    )
    which.add_argument(
        "--here",
        type=_list,
        metavar="NAME,...",
        help="these frameworks in this very Python, not in the kernels' environments",
    )
    parser.add_argument(
        "--devices",
        type=_list,
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


def _list(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError("give at least one")
    return list(dict.fromkeys(parts))


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
