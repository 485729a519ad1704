"""The command line: `data-prep …`, or `python -m data_prep …`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from data_prep.arguments import Version, parse
from data_prep.errors import BROKEN_PIPE_EXIT_CODE, DataError, printable

__all__ = ["Version", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    It is 0, 1 (`verify` found a problem), 2 (a user error), 130 (Ctrl-C) or 141 (`… | head`).
    """
    _open_streams()
    try:
        try:
            options = parse(sys.argv[1:] if arguments is None else arguments)
        except SystemExit:  # argparse's, once it has printed the help
            sys.stdout.flush()
            raise
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except DataError as error:
        print(f"data-prep: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as in `data-prep … | head`
        _discard_output()
        return BROKEN_PIPE_EXIT_CODE
    except OSError as error:  # the disk is full, read-only or gone, or nothing can be printed
        _discard_output()
        where = error.filename or (
            "standard output" if _working_folder_exists() else "the working folder"
        )
        print(
            f"data-prep: {printable(os.fsdecode(where))}: {error.strerror or error}; what is done"
            " is kept, put that right and run the same command again",
            file=sys.stderr,
        )
        return 2
    except MemoryError:
        print("data-prep: not enough memory; try again with fewer --num-workers", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "data-prep: interrupted; what is done is kept, run the same command again to continue",
            file=sys.stderr,
        )
        return 130


def _open_streams() -> None:
    """Give a process that was started without some of its streams (`>&-`) others, which lead
    nowhere, and have those it has print any name: what they cannot encode becomes an escape."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # in this order each gets its own number, the lowest free
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115, PTH123 (until we end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Keep Python from complaining at its end of what it could not print."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _working_folder_exists() -> bool:
    """Whether the folder this runs in is still there."""
    with contextlib.suppress(OSError):
        return bool(os.getcwd())  # noqa: PTH109
    return False


if __name__ == "__main__":
    sys.exit(main())
