"""Read a TOML file of settings, and find the line of each setting for error messages.

``tomllib`` reports no lines. Every mistake gives the file, the line and the fix; the reader names
the kind of file (a recipe, a sweep).
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.errors import UserError

LARGEST = 2**20
"""Characters; a file of something else is not read to its end."""


@dataclass(frozen=True)
class TomlFile:
    """What a file says: ``content`` as ``tomllib`` has it, and its whole ``text``."""

    path: Path
    text: str
    content: dict[str, Any]

    def where(self, *keys: str) -> str:
        """``sweep.toml, line 3``: where a key, or a key of a table, stands; else the file alone."""
        line = _line(self.text, keys)
        return str(self.path) if line is None else f"{self.path}, line {line}"

    def without(self, *tables: str) -> str:
        """The text without the lines of these tables; all of it where they stand in another form.

        What is left says of everything else what the whole text says: that is tried.
        """
        kept, inside = [], False
        for line in self.text.splitlines(keepends=True):
            if header := re.match(_HEADER, line):
                inside = _names(header[1])[:1] in {(table,) for table in tables}
            kept += [] if inside else [line]
        left = "".join(kept)
        whole = tomllib.loads(self.text)
        others = {key: value for key, value in whole.items() if key not in tables}
        try:
            same = tomllib.loads(left) == others
        except tomllib.TOMLDecodeError:  # it had been the middle of a text of several lines
            same = False
        return left if same else self.text


def load(path: str | Path, what: str, examples: Mapping[str, str], right: str) -> TomlFile:
    """What the file at ``path`` says.

    ``what`` it is to be is for the message, and so are for each key an example, and lines that are
    ``right``.

    Raises:
        UserError: it cannot be read, or is not TOML.
    """
    path = Path(os.path.expanduser(path))  # noqa: PTH111 (it never fails)
    text = _text(path, what)
    try:
        return TomlFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        if path.suffix.lower() in (".yaml", ".yml") or _looks_like_yaml(text):
            raise UserError(
                f"{path}: YAML, but a {what} is TOML: write lines such as {right}"
            ) from None
        raise UserError(_not_toml(path, text, error, examples, right)) from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; endless brackets
        raise UserError(f"{path}: not valid TOML: {type(error).__name__}") from None


def _text(path: Path, what: str) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:  # a pipe from a shell is welcome
            text = file.read(LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise UserError(f"{path}: the {what} cannot be read: {why}") from None
    if len(text) > LARGEST:
        raise UserError(f"{path}: too large for a {what}, which has a few lines")
    if re.search(r"(?:[^.=,{\n]{1,40}\.){64}", text):  # memory by the square of their number
        raise UserError(f"{path}: too many dots in the keys of a {what}")
    return text


def _line(text: str, keys: tuple[str, ...]) -> int | None:
    """The first line that sets a key: under its table's header, dotted, or within braces."""
    table: tuple[str, ...] = ()
    around: int | None = None  # the line of the innermost table, for a key within braces
    for number, line in enumerate(text.split("\n"), start=1):
        header = re.match(_HEADER, line)
        if header:
            table = _names(header[1])
            if table[: len(keys)] == keys:
                return number
        elif setting := re.match(rf"[ \t]*({_NAME}(?:[ \t]*\.[ \t]*{_NAME})*)[ \t]*=", line):
            named = (*table, *_names(setting[1]))
            if named[: len(keys)] == keys:
                return number
            if around is None and keys[: len(named)] == named:
                around = number
    return around


_HEADER = r"[ \t]*\[{1,2}([^\]]*)\]"
_NAME = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_NAME, dotted))


def _not_toml(
    path: Path, text: str, error: tomllib.TOMLDecodeError, examples: Mapping[str, str], right: str
) -> str:
    """What ``tomllib`` says, with the line in front and what would be right at the end."""
    problem, _, at = str(error).partition(" (at ")
    found = re.match(r"line (\d+)", at)
    number = int(found[1]) if found else text.rstrip().count("\n") + 1
    if "overwrite" in problem:  # reported where the value ends; it may begin lines above
        while number > 1 and not re.match(_SETS, text.split("\n")[number - 1]):
            number -= 1
    key = text.split("\n")[number - 1].partition("=")[0].strip()
    right = f"{key} = {examples[key]}" if key in examples else right
    if "overwrite" in problem or "declare" in problem or "redefine" in problem:
        return f"{path}, line {number}: '{key}' is given twice: keep one"
    return f"{path}, line {number}: not TOML: {problem}; write a line such as {right}"


_SETS = r"""[ \t]*(\[|["'\w][^=\n]*=)"""
"""The beginning of a line that sets a key, or of a table's header."""


def _looks_like_yaml(text: str) -> bool:
    """Whether its first line that says something is one like ``devices: [1, 2]``, or ``---``."""
    said = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return re.match(r"""---|[ \t]*["']?\w+["']?[ \t]*:(\s|$)""", next(said, "")) is not None
