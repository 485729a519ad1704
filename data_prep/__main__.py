"""Run the command line of data_prep: `data-prep …`, or `python -m data_prep …`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from data_prep.command_line import Version, parser
from data_prep.errors import BROKEN_PIPE_EXIT_CODE, DataError, printable

__all__ = ["Version", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    It is 0, 1 (`verify` found a problem), 2 (a user error), 130 (Ctrl-C) or 141 (`… | head`).
    """
    _open_streams()
    try:
        try:
            options = parser().parse_args(arguments)
        except SystemExit:  # from argparse, after the help or an error is printed
            sys.stdout.flush()
            raise
        code: int = options.run(options)
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
        where = error.filename or (
            "standard output" if _working_folder_exists() else "the working folder"
        )
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


def _open_streams() -> None:
    """Open the null device for each standard stream that is closed (`>&-`).

    Characters that standard output cannot encode are printed as escapes.
    """
    for name in ("stdin", "stdout", "stderr"):
        if (
            getattr(sys, name) is None
        ):  # in this order each stream gets its usual number, the lowest free
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115, PTH123 (until we end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Redirect standard output to the null device, so that Python reports no error at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _working_folder_exists() -> bool:
    with contextlib.suppress(OSError):
        return bool(os.getcwd())  # noqa: PTH109
    return False


if __name__ == "__main__":
    sys.exit(main())
