"""Find figures of a record that contradict each other, which its schema cannot detect.

A record may be untrusted, so the figures that a report adds up, ranks or looks up must agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.training import arithmetic, tasks
from helpers.training.tasks import MULTICLASS, TOP1, TOP5

_ROUNDED = 1e-6


def first(content: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first field that contradicts others, and how; None where all fit.

    ``content`` fits the schema.
    """
    return next(_all(content), None)


def _all(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    task = tasks.of(content.get("recipe", {}))
    for number, epoch in enumerate(content.get("epochs", [])):
        if task.metric.of_epoch not in epoch:
            yield (
                f"epochs/{number}",
                f"{task.metric.of_epoch} is missing, the metric of the recipe's task {task.name}",
            )
        elif task is MULTICLASS:
            yield from _order(f"epochs/{number}", epoch[TOP1.of_epoch], epoch[TOP5.of_epoch])
    yield from _arithmetic(content)
    test = content.get("test")
    if test is None:
        return
    if task.outputs not in test:
        yield "test", f"{task.outputs} are missing, although the recipe's task is {task.name}"
    elif task is MULTICLASS:
        yield from _order("test", test["top1"], test["top5"])
        yield from _classes(test)
        yield from _confusions(test)


def _arithmetic(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = content.get("arithmetic")
    if found is None:
        return
    rounds = found["product"]["rounds"]
    if any(len(content.get(k, {}).get("rounds", ())) != len(rounds) for k in arithmetic.KINDS):
        yield "arithmetic/product/rounds", "there are more or fewer in files or synthetic"
        return
    given = {key: found[key] for key in ("size", "dtype", "flops_per_image")}
    again = arithmetic.as_record(rounds, **given, measured=content)
    for part in ("product", *arithmetic.KINDS):
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
