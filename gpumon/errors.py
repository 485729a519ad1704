"""The one error that gpumon raises for what its user can put right, and texts fit to be shown."""

import contextlib
from collections.abc import Iterator


def printable(text: object) -> str:
    """The text on one line, with escapes for whatever a terminal would act on or cannot show."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in " ".join(str(text).splitlines())
    )


class MonitorError(Exception):
    """What is wrong, where, and how to put it right, in one printable line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """For imports of what a recorder need not have: MonitorError names the package that is missing.

    what: the command or method that needs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise MonitorError(
            f"{what} needs {package}, which this environment does not have: pip install {package}"
        ) from error
