"""What the commands' options have in common."""

import argparse
from typing import Any

from helpers.errors import UserError
from helpers.terminal import say


class Parser(argparse.ArgumentParser):
    """Answers a mistake with one line, and its help with an error where nobody reads it."""

    help_by = ""
    """What shows its help; empty: its own name with ``--help``."""

    def __init__(self, **how: Any) -> None:
        # Else --batch would be --batch-size, and each new option could change what a script says.
        super().__init__(**how, allow_abbrev=False)

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{message} ({self.help_by or f'{self.prog} --help'} shows all options)")

    def print_help(self, file: object = None) -> None:
        say(self.format_help())  # argparse's own says nothing where nobody reads it


def listed(text: str) -> list[str]:
    """The parts of an option's value between its commas.

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError("give at least one")
    return parts
