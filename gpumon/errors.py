"""The one error that gpumon raises for what its user can put right, and texts fit to be shown."""


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
