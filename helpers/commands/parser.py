"""Parse the command line of all subcommands, with error messages of one line."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, TypeAlias

from helpers.errors import UserError
from helpers.terminal import say

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class Parser(argparse.ArgumentParser):
    """Report a mistake in one line, and a closed output pipe as an error."""

    def __init__(self, **how: Any) -> None:
        # With abbreviations, --batch would mean --batch-size, and a new option could break scripts.
        super().__init__(**how, allow_abbrev=False)

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{message} ({self.prog} --help shows all options)")

    def print_help(self, file: object = None) -> None:
        say(self.format_help())  # argparse ignores a closed output pipe

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """The arguments; here, because argparse gives a subcommand's to its own parser."""
        given, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return given, unknown


def command(commands: Commands, name: str, **how: Any) -> Parser:
    """A subcommand's parser; its ``help`` is its ``description`` too, unless that is given."""
    text = how["help"]
    how.setdefault("description", f"{text[0].upper()}{text[1:]}.")
    return commands.add_parser(name, formatter_class=argparse.RawDescriptionHelpFormatter, **how)


def options(group: Any, table: Mapping[str, str], **kinds: Callable[[str], Any]) -> None:
    """Add options: ``--devices N,...``, which is a list, or ``--json`` without a value; and help.

    ``kinds`` are the types of other values, by the word that stands for them.
    """
    for option, text in table.items():
        name, _, value = option.partition(" ")
        how: dict[str, Any] = {"action": "store_true"}
        if value:
            kind = listed if value in ("N,...", "NAME,...") else kinds.get(value, str)
            how = {"metavar": value, "type": kind}
        group.add_argument(name, help=text, **how)


def listed(text: str) -> list[str]:
    """The parts of an option's value between its commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise argparse.ArgumentTypeError("give at least one value")
    return parts


def minutes(text: str) -> float:
    """A finite number from 0."""
    with suppress(ValueError):
        if 0 <= float(text) < inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"'{text}': give minutes, 0 or more")
