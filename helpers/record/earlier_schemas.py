"""Convert records of earlier schemas to the current schema.

Schema 1 was of DenseNet121 and of findings alone. Schema 2 had other words. What is no record is
left as it is, for the check that follows to say so.
"""

from typing import Any

from helpers.recipe import digest_now
from helpers.record.types import SCHEMA

_SHARES = {"synchronisation": "communication"}
_KEYS = {
    "": {
        "silent": "no_allreduce",
        "probe": "self_test",
        "world": "cluster",
        "neighbours": "other_processes",
    },
    "run": {"batch": "experiment"},
    "cluster": {"virtual": "simulated", "parts": "step_parts"},
    "recipe": {
        "resized": "image_size",
        "colour": "color_mode",
        "batch": "batch_size",
        "global_batch": "global_batch_size",
        "scaling": "lr_scaling",
        "drop_by": "lr_gamma",
        "drop_epochs": "lr_milestones",
        "targets": "quality_targets",
        "small": "demo",
    },
    "recipe/options": {"shares": "split", "valid": "val_fraction"},
    "data": {"workers": "loader_workers", "patients": "groups"},
    "attribution/shares": _SHARES,
    "attribution/intervals": _SHARES,
    "attribution/agreement": _SHARES,
    "attribution/ways/steps": _SHARES,
    "attribution/ways/ablation": _SHARES,
    "test/confusions": {"taken_for": "predicted_as"},
}
"""New names of fields, by where they are and the name in schema 2; lists have no level."""
_VALUES = {
    "recipe/task": {"findings": "multilabel", "classes": "multiclass"},
    "recipe/weights": {"seeded": "random"},
    "recipe/color_mode": {"grey": "grayscale"},
    "weights/source": {"seeded": "random"},
    "fairness/checks/verdict": {"known": "expected"},
    "skipped/what": {"overlapped synchronisation": "overlapped communication"},
}
"""New texts, by where they are, now, and the text in schema 2."""
_OF_SCHEMA_1 = {"task": "findings", "network": "densenet121"}
"""What all were trained on."""


def upgraded(content: Any) -> Any:
    """A record of an earlier schema as one of this; any other as it is."""
    was = content.get("schema") if isinstance(content, dict) else None
    if was not in (1, 2) or was is True:
        return content
    found = _renamed(content, "") | {"schema": SCHEMA}
    if isinstance(given := content.get("recipe"), dict):
        found["recipe"] = recipe(_OF_SCHEMA_1 | given if was == 1 else given)
    return found


def recipe(given: dict[str, Any]) -> dict[str, Any]:
    """A recipe as a record of schema 2 has it, or a checkpoint of that time."""
    found: dict[str, Any] = _renamed(given, "recipe")
    if found.get("optimizer") == "momentum":
        found["optimizer"] = "sgd"
    elif "momentum" in found:  # which the others did not use
        found["momentum"] = 0.0
    return found


def checkpoint(given: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of its run; one of that time does not say of which schema it is."""
    if "schema" in given:
        return given
    about = recipe(given["about"])
    if isinstance(about.get("sha256"), str):
        about["sha256"] = digest_now(about["sha256"])
    epochs = {name: _renamed(given.get(name), "epochs") for name in ("history", "part")}
    return given | {"about": about} | epochs


def _renamed(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return [_renamed(item, where) for item in value]
    if isinstance(value, str):
        return _VALUES.get(where, {}).get(value, value)
    if not isinstance(value, dict):
        return value
    names = _KEYS.get(where, {})
    return {
        names.get(key, key): _renamed(item, f"{where}/{names.get(key, key)}".lstrip("/"))
        for key, item in value.items()
    }
