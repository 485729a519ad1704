"""Find fields of a record that contradict each other, which their types cannot detect.

A record may be untrusted, so the figures that a report adds up, ranks or looks up must agree.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.record import tasks
from helpers.record.sections import TRAINED, arithmetic
from helpers.record.tasks import MULTICLASS, TASKS, Task
from helpers.record.types import Record

_ROUNDED = 1e-6
_AFTER_START = ("devices", "recipe", "hardware")
_WHEN_FINISHED = (
    *("data", "weights", "fairness", "epochs", "training", "test", "synthetic", "loader"),
    *("attribution", "monitor"),
)
_TESTED = {
    "multilabel": {"mean_auc", "findings"},
    "multiclass": {
        *("top1", "top1_low", "top1_high", "top5", "top5_low", "top5_high"),
        *("classes", "confusions"),
    },
}
"""The fields of the section ``test`` that each task has, and no other."""


def first(content: Record) -> tuple[str, str] | None:
    """The first field that contradicts others, and how; None where all fit."""
    return next(_all(content), None)


def _all(content: Record) -> Iterator[tuple[str, str]]:
    state = content["state"]
    required = _AFTER_START + (_WHEN_FINISHED if state == "finished" else ())
    if state in ("skipped", "failed"):
        required = ("reason",)
    for name in required:
        if content.get(name) in (None, ""):
            yield name, f"it is missing, although the state is {state}"
    recipe = content.get("recipe")
    if recipe and recipe.get("optimizer") == "sgd" and "momentum" not in recipe:
        yield "recipe/momentum", "it is missing, although `optimizer` is sgd"
    if recipe and "lr_milestones" in recipe and "lr_gamma" not in recipe:
        yield "recipe/lr_gamma", "it is missing, although there are lr_milestones"
    energy = content.get("energy", {})
    if energy.get("joules") is not None and energy.get("images_per_joule") is None:
        yield "energy/images_per_joule", "it is missing, although joules is known"
    task = tasks.of(recipe or {})
    validated = {each.name: {metric.of_epoch for metric in each.metrics} for each in TASKS.values()}
    for number, epoch in enumerate(content.get("epochs", [])):
        if problem := _fields(epoch, validated, task):
            yield f"epochs/{number}", problem
        elif task is MULTICLASS:
            yield from _order(f"epochs/{number}", epoch["valid_top1"], epoch["valid_top5"])
    yield from _arithmetic(content)
    if (test := content.get("test")) is None:
        return
    if "sample" in test and "resamples" not in test:
        yield "test/resamples", "they are missing, although there is a sample"
    if problem := _fields(test, _TESTED, task):
        yield "test", problem
    elif task is MULTICLASS:
        yield from _order("test", test["top1"], test["top5"])
        yield from _classes(test)
        yield from _confusions(test)


def _fields(given: Mapping[str, Any], of_tasks: Mapping[str, set[str]], task: Task) -> str | None:
    """What is missing of the fields of a task, or is of another."""
    for name in sorted(of_tasks[task.name] - given.keys()):
        return f"{name} is missing, although the recipe's task is {task.name}"
    for name in sorted(given.keys() & set().union(*of_tasks.values()) - of_tasks[task.name]):
        return f"{name} is there, although the recipe's task is {task.name}"
    return None


def _arithmetic(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = content.get("arithmetic")
    if found is None:
        return
    rounds = found["product"]["rounds"]
    if any(len(content.get(kind, {}).get("rounds", ())) != len(rounds) for kind in TRAINED):
        yield "arithmetic/product/rounds", "there are more or fewer in files or synthetic"
        return
    given = {key: found[key] for key in ("size", "dtype", "flops_per_image")}
    again = arithmetic(rounds, **given, measured=content)
    for part in ("product", *TRAINED):
        there, wanted = found.get(part, {}), again.get(part, {})
        if there.keys() != wanted.keys() or any(
            not math.isclose(there[key], wanted[key], rel_tol=_ROUNDED)
            for key in wanted.keys() - {"rounds"}
        ):
            yield f"arithmetic/{part}", "it is not what its rounds and FLOPs come to"


def _order(where: str, top1: float, top5: float | None) -> Iterator[tuple[str, str]]:
    if top5 is not None and top5 < top1 - _ROUNDED:
        yield where, f"top-5 ({top5:g}) is less than top-1 ({top1:g})"


def _classes(test: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows = test["classes"]
    if len({row["class"] for row in rows}) < len(rows):
        yield "test/classes", "a class is listed twice"
    for number, row in enumerate(rows):
        if row["right"] > row["images"]:
            yield f"test/classes/{number}", f"{row['right']} of {row['images']} images are right"
        elif not _is(row["top1"], row["right"], row["images"]):
            said = f"top1 is not {row['right']} of {row['images']} images"
            yield f"test/classes/{number}", said
    right, images = (sum(row[what] for row in rows) for what in ("right", "images"))
    if not _is(test["top1"], right, images):
        yield "test/top1", f"it is not {right} of {images} images, which the classes add up to"


def _confusions(test: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows = {row["class"]: row for row in test["classes"]}
    confused: Counter[str] = Counter()
    pairs = set()
    for number, found in enumerate(test["confusions"]):
        one, other, where = found["class"], found["predicted_as"], f"test/confusions/{number}"
        if one not in rows or other not in rows or one == other or (one, other) in pairs:
            yield where, "it is not of two classes of the test part, or is listed twice"
            return
        pairs.add((one, other))
        confused[one] += found["images"]
        wrong = rows[one]["images"] - rows[one]["right"]
        if confused[one] > wrong:
            yield where, f"more images are confused than the {wrong} of this class that are wrong"
        elif not _is(found["share"], found["images"], rows[one]["images"]):
            said = f"share is not {found['images']} of {rows[one]['images']} images"
            yield where, said


def _is(share: float | None, part: int, of: int) -> bool:
    """Whether a share is that of ``part`` in ``of``; without any there is none."""
    if share is None or not of:
        return share is None and not of
    return math.isclose(share, part / of, abs_tol=_ROUNDED)
