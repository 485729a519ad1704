"""A sweep in a YAML file: the command's options under the same names, as lists.

Every mistake is answered with the file, the line and what would be right.
"""

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.errors import UserError

LISTS = ("frameworks", "notebooks", "devices", "precision", "inputs", "seeds")
SINGLE = ("gpus", "repeats", "recipe", "data", "warmup_epochs", "batch")
KEYS = (*LISTS, *SINGLE)
LARGEST = 2**20
"""Characters; a file that is no sweep is not read to its end."""


def read(path: str | Path) -> dict[str, Any]:
    """The choices in the file, by the names that ``plans.make_plan`` gives them, and ``batch``.

    Raises:
        UserError: it cannot be read, is no YAML, or says something a sweep does not know.
    """
    path = Path(path).expanduser()
    try:
        import yaml
    except ImportError:
        raise UserError(
            "PyYAML is not in this Python: run .venvs/lab/bin/compare after 'make envs'"
        ) from None
    try:
        with path.open(encoding="utf-8") as file:  # a pipe from a shell is welcome
            text = file.read(LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise UserError(f"{path}: the sweep cannot be read: {why}") from None
    if len(text) > LARGEST:
        raise UserError(f"{path}: too large for a sweep, which is a few lines")
    try:
        loader = yaml.SafeLoader(text)
        top = loader.get_single_node()
        if not isinstance(top, yaml.MappingNode):
            raise UserError(f"{path}: a sweep is lines like 'devices: [1, 2]'; keys: {_keys()}")
        return _choices(path, top, loader.construct_object)
    except yaml.YAMLError as error:
        at = getattr(error, "problem_mark", None)
        where = f"{path}, line {at.line + 1}" if at else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{where}: not YAML: {problem}") from None
    except (ValueError, RecursionError) as error:  # a date of 31 February; brackets without end
        raise UserError(f"{path}: not YAML that can be read: {type(error).__name__}") from None


def merged(file: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The file's choices with those of the command line in their place."""
    chosen = dict(file)
    if "notebooks" in given or "frameworks" in given:
        chosen.pop("notebooks", None)
        chosen.pop("frameworks", None)
    return chosen | given


def _choices(path: Path, top: Any, value_of: Callable[..., Any]) -> dict[str, Any]:
    choices: dict[str, Any] = {}
    for key_node, node in top.value:
        where = f"{path}, line {key_node.start_mark.line + 1}"
        key = str(key_node.value)
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"the keys are {_keys()}"
            raise UserError(f"{where}: unknown key '{key}': {hint}")
        if key in choices:
            raise UserError(f"{where}: '{key}' stands there twice: keep one")
        value = value_of(node, deep=True)
        choices[key] = _list(where, key, value) if key in LISTS else _one(where, key, value)
    return choices


def _list(where: str, key: str, value: Any) -> list[Any]:
    """A list, also where only one is given, or several with commas as on the command line."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    items = value if isinstance(value, list) else [value]
    if not items or not all(_is_plain(item) for item in items):
        raise UserError(
            f"{where}: '{key}' takes a list of names or numbers, such as {_EXAMPLE[key]}"
        )
    if key in ("devices", "seeds"):
        return items
    return [str(item) for item in items]


def _one(where: str, key: str, value: Any) -> Any:
    if not _is_plain(value) and not (key in _NUMBERS and isinstance(value, float)):
        raise UserError(f"{where}: '{key}' takes one value, such as {_EXAMPLE[key]}")
    if key == "data":
        return str(Path(str(value)).expanduser())
    return value if key in _NUMBERS else str(value)


_NUMBERS = ("repeats", "warmup_epochs")


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _keys() -> str:
    return ", ".join(KEYS)


_EXAMPLE = {
    "frameworks": "[pytorch, keras]",
    "notebooks": "[PyTorch_MultiGPU]",
    "devices": "[1, 2, 4, 8]",
    "gpus": "1",
    "precision": "[fp32]",
    "inputs": "[real, synthetic]",
    "seeds": "[0, 1, 2]",
    "repeats": "3",
    "recipe": "chexnet",
    "data": "data/nih-264",
    "warmup_epochs": "0.5",
    "batch": "overnight",
}
