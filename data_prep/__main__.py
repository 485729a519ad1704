"""Run the command line of data_prep: `data-prep …`, or `python -m data_prep …`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from data_prep import command_line
from data_prep.errors import BROKEN_PIPE_EXIT_CODE, DataError, printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    It is 0, 1 (`verify` found a problem), 2 (a user error), 130 (Ctrl-C) or 141 (`… | head`).
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # what cannot be encoded is printed as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            given = command_line.parser().parse_args(arguments)
        except SystemExit:  # from argparse, after the help or an error is printed
            sys.stdout.flush()
            raise
        code = command_line.run(given)
        sys.stdout.flush()
        return code
    except DataError as error:
        print(f"data-prep: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:  # one that only the environment `lab` has
        print(f"data-prep: install {error.name}, or use .venvs/lab/bin/data-prep", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the program that reads our output has ended, as in `… | head`
        _discard_output()
        return BROKEN_PIPE_EXIT_CODE
    except OSError as error:  # the disk is full, read-only or gone, or nothing can be printed
        _discard_output()
        where = error.filename or "standard output"
        print(
            f"data-prep: {printable(os.fsdecode(where))}: {error.strerror or error};"
            " finished images are kept, fix this error and run the same command again",
            file=sys.stderr,
        )
        return 2
    except MemoryError:
        print(
            "data-prep: not enough memory; run the same command again with fewer --num-workers",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(
            "data-prep: interrupted; finished images are kept, run the same command again to"
            " continue",
            file=sys.stderr,
        )
        return 130


def _discard_output() -> None:
    """Redirect standard output to the null device, so that Python reports no error at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
