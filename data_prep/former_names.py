"""Former names of subcommands, options and keys, each with the name that replaced it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from data_prep.errors import DataError, printable

COMMANDS = {"demo": "generate", "catalog": "stats"}

OPTIONS = {
    "--only-present": "--skip-missing",
    "--originals": "--keep-originals",
    "--no-decode": "--quick",
    "--drop-leaks": "--drop-duplicates",
    "--nih-lists": "--official-split",
    "--fit": "--resize-mode, and its value crop is now center-crop",
    "--workers": "--num-workers",
    "--images": "--num-images",
    "--colour": "--rgb",
    "--color": "--rgb",
}

OPTIONS_OF = {"generate": {"--format": "--layout"}}
"""Former options of one subcommand, which others still have."""


class Key(NamedTuple):
    """The name of a key today, and its values today by their former names."""

    name: str
    values: Mapping[str, str] = {}


TABLE_KEYS = {
    "part": Key("split"),
    "form": Key("label_format"),
    "none": Key("no_finding"),
    "others": Key("handle_unknown", {"refuse": "error"}),
}
"""Former keys of `table.toml`."""

PREPARED_KEYS = {"fit": Key("resize_mode", {"crop": "center-crop"})}
"""Former keys of `prepared.json`."""


def refuse_former_names(words: Sequence[str]) -> None:
    """Raise `DataError` with the new name if a command line contains a former name."""
    if words and words[0] in COMMANDS:
        raise DataError(f"the subcommand {words[0]} is now {COMMANDS[words[0]]}")
    for word in words:
        if word == "--":
            return
        option = word.partition("=")[0]
        if name := (OPTIONS | OPTIONS_OF.get(words[0], {})).get(option):
            raise DataError(f"{option} is now {name}")


def with_current_keys(
    content: Mapping[str, Any], renamed: Mapping[str, Key], where: str
) -> dict[str, Any]:
    """The content of a file with its former keys replaced; a line on stderr names each new key."""
    current = dict(content)
    for former, key in renamed.items():
        if former not in current:
            continue
        if key.name in current:
            raise DataError(
                f"{where}: '{former}' is now '{key.name}', and both are there; remove '{former}'"
            )
        value = current.pop(former)
        current[key.name] = key.values.get(value, value) if isinstance(value, str) else value
        _announce(where, former, key.name)
    return current


@cache
def _announce(where: str, former: str, name: str) -> None:
    print(printable(f"note: {where}: '{former}' is now '{name}'"), file=sys.stderr)
