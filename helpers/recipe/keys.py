"""The keys of a recipe's tables, and the values that each accepts."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from helpers.frameworks import NOTEBOOKS
from helpers.recipe.settings import LOADER_CORES, OPTIMIZERS, SCALINGS, TASKS

FRAMEWORKS = tuple(NOTEBOOKS)
"""Modules of ``helpers.frameworks`` that accept a custom network."""

NETWORKS = ("densenet121", "resnet44", "resnet50")
COMMON_OPTIONS = ("uncertain", "missing", "split", "val_fraction")
READERS: dict[str, tuple[str, ...]] = {
    "nih": COMMON_OPTIONS,
    "table": (*COMMON_OPTIONS, "table"),
    "imagefolder": (*COMMON_OPTIONS, "group"),
    "cifar10": COMMON_OPTIONS,
}
"""What ``data_prep`` can read, and the further keys of ``[data]`` that each takes."""

MOST = 2**31 - 1
LEAST_RATE = 1e-12
"""Far below any in use, and its steps are still float32 numbers of full precision."""


@dataclass(frozen=True)
class Key:
    """``what`` a key takes, in words; a value of TOML that is an ``example``; whether one fits."""

    what: str
    example: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(example: str, least: int, most: int = MOST) -> Key:
    return Key(
        f"a whole number from {least} to {most}",
        example,
        lambda value: _is_number(value) and isinstance(value, int) and least <= value <= most,
    )


def _number(example: str, most: float, *, least: float = 0, above: bool = False) -> Key:
    """From ``least``, or ``above`` it, to ``most``; no NaN, for which no comparison holds."""
    return Key(
        f"a number {'above' if above else 'from'} {least:g} to {most:g}",
        example,
        lambda value: (
            _is_number(value) and least <= value <= most and not (above and value == least)
        ),
    )


def _word(*words: str) -> Key:
    return Key(
        f"one of {', '.join(words)}",
        f'"{words[0]}"',
        lambda value: isinstance(value, str) and value in words,
    )


def _text(what: str, example: str) -> Key:
    return Key(
        what,
        example,
        lambda value: isinstance(value, str) and value.isprintable() and value.strip() != "",
    )


def _list_of(inner: Key, what: str, example: str) -> Key:
    return Key(
        what,
        example,
        lambda value: isinstance(value, list) and bool(value) and all(map(inner.fits, value)),
    )


def _anything(what: str, example: str) -> Key:
    """Of which the reader knows what fits."""
    return Key(what, example, lambda value: True)


def _is_schedule(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {"gamma", "milestones"}:
        return False
    gamma, milestones = value["gamma"], value["milestones"]
    return (
        _number("", 1).fits(gamma)
        and 0 < gamma < 1
        and _list_of(_whole("", 1), "", "").fits(milestones)
        and milestones == sorted(set(milestones))
    )


_OWN = _text("a Python file in this file's folder and a name in it", '"mine.py:net"')

DATA = {
    "reader": _text(
        f"one of {', '.join(READERS)}, or a reader of your own as file.py:name", '"cifar10"'
    ),
    "folder": _text("a folder, or auto", '"auto"'),
    "image_size": _whole("256", 1, 2**14),
    "crop": _whole("224", 1, 2**14),
    "color_mode": _word("grayscale", "rgb"),
    "loader_cores": _word(*LOADER_CORES),
}
OPTIONS = {
    "uncertain": _word("zero", "one", "ignore"),
    "missing": _word("zero", "one", "ignore"),
    "split": _list_of(_number("", 1), "a list of three shares", "[0.7, 0.1, 0.2]"),
    "val_fraction": _number("0.125", 1, above=True),
    "table": _anything("a TOML file with a mapping of columns, or that mapping", '"table.toml"'),
    "group": _text("a regular expression", '"patient[0-9]+"'),
}
MODEL = {
    "network": _word(*NETWORKS),
    "weights": _word("auto", "imagenet", "random"),
    **dict.fromkeys(FRAMEWORKS, _OWN),
}
TRAIN = {
    "task": _word(*TASKS),
    "epochs": _whole("40", 1),
    "batch_size": _whole("128", 1),
    "optimizer": _word(*OPTIMIZERS),
    "learning_rate": _number("0.1", 1000, least=LEAST_RATE),
    "lr_scaling": _word(*SCALINGS),
    "warmup_epochs": _number("5", 1e9),
    "weight_decay": _number("1e-4", 1),
    "momentum": _number("0.9", 0.9999),
    "lr_schedule": Key(
        "what the rate is multiplied by, between 0 and 1, and after which epochs, in order",
        "{gamma = 0.1, milestones = [20, 30]}",
        _is_schedule,
    ),
}
TARGET = {
    "metric": _word(*(metric for metrics in TASKS.values() for metric in metrics)),
    "quality_targets": _list_of(
        _number("", 1, above=True), "a list of numbers above 0 to 1", "[0.7, 0.8]"
    ),
}
DEMO = {key: DATA[key] for key in ("folder", "image_size", "crop")} | {
    key: TRAIN[key] for key in TRAIN if key not in ("task", "optimizer")
}
DEMO |= {"weights": MODEL["weights"], "quality_targets": TARGET["quality_targets"]}
"""What a machine without a GPU may take another value of. Not what is trained, nor by what rule."""

_SBATCH_OWN = (
    *("job-name", "nodes", "ntasks", "ntasks-per-node", "output", "error", "open-mode"),
    *("signal", "requeue", "no-requeue", "chdir", "wrap", "parsable", "wait", "array", "export"),
    *("partition", "account", "time", "mem", "cpus-per-task", "test-only"),
    *("gpus", "gpus-per-task", "gpus-per-socket", "gpu-bind", "ntasks-per-gpu", "cpus-per-gpu"),
    *("tres-per-task", "tres-bind"),
)
"""Options of sbatch that ``rosetta slurm`` gives itself, or that its script could not live with.

As a job may have more ranks on a node than sbatch heard of, GPUs are asked for by the node.
"""


def _matching(pattern: str, what: str, example: str) -> Key:
    return Key(
        what,
        example,
        lambda value: isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) is not None,
    )


def _is_option(value: Any) -> bool:
    """``--constraint=a100``: one option of sbatch's, which a shell would take for one word."""
    if not isinstance(value, str):
        return False
    found = re.fullmatch(r"--([a-z][a-z0-9-]*)(=[A-Za-z0-9_.,:;@%+/*()\[\]&|!-]+)?", value)
    # sbatch takes --outp= for --output=.
    return found is not None and not any(own.startswith(found[1]) for own in _SBATCH_OWN)


def _is_shell(value: Any) -> bool:
    """A line of shell, and none that ``sbatch`` reads as options before the script runs."""
    is_text = _text("", "").fits(value)
    return is_text and not value.lstrip().startswith(("#SBATCH", "#PBS", "#BSUB"))


_NAMES = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"

SLURM = {
    "partition": _matching(
        rf"{_NAMES}(,{_NAMES})*", "a partition, or several with commas between", '"gpu"'
    ),
    "account": _matching(_NAMES, "an account", '"project1"'),
    "time": _matching(
        r"\d{1,6}(:\d\d){0,2}|\d{1,3}-\d{1,2}(:\d\d){0,2}",
        "a time limit as sbatch takes it: minutes, HH:MM:SS, or D-HH:MM:SS",
        '"02:00:00"',
    ),
    "gres": _matching(
        r"[A-Za-z0-9_][A-Za-z0-9_.:,-]*",
        "the GPUs of a node as sbatch's --gres takes them",
        '"gpu:4"',
    ),
    "cpus": _whole("16", 1, 2**16),
    "mem": _matching(r"\d{1,9}[KMGT]?", "the memory of a node as sbatch takes it", '"64G"'),
    "modules": _list_of(
        _matching(r"[A-Za-z0-9][A-Za-z0-9_.+/-]*", "", ""),
        "a list of the site's modules to load",
        '["cuda/12.6"]',
    ),
    "setup": _list_of(
        Key("", "", _is_shell),
        "a list of lines of shell that come first, and not #SBATCH (that is 'sbatch_args')",
        '["module load cuda"]',
    ),
    "sbatch_args": _list_of(
        Key("", "", _is_option),
        "a list of further options of sbatch, each one word, and none that rosetta slurm gives",
        '["--constraint=a100"]',
    ),
    "requeue": Key("true or false", "true", lambda value: isinstance(value, bool)),
    "signal_seconds": _whole("180", 30, 2**16),
}

TABLES = {
    "data": DATA | OPTIONS,
    "model": MODEL,
    "train": TRAIN,
    "target": TARGET,
    "demo": DEMO,
    "slurm": SLURM,
}
EXAMPLES = {key: known.example for table in TABLES.values() for key, known in table.items()}
