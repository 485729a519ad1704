"""Records and checkpoints of earlier schemas are read as if they had this one's names."""

import json
from pathlib import Path
from typing import Any

import pytest
import records

from helpers import paths, record
from helpers.errors import UserError
from helpers.recipe import RECIPES, renamed
from helpers.record import earlier_schemas
from helpers.record.earlier_schemas import upgraded

OLD = {
    "schema": 2,
    "run": {"batch": "b", "notebook": "n"},
    "probe": {"devices": ["a"]},
    "world": {"nodes": 2, "virtual": True, "parts": [{"rank": 0, "all_reduce": 0.1}]},
    "neighbours": {"processes": [], "reason": None},
    "recipe": {
        "name": "mine",
        "resized": 38,
        "colour": "grey",
        "batch": 8,
        "global_batch": 16,
        "scaling": "linear",
        "drop_by": 0.1,
        "drop_epochs": [2],
        "targets": [0.5],
        "small": True,
        "task": "findings",
        "optimizer": "momentum",
        "momentum": 0.9,
        "weights": "seeded",
        "scaled_learning_rate": 0.1,
        "options": {"shares": [0.7, 0.1, 0.2], "valid": 0.1, "group": "x"},
    },
    "data": {"workers": 4, "patients": {"train": 1, "valid": 1, "test": 1}},
    "weights": {"source": "seeded", "sha256": "0"},
    "fairness": {"checks": [{"check": "a", "verdict": "known"}, {"verdict": "pass"}]},
    "epochs": [{"epoch": 1}],
    "test": {"confusions": [{"class": "a", "taken_for": "b"}], "classes": []},
    "attribution": {
        "shares": {"compute": 0.9, "synchronisation": 0.1},
        "intervals": {"synchronisation": [0.0, 0.2]},
        "ways": {"steps": {"synchronisation": None, "data": 0.0}},
        "agreement": {"synchronisation": {"difference": 0.0, "agree": True}},
        "sentence": "as it was",
    },
    "skipped": [{"what": "overlapped synchronisation", "reason": "why"}],
    "training": {"seconds": 1.0},
}
NEW = {
    "schema": 3,
    "run": {"experiment": "b", "notebook": "n"},
    "self_test": {"devices": ["a"]},
    "cluster": {"nodes": 2, "simulated": True, "step_parts": [{"rank": 0, "all_reduce": 0.1}]},
    "other_processes": {"processes": [], "reason": None},
    "recipe": {
        "name": "mine",
        "image_size": 38,
        "color_mode": "grayscale",
        "batch_size": 8,
        "global_batch_size": 16,
        "lr_scaling": "linear",
        "lr_gamma": 0.1,
        "lr_milestones": [2],
        "quality_targets": [0.5],
        "demo": True,
        "task": "multilabel",
        "optimizer": "sgd",
        "momentum": 0.9,
        "weights": "random",
        "scaled_learning_rate": 0.1,
        "options": {"split": [0.7, 0.1, 0.2], "val_fraction": 0.1, "group": "x"},
    },
    "data": {"loader_workers": 4, "groups": {"train": 1, "valid": 1, "test": 1}},
    "weights": {"source": "random", "sha256": "0"},
    "fairness": {"checks": [{"check": "a", "verdict": "expected"}, {"verdict": "pass"}]},
    "epochs": [{"epoch": 1}],
    "test": {"confusions": [{"class": "a", "predicted_as": "b"}], "classes": []},
    "attribution": {
        "shares": {"compute": 0.9, "communication": 0.1},
        "intervals": {"communication": [0.0, 0.2]},
        "ways": {"steps": {"communication": None, "data": 0.0}},
        "agreement": {"communication": {"difference": 0.0, "agree": True}},
        "sentence": "as it was",
    },
    "skipped": [{"what": "overlapped communication", "reason": "why"}],
    "training": {"seconds": 1.0},
}


def test_every_name_of_the_second_schema_has_its_new_one() -> None:
    before = json.dumps(OLD)
    assert upgraded(OLD) == NEW
    assert json.dumps(OLD) == before, "nothing in it is changed"
    assert upgraded(NEW) is NEW


def test_a_record_of_the_first_schema_is_read_as_one_of_this(tmp_path: Path) -> None:
    now = records.make(no_allreduce=records.rounds(150.0))
    old = {"silent" if name == "no_allreduce" else name: now[name] for name in now} | {"schema": 1}
    old["recipe"] = {
        key: value for key, value in now["recipe"].items() if key not in ("task", "network")
    }
    (tmp_path / record.FILE).write_text(json.dumps(old), encoding="utf-8")
    assert record.read(tmp_path) == now
    (tmp_path / record.FILE).write_text(json.dumps(old | {"schema": 3}), encoding="utf-8")
    with pytest.raises(UserError, match="does not fit the schema"):
        record.read(tmp_path)


@pytest.mark.parametrize(
    ("optimizer", "momentum", "now"),
    [("sgd", 0.9, ("sgd", 0.0)), ("adam", 0.9, ("adam", 0.0)), ("momentum", 0.5, ("sgd", 0.5))],
)
def test_a_momentum_that_no_rule_used_is_none(
    optimizer: str, momentum: float, now: tuple[str, float]
) -> None:
    found = earlier_schemas.recipe({"optimizer": optimizer, "momentum": momentum})
    assert (found["optimizer"], found["momentum"]) == now


@pytest.mark.parametrize("strange", [None, 7, "text", [], {"a": 1}, [None, 7, [1]]])
@pytest.mark.parametrize("section", [name for name in OLD if name != "schema"])
def test_a_section_that_is_none_is_left_to_the_schema(section: str, strange: Any) -> None:
    for schema in (1, 2):
        found = upgraded(OLD | {"schema": schema, section: strange})
        assert found["schema"] == 3
    assert upgraded(strange) == strange


@pytest.mark.parametrize("field", ["checks", "shares", "ways", "confusions", "options"])
def test_a_field_that_is_none_is_left_to_the_schema(field: str) -> None:
    homes = {"checks": "fairness", "confusions": "test", "options": "recipe"}
    section = homes.get(field, "attribution")
    for strange in (None, 7, "text", [None]):
        assert upgraded({"schema": 2, section: {field: strange}})[section] == {field: strange}


@pytest.mark.parametrize("schema", [True, "2", None, 2.5, [2], 4])
def test_what_is_of_no_earlier_schema_is_left_as_it_is(schema: Any) -> None:
    content = {"schema": schema, "world": {}}
    assert upgraded(content) is content


def test_the_published_records_are_read() -> None:
    found = sorted((paths.ROOT / "docs" / "results").glob("*/*/*/record.json"))
    assert len(found) > 100
    for path in found[::10]:
        assert json.loads(path.read_text(encoding="utf-8"))["schema"] == 2
        content = record.read(path)
        assert content["schema"] == 3 and content["state"] == "finished"
        assert {"batch_size", "lr_scaling", "quality_targets"} <= content["recipe"].keys()


def test_a_checkpoint_of_that_time_says_what_one_of_now_does() -> None:
    digest = next(digest for digest, name in renamed.DIGESTS.items() if name == "demo")
    said = {
        "about": OLD["recipe"] | {"sha256": digest, "images": "i", "framework": "f"},  # type: ignore[operator]
        "history": OLD["epochs"],
        "part": {"steps": 1},
    }
    found = earlier_schemas.checkpoint(said)
    assert found == {
        "about": NEW["recipe"]  # type: ignore[operator]
        | {"sha256": RECIPES["demo"].sha256, "images": "i", "framework": "f"},
        "history": NEW["epochs"],
        "part": {"steps": 1},
    }
    now = found | {"schema": 3}
    assert earlier_schemas.checkpoint(now) is now
