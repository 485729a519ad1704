"""Records that are none: alone in a batch they end the report, one line each; beside others they
are set aside (tests/results/test_strange_records.py)."""

import json
import operator
import os
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import class_records
import records

from hostile.case import Case

Put = Callable[[Path], object]


def text(content: str | bytes) -> Put:
    return lambda path: path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


GONE = object()


def bent(content: Any, *keys: str | int, to: Any) -> Any:
    """``content`` with another value of one field, or without it."""
    *above, last = keys
    part = reduce(operator.getitem, above, content)
    if to is GONE:
        del part[last]
    else:
        part[last] = to
    return content


def changed(*keys: str | int, to: Any, make: Callable[[], Any] = records.make) -> Put:
    """A whole record, but for one field."""
    return lambda path: path.write_text(json.dumps(bent(make(), *keys, to=to)), encoding="utf-8")


of_classes = partial(changed, make=class_records.make)
"""The same of a run that tells classes."""


def arithmetic(*keys: str, to: Any) -> Put:
    """A whole record with FLOP/s, but for one of their fields."""
    return changed("arithmetic", to=bent(records.arithmetic(100.0), *keys, to=to))


def recipe(**given: Any) -> Put:
    """A whole record whose recipe says this, and nothing of rate and rule besides."""
    said = records.make()["recipe"]
    bare = {key: said[key] for key in said if key not in ("lr_gamma", "lr_milestones", "momentum")}
    return changed("recipe", to=bare | given)


without = partial(changed, to=GONE)


def number(literal: str) -> Put:
    """A whole record with a number as JSON does not write it."""

    def put(path: Path) -> None:
        content = records.make()
        content["training"]["seconds"] = "HERE"
        path.write_text(json.dumps(content).replace('"HERE"', literal), encoding="utf-8")

    return put


def larger_than_the_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


STRANGE: dict[str, tuple[Put, str]] = {
    "empty": (text(""), "not a JSON file of this project"),
    "only zeros": (text(bytes(4096)), "not a JSON file of this project"),
    "cut short": (text(json.dumps(records.make())[:-9]), "not a JSON file of this project"),
    "two of them": (text(json.dumps(records.make()) * 2), "not a JSON file of this project"),
    "not UTF-8": (text(b'{"schema": 1, "reason": "\xff\xfe"}'), "not a JSON file of this project"),
    "a list": (text("[1]"), r"field \(top\)"),
    "null": (text("null"), r"field \(top\)"),
    "a number": (text("7"), r"field \(top\)"),
    "nothing in it": (text("{}"), "missing required field"),
    "a pickle": (text(b"\x80\x04\x95\x1a\x00\x00\x00"), "not a JSON file of this project"),
    "deep in brackets": (text("[" * 200_000), "nested too deep"),
    "deep in objects": (text('{"a":' * 200_000), "nested too deep"),
    "deep in a section": (
        changed("monitor", to=json.loads("[" * 900 + "]" * 900)),
        "nested too deep",
    ),
    "NaN": (number("NaN"), "NaN is no number"),
    "Infinity": (number("-Infinity"), "-Infinity is no number"),
    "a number beyond all": (number("1e999"), "1e999 is no number"),
    "a number too large to add": (number("1e308"), "1e308 is no number"),
    "an integer of 5,000 digits": (number("9" * 5000), "9999 is no number"),
    "larger than the memory": (larger_than_the_memory, "more than 16 MiB"),
    "a pipe": (os.mkfifo, "not a file"),
    "a folder": (Path.mkdir, "there is no record"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "not a file"),
    "a link to itself": (lambda path: path.symlink_to("record.json"), "no record under"),
    "a link to nothing": (lambda path: path.symlink_to("gone"), "no record under"),
    "a link to a file of another kind": (
        lambda path: path.symlink_to("/etc/hostname"),
        "not a JSON file of this project",
    ),
    "of a newer version": (changed("schema", to=4), r"newer version .*\(schema 4, not"),
    "of version zero": (changed("schema", to=0), "field schema"),
    "of a version that is text": (changed("schema", to="2"), "field schema"),
    "of a version that is true": (changed("schema", to=True), "field schema"),
    "of no version": (without("schema"), "missing required field `schema`"),
    "of an unknown state": (changed("state", to="done"), "field state"),
    "escapes in a value": (changed("state", to="\x1b[2J\x1b]0;owned\x07"), "field state"),
    "escapes in a key": (changed("\x1b[2J", to=1), "x1b"),
    "a text that is no text": (changed("state", to="\ud800"), "field state"),
    "a line break in a key": (changed("error: all is lost\nerror", to=1), "it is unknown"),
    "a direction turned round": (changed("\u202edrocer", to=1), "it is unknown"),
    "a run that is text": (changed("run", to="PyTorch"), "field run"),
    "a process beyond all": (changed("run", "process", to=2**40), "field run/process"),
    "no framework": (changed("framework", to=None), "field framework"),
    "a name that is a number": (changed("framework", "name", to=3), "field framework/name"),
    "no device": (changed("devices", "count", to=0), "field devices/count"),
    "no GPU that is shared": (changed("devices", "shared_gpus", to=0), "field devices/shared_gpus"),
    "devices that are true": (changed("devices", "count", to=True), "field devices/count"),
    "finished without a test": (without("test"), "field test .* is missing"),
    "finished without an epoch": (changed("epochs", to=[]), "field epochs"),
    "finished at no speed": (changed("training", "images_per_second", to=0), "field training"),
    "finished at less than none": (changed("synthetic", "images_per_second", to=-1), "field synth"),
    "a round at no speed": (
        changed("loader", to=records.rounds(900.0) | {"rounds": [0.0] * 6}),
        "field loader/rounds",
    ),
    "an epoch that took less than no time": (
        changed("epochs", 0, "train_seconds", to=-1),
        "field epochs/0",
    ),
    "an AUC of two": (changed("test", "mean_auc", to=2), "field test/mean_auc"),
    "a top-1 of two": (of_classes("test", "top1", to=2), "field test"),
    "a top-1 that is none": (of_classes("test", "top1", to=None), "field test"),
    "a top-1 of other classes": (
        of_classes("test", "top1", to=0.5),
        r"field test/top1 contradicts others: it is not 700 of 1000",
    ),
    "a top-5 below top-1": (
        of_classes("test", "top5", to=0.2),
        r"field test contradicts others: top-5 \(0.2\) is less than top-1",
    ),
    "a top-5 below top-1 in an epoch": (
        of_classes("epochs", 2, "valid_top5", to=0.1),
        r"field epochs/2 contradicts others: top-5 \(0.1\)",
    ),
    "an epoch of two tasks": (of_classes("epochs", 0, "valid_auc", to=0.7), "field epochs/0"),
    "epochs of the other task": (
        of_classes("epochs", to=records.make()["epochs"]),
        "field epochs/0 contradicts others: valid_top1 is missing",
    ),
    "a test of the other task": (
        of_classes("test", to=records.make()["test"]),
        "field test contradicts others: classes is missing",
    ),
    "findings that are classes": (
        changed("test", to=class_records.make()["test"]),
        "field test contradicts others: findings is missing",
    ),
    "a class with more right than images": (
        of_classes("test", "classes", 3, "right", to=101),
        "field test/classes/3 contradicts others: 101 of 100",
    ),
    "a class with another share": (
        of_classes("test", "classes", 3, "top1", to=0.1),
        "field test/classes/3 contradicts others: top1 is not",
    ),
    "a class that stands there twice": (
        of_classes("test", "classes", 3, "class", to="plane"),
        "field test/classes contradicts others: a class is listed twice",
    ),
    "one class": (of_classes("test", "classes", to=[]), "field test"),
    "confusions that do not add up": (
        of_classes("test", "confusions", 0, "images", to=99),
        "field test/confusions/0 contradicts others: more images are confused",
    ),
    "a confusion's other share": (
        of_classes("test", "confusions", 0, "share", to=0.9),
        "field test/confusions/0 contradicts others: share is not",
    ),
    "a class confused with itself": (
        of_classes("test", "confusions", 0, "predicted_as", to="plane"),
        "field test/confusions/0 contradicts others: it is not of two classes",
    ),
    "a class nobody knows": (
        of_classes("test", "confusions", 0, "predicted_as", to="<script>"),
        "field test/confusions/0 contradicts others: it is not of two classes",
    ),
    "a confusion twice": (
        of_classes("test", "confusions", to=class_records.make()["test"]["confusions"][:1] * 2),
        "field test/confusions/1 contradicts others: it is not of two classes of the test part, or",
    ),
    "more confusions than ten": (
        of_classes("test", "confusions", to=class_records.make()["test"]["confusions"] * 2),
        "field test",
    ),
    "drops by nothing": (
        recipe(lr_milestones=[3]),
        "field recipe/lr_gamma .* is missing, although there are lr_milestones",
    ),
    "momentum without its number": (recipe(optimizer="sgd"), "field recipe/momentum .* is missing"),
    "a precision that is a list": (changed("recipe", "precision", to=["fp32"]), "field recipe"),
    "energy without its images": (
        changed("energy", to={"joules": 5.0, "images_per_joule": None}),
        "field energy",
    ),
    "a sample without resamples": (without("test", "resamples"), "field test/resamples .* missing"),
    "skipped without a reason": (
        lambda path: path.write_text(json.dumps(records.short("Keras", "skipped", ""))),
        "field reason",
    ),
    "a probe that is text": (changed("self_test", to="all well"), "field self_test"),
    "a probe of no device": (changed("self_test", to=records.probe(0)), "field self_test/devices"),
    "a probe with no reason at all": (
        changed("self_test", to=records.probe(reason="")),
        "field self_test/reason",
    ),
    "a probe that took less than no time": (
        changed("self_test", to=records.probe() | {"seconds": -1}),
        "field self_test/seconds",
    ),
    "a probe of something else": (
        changed("self_test", to=records.probe() | {"steps": [{"what": "mining"}]}),
        "field self_test/steps/0",
    ),
    "a probe with more": (
        changed("self_test", to=records.probe() | {"more": 1}),
        "field self_test",
    ),
    "more of a matrix product than its rounds come to": (
        arithmetic("synthetic", "share", to=0.9),
        "field arithmetic/synthetic contradicts others: it is not what its rounds and FLOPs",
    ),
    "a matrix product faster than its rounds": (
        arithmetic("product", "flops_per_second", to=6e10),
        "field arithmetic/product contradicts others: it is not what its rounds",
    ),
    "FLOP/s of training without its FLOPs": (
        arithmetic("flops_per_image", to=None),
        "field arithmetic/files contradicts others",
    ),
    "a matrix product in fewer rounds": (
        arithmetic("product", "rounds", to=[5e10]),
        "field arithmetic/product/rounds contradicts others: there are more or fewer",
    ),
    "a matrix product of no time": (
        arithmetic("product", "rounds", to=[0.0] * 6),
        "field arithmetic/product/rounds/",
    ),
    "a section nobody knows": (changed("__class__", to={"x": 1}), "it is unknown"),
}


def in_a_batch(put: Put) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        (folder / "Strange-2x").mkdir()
        put(folder / "Strange-2x" / "record.json")
        return ["rosetta", "report", str(folder)]

    return lay


def against(folder: Path) -> list[str]:
    in_a_batch(text("{"))(folder)
    return ["rosetta", "diff", str(folder)]


def a_link_where_tables_go(folder: Path) -> list[str]:
    """To a folder of somebody's own tables, which a report would replace and remove."""
    records.save(folder, records.make())
    (folder / "own").mkdir()
    (folder / "own" / "runs.csv").write_text("mine")
    (folder / "csv").symlink_to("own")
    return ["rosetta", "report", str(folder)]


CASES = [
    *(Case(f"record: {name}", in_a_batch(put), says) for name, (put, says) in STRANGE.items()),
    Case("record: compared with a strange one", against, "not a JSON file of this project"),
    Case(
        "record: a link where tables go", a_link_where_tables_go, "a link", keeps=("own/runs.csv",)
    ),
]
