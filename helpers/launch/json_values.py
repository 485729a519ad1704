"""Encode the values that ranks exchange as JSON: numbers, texts, arrays and dataclasses.

Nothing that is read here can run code, as a pickle could.
"""

import base64
import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

OURS = "helpers."
"""Packages of which the dataclasses and named tuples are known."""


def encode(value: Any) -> Any:
    """``value`` as ``json.dumps`` takes it; a ``TypeError`` says what ranks cannot exchange."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encode(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {"kind": kind, "npy": base64.b64encode(file.getvalue()).decode()}
    if isinstance(value, Mapping):
        return {"kind": "dict", "items": [[encode(k), encode(v)] for k, v in value.items()]}
    names = _names(value)
    if names is None and isinstance(value, tuple | set):
        return {"kind": type(value).__name__, "items": [encode(each) for each in value]}
    if names is None or not type(value).__module__.startswith(OURS):
        raise TypeError(f"ranks cannot exchange a value of type {type(value).__name__}")
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    return {"kind": kind, "fields": {name: encode(getattr(value, name)) for name in names}}


def decode(said: Any) -> Any:
    """The value that :func:`encode` made ``said`` of."""
    if isinstance(said, list):
        return [decode(each) for each in said]
    if not isinstance(said, dict):
        return said
    kind = said["kind"]
    if kind in ("array", "number"):
        array = np.load(io.BytesIO(base64.b64decode(said["npy"])), allow_pickle=False)
        return array if kind == "array" else array[()]
    if kind == "dict":
        return {decode(key): decode(value) for key, value in said["items"]}
    if kind in ("tuple", "set"):
        return {"tuple": tuple, "set": set}[kind](decode(each) for each in said["items"])
    module, _, name = kind.partition(":")
    if not module.startswith(OURS) or "." in name:
        raise ValueError(f"no rank sends a {kind!r}")
    made = getattr(import_module(module), name)
    if not isinstance(made, type) or not (is_dataclass(made) or issubclass(made, tuple)):
        raise ValueError(f"no rank sends a {kind!r}")
    return made(**{field: decode(value) for field, value in said["fields"].items()})


def _names(value: Any) -> tuple[str, ...] | None:
    """A dataclass's or a named tuple's fields; None of anything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value._fields)
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in fields(value))
    return None
