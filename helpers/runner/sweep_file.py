"""A sweep in a TOML file: the command's options under the same names.

Every mistake is answered with the file, the line and what would be right.
"""

import difflib
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.errors import UserError

EXAMPLES = {
    "frameworks": '["pytorch", "keras"]',
    "notebooks": '["PyTorch_MultiGPU"]',
    "devices": "[1, 2, 4, 8]",
    "precision": '["fp32"]',
    "seeds": "[0, 1, 2]",
    "gpus": "1",
    "repeats": "3",
    "recipe": '"chexnet"',
    "data": '"data/nih-264"',
    "epochs": "5",
    "batch_size": "64",
    "workers": "8",
    "warmup_epochs": "0.5",
    "name": '"overnight"',
}
"""The keys, and what each may be given."""
LISTS = ("frameworks", "notebooks", "devices", "precision", "seeds")
LARGEST = 2**20
"""Characters; a file that is no sweep is not read to its end."""
BATCH = "'batch' is two things: 'name' for the folder, 'batch_size' for images per device"

_CONVERT = (
    'import json, sys, yaml; [print({"batch": "name"}.get(k, k), "=", '
    "json.dumps(v, ensure_ascii=False)) "
    'for k, v in yaml.safe_load(open(sys.argv[1])).items() if k != "inputs"]'
)


@dataclass(frozen=True)
class Sweep:
    """What a file says; ``choices`` are called as ``plans.make_plan`` calls them, and ``name``."""

    path: Path
    choices: dict[str, Any]
    text: str

    def where(self, key: str) -> str:
        """``sweep.toml, line 3``: where the key stands; the file alone where it does not."""
        return _where(self.path, self.text, key)

    def beside(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The choices, with those ``given`` on the command line in their place."""
        chosen = dict(self.choices)
        if "notebooks" in given or "frameworks" in given:
            chosen.pop("notebooks", None)
            chosen.pop("frameworks", None)
        return chosen | dict(given)


def read(path: str | Path) -> Sweep:
    """What a sweep's file says.

    Raises:
        UserError: it cannot be read, is no TOML, or says something a sweep does not know.
    """
    path = Path(os.path.expanduser(path))  # noqa: PTH111 (it never fails)
    text = _text(path)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if path.suffix.lower() in (".yaml", ".yml") or _looks_like_yaml(text):
            raise UserError(_convert(path)) from None
        raise UserError(_not_toml(path, text, error)) from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; endless brackets
        raise UserError(f"{path}: not TOML that can be read: {type(error).__name__}") from None
    if not content:
        raise UserError(f"{path}: nothing in it; a sweep is lines like 'devices = [1, 2]'")
    return Sweep(path, {key: _value(path, text, key, content[key]) for key in content}, text)


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig") as file:  # a pipe from a shell is welcome
            text = file.read(LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise UserError(f"{path}: the sweep cannot be read: {why}") from None
    if len(text) > LARGEST:
        raise UserError(f"{path}: too large for a sweep, which is a few lines")
    if re.search(r"(?:[^.=,{\n]{1,40}\.){64}", text):  # memory by the square of their number
        raise UserError(f"{path}: too many dots for a sweep, whose keys have none")
    return text


def _value(path: Path, text: str, key: str, value: Any) -> Any:
    where = _where(path, text, key)
    if key == "batch":
        raise UserError(f"{where}: {BATCH}")
    if key not in EXAMPLES:
        near = difflib.get_close_matches(key, EXAMPLES, n=1, cutoff=0.7)
        hint = f"did you mean '{near[0]}'?" if near else f"the keys are {', '.join(EXAMPLES)}"
        raise UserError(f"{where}: unknown key '{key}': {hint}")
    return _list(where, key, value) if key in LISTS else _one(where, key, value)


def _list(where: str, key: str, value: Any) -> list[Any]:
    """A list, also where only one is given, or several with commas as on the command line."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    items = value if isinstance(value, list) else [value]
    if not items or not all(_is_plain(item) for item in items):
        raise UserError(
            f"{where}: '{key}' takes a list of names or numbers, such as {EXAMPLES[key]}"
        )
    return items if key in ("devices", "seeds") else [str(item) for item in items]


def _one(where: str, key: str, value: Any) -> Any:
    if not _is_plain(value) and not (key == "warmup_epochs" and isinstance(value, float)):
        raise UserError(f"{where}: '{key}' takes one value, such as {EXAMPLES[key]}")
    if key == "data":
        return str(Path(os.path.expanduser(str(value))))  # noqa: PTH111 (it never fails)
    return str(value) if key in ("recipe", "name", "gpus") else value


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _where(path: Path, text: str, key: str) -> str:
    """The file, and the line that sets a key, if any does: ``tomllib`` tells no lines."""
    sets = rf"""^[ \t]*\[*[ \t]*["']?{re.escape(key)}["']?[ \t]*[=.\]]"""
    found = re.search(sets, text, re.MULTILINE)
    if found is None:
        return str(path)
    before = text[: found.start()].count("\n")
    return f"{path}, line {before + 1}"


def _not_toml(path: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    """What ``tomllib`` says, with the line in front and what would be right at the end."""
    problem, _, at = str(error).partition(" (at ")
    found = re.match(r"line (\d+)", at)
    number = int(found[1]) if found else text.rstrip().count("\n") + 1
    if "overwrite" in problem:  # the value's end is told, and it may have begun lines before
        while number > 1 and not re.match(_SETS, text.split("\n")[number - 1]):
            number -= 1
    key = text.split("\n")[number - 1].partition("=")[0].strip()
    right = f"{key} = {EXAMPLES[key]}" if key in EXAMPLES else 'recipe = "demo" or devices = [1, 2]'
    if "overwrite" in problem:
        return f"{path}, line {number}: '{key}' stands there twice: keep one"
    return f"{path}, line {number}: not TOML: {problem}; write a line such as {right}"


_SETS = r"""[ \t]*(\[|["'\w][^=\n]*=)"""
"""The beginning of a line that sets a key, or of a table's header."""


def _looks_like_yaml(text: str) -> bool:
    """Whether its first line that says something is one like ``devices: [1, 2]``, or ``---``."""
    said = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return re.match(r"""---|[ \t]*["']?\w+["']?[ \t]*:(\s|$)""", next(said, "")) is not None


def _convert(path: Path) -> str:
    """That it is YAML, and the line for a shell that makes TOML of it, in a file of its own."""
    target, number = path.with_suffix(".toml"), 2
    while target.exists():
        target, number = path.with_name(f"{path.stem}-{number}.toml"), number + 1
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    words = [str(python), "-c", _CONVERT, str(path)]
    return (
        f"{path}: YAML, but a sweep is TOML; this line makes {target.name} of it: "
        f"{shlex.join(words)} > {shlex.quote(str(target))}"
    )
