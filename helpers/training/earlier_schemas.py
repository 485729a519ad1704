"""Convert records of earlier schemas to the current schema.

Schema 1 was of DenseNet121 and of findings alone. Schema 2 had other words for much: which,
``upgraded`` says. What is no record is left as it is, for the schema to say so.
"""

from collections.abc import Callable, Mapping
from typing import Any

from helpers.recipe import digest_now

SCHEMA = 3
"""The version that is written."""

Names = Mapping[str, str]

_SECTIONS = {
    "silent": "no_allreduce",
    "probe": "self_test",
    "world": "cluster",
    "neighbours": "other_processes",
}
_RECIPE = {
    "resized": "image_size",
    "colour": "color_mode",
    "batch": "batch_size",
    "global_batch": "global_batch_size",
    "scaling": "lr_scaling",
    "drop_by": "lr_gamma",
    "drop_epochs": "lr_milestones",
    "targets": "quality_targets",
    "small": "demo",
}
_VALUES = {
    "task": {"findings": "multilabel", "classes": "multiclass"},
    "weights": {"seeded": "random"},
    "color_mode": {"grey": "grayscale"},
}
_SHARES = {"synchronisation": "communication"}
_OF_SCHEMA_1 = {"task": "findings", "network": "densenet121"}
"""What all were trained on."""


def upgraded(content: Any) -> Any:
    """A record of an earlier schema as one of this; any other as it is."""
    was = content.get("schema") if isinstance(content, dict) else None
    if was not in (1, 2) or was is True:
        return content
    found = _renamed(content, _SECTIONS) | {"schema": SCHEMA}
    in_it: dict[str, Callable[[Any], Any]] = {
        "run": lambda run: _renamed(run, {"batch": "experiment"}),
        "cluster": lambda it: _renamed(it, {"virtual": "simulated", "parts": "step_parts"}),
        "recipe": lambda it: recipe(_OF_SCHEMA_1 | it if was == 1 and isinstance(it, dict) else it),
        "data": lambda data: _renamed(data, {"workers": "loader_workers", "patients": "groups"}),
        "weights": lambda weights: _valued(weights, "source", _VALUES["weights"]),
        "fairness": lambda it: _each(it, "checks", _check),
        "epochs": lambda rows: _rows(rows, epoch),
        "attribution": _attribution,
        "skipped": lambda rows: _rows(rows, _skipped),
        "test": lambda test: _each(
            test, "confusions", lambda row: _renamed(row, {"taken_for": "predicted_as"})
        ),
    }
    return {name: in_it.get(name, _as_it_is)(section) for name, section in found.items()}


def recipe(said: Any) -> Any:
    """A recipe as a record of schema 2 has it, or a checkpoint of that time."""
    if not isinstance(said, dict):
        return said
    found = _renamed(said, _RECIPE)
    for key, values in _VALUES.items():
        found = _valued(found, key, values)
    options = _renamed(found.get("options"), {"shares": "split", "valid": "val_fraction"})
    found |= {} if options is None else {"options": options}
    if found.get("optimizer") == "momentum":
        found["optimizer"] = "sgd"
    elif "momentum" in found:  # which the others did not use
        found["momentum"] = 0.0
    return found


def epoch(said: Any) -> Any:
    """An epoch's row of that time, or what a checkpoint says of a part of one."""
    return _renamed(said, {"sync_seconds": "communication_seconds"})


def checkpoint(said: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of its run; one of that time does not say of which schema it is."""
    if "schema" in said:
        return said
    about = recipe(said["about"])
    if isinstance(about.get("sha256"), str):
        about["sha256"] = digest_now(about["sha256"])
    rows = _rows(said.get("history"), epoch)
    return said | {"about": about, "history": rows, "part": epoch(said.get("part"))}


def _check(said: Any) -> Any:
    return _valued(said, "verdict", {"known": "expected"})


def _skipped(said: Any) -> Any:
    return _valued(said, "what", {"overlapped synchronisation": "overlapped communication"})


def _attribution(said: Any) -> Any:
    found = said
    for part in ("shares", "intervals", "agreement"):
        found = _with(found, part, lambda it: _renamed(it, _SHARES))
    return _with(found, "ways", _ways)


def _ways(said: Any) -> Any:
    if not isinstance(said, dict):
        return said
    return {way: _renamed(shares, _SHARES) for way, shares in said.items()}


def _renamed(said: Any, names: Names) -> Any:
    if not isinstance(said, dict):
        return said
    return {names.get(key, key): value for key, value in said.items()}


def _valued(said: Any, key: str, values: Names) -> Any:
    return _with(
        said, key, lambda value: values.get(value, value) if isinstance(value, str) else value
    )


def _each(said: Any, key: str, change: Callable[[Any], Any]) -> Any:
    return _with(said, key, lambda rows: _rows(rows, change))


def _rows(said: Any, change: Callable[[Any], Any]) -> Any:
    return [change(row) for row in said] if isinstance(said, list) else said


def _with(said: Any, key: str, change: Callable[[Any], Any]) -> Any:
    if not isinstance(said, dict) or key not in said:
        return said
    return said | {key: change(said[key])}


def _as_it_is(said: Any) -> Any:
    return said
