"""Define the errors whose message is for the user, and end commands with that one line."""

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper

from data_prep.errors import BROKEN_PIPE_EXIT_CODE, DataError, did_you_mean, printable
from gpumon.errors import MonitorError

INTERRUPTED = 130
"""Exit code after Ctrl-C, SIGTERM or a closed terminal, as shells have it."""
GO_ON = 75
"""Exit code of an experiment that SIGUSR1 stopped after an epoch or a run, and that can be resumed
(sysexits: a temporary failure)."""
STDOUT = "standard output"
"""The name of standard output in error messages."""


class Plain(Exception):
    """An error that a notebook shows as its message, without the traceback that led to it."""

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows; errors of ``data_prep`` and ``gpumon`` do the same."""
        return str(self).splitlines()


class UserError(Plain):
    """An error that the user can fix: the message says what is wrong, where, and what to do."""


class LoaderError(UserError):
    """A loader of the notebook gave fewer batches or images than were asked for."""


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """``unknown key 'epoch': did you mean 'epochs'?``; without a similar name, all known names."""
    hint = did_you_mean(name, known, f"the {what}s are {', '.join(known)}")
    return f"unknown {what} '{name}': {hint}"


class UnsupportedError(UserError):
    """The framework cannot do what was asked for: the run is skipped, it has not failed."""


class Interrupted(Plain, KeyboardInterrupt):
    """The user has interrupted what ran; the message says how to continue."""


FOR_USERS = UserError, DataError, MonitorError
"""The errors whose message tells the user in one line what to do."""


def in_a_line(error: BaseException) -> str:
    """An error's kind and its text's first line; and its last, if it has another's traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    said = lines[0] + (f" {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else "")
    return printable(f"{type(error).__name__}: {said}"[:500].removesuffix(": "))


def exit_code(main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """A command's; an error that a user can fix becomes one line on stderr and 2, Ctrl-C 130.

    Errors of the operating system (a full disk, a read-only folder) are treated the same way. A
    KeyboardInterrupt may have another ``code``. A command whose output pipe is closed
    (``rosetta run --help | head``) ends without a line, with exit code 141.
    """
    try:
        if sys.stdout is None:
            raise UserError("standard output is closed: send it to a file or to /dev/null")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # else what it cannot show would end us
                stream.reconfigure(errors="backslashreplace")
        try:
            code = main(arguments)
        except SystemExit:  # argparse's, once it has printed the help
            _flush()
            raise
        _flush()
        return code
    except FOR_USERS as error:
        return _ended(2, f"error: {error}")
    except OSError as error:
        if isinstance(error, BrokenPipeError) and error.filename in (None, STDOUT):
            return _ended(BROKEN_PIPE_EXIT_CODE)
        return _ended(2, f"error: {refusal(error)}")
    except KeyboardInterrupt as asked:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # nothing is left but to end
        code = getattr(asked, "code", INTERRUPTED)
        return _ended(code, str(asked) or "interrupted: what was finished is kept")


def refusal(error: OSError) -> str:
    """``runs/b/experiment.json: No space left on device``."""
    what, where = error.strerror or str(error), error.filename2 or error.filename
    return f"{where}: {what}" if where else what


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Add ``what`` to a system error without a file name, as errors of writing are."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(what)) from error


def _flush() -> None:
    with naming(STDOUT):
        sys.stdout.flush()


def _ended(code: int, line: str | None = None) -> int:
    """Print the last line, and close streams that would make Python fail at exit."""
    with suppress(OSError):  # the line cannot be printed; the exit code remains
        if sys.stderr is not None and line is not None:
            print(printable(line), file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code
