"""The keys of a recipe's tables, and the type of each."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from helpers.frameworks import NOTEBOOKS
from helpers.recipe.key_types import described, example, list_of, number, text, whole, word
from helpers.recipe.settings import EXECUTIONS, LOADER_CORES, OPTIMIZERS, SCALINGS, TASKS

FRAMEWORKS = tuple(NOTEBOOKS)
"""Modules of ``helpers.frameworks`` that accept a custom network."""

NETWORKS = ("densenet121", "resnet44", "resnet50")
COMMON_OPTIONS = ("uncertain", "missing", "split", "val_fraction")
READERS: dict[str, tuple[str, ...]] = {
    "nih": COMMON_OPTIONS,
    "table": (*COMMON_OPTIONS, "table", "links"),
    "imagefolder": (*COMMON_OPTIONS, "group", "class_pattern", "exclude", "links"),
    "cifar10": COMMON_OPTIONS,
}
"""What ``data_prep`` can read, and the further keys of ``[data]`` that each takes."""

LEAST_RATE = 1e-12
"""Far below any in use, and its steps are still float32 numbers of full precision."""


class Schedule(Struct, forbid_unknown_fields=True):
    """What the learning rate is multiplied by, and after which epochs."""

    gamma: Annotated[float, Meta(gt=0, lt=1)]
    milestones: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if self.milestones != sorted(set(self.milestones)):
            raise ValueError("out of order")


DATA = {
    "reader": text(
        f"one of {', '.join(READERS)}, or a reader of your own as file.py:name", '"cifar10"'
    ),
    "folder": text("a folder, or auto", '"auto"'),
    "image_size": whole("256", 1, 2**14),
    "crop": whole("224", 1, 2**14),
    "color_mode": word("grayscale", "rgb"),
    "loader_cores": word(*LOADER_CORES),
}
OPTIONS = {
    "uncertain": word("zero", "one", "ignore"),
    "missing": word("zero", "one", "ignore"),
    "split": list_of(number("", 1), "a list of three shares", "[0.7, 0.1, 0.2]"),
    "val_fraction": number("0.125", 1, above=True),
    # The reader checks what is in it.
    "table": described(Any, "a TOML file with a mapping of columns, or that mapping", '"my.toml"'),
    "group": text("a regular expression", '"patient[0-9]+"'),
    "class_pattern": text("a regular expression", '"cat|dog"'),
    "exclude": list_of(text("", ""), "a list of names of folders", '["masks"]'),
    "links": word("refuse", "follow"),
}
MODEL = {
    "network": word(*NETWORKS),
    "weights": word("auto", "imagenet", "random"),
    **dict.fromkeys(
        FRAMEWORKS, text("a Python file in this file's folder and a name in it", '"mine.py:net"')
    ),
}
TRAIN = {
    "task": word(*TASKS),
    "epochs": whole("40", 1),
    "batch_size": whole("128", 1),
    "execution": word(*EXECUTIONS),
    "optimizer": word(*OPTIMIZERS),
    "learning_rate": number("0.1", 1000, least=LEAST_RATE),
    "lr_scaling": word(*SCALINGS),
    "warmup_epochs": number("5", 1e9),
    "weight_decay": number("1e-4", 1),
    "momentum": number("0.9", 0.9999),
    "lr_schedule": described(
        Schedule,
        "what the rate is multiplied by, between 0 and 1, and after which epochs, in order",
        "{gamma = 0.1, milestones = [20, 30]}",
    ),
}
TARGET = {
    "metric": word(*(metric for metrics in TASKS.values() for metric in metrics)),
    "quality_targets": list_of(
        number("", 1, above=True), "a list of numbers above 0 to 1", "[0.7, 0.8]"
    ),
}
DEMO = {key: DATA[key] for key in ("folder", "image_size", "crop")} | {
    key: TRAIN[key] for key in TRAIN if key not in ("task", "optimizer")
}
DEMO |= {"weights": MODEL["weights"], "quality_targets": TARGET["quality_targets"]}
"""What a machine without a GPU may take another value of. Not what is trained, nor by what rule."""

_OPTION = r"^--[a-z][!-~]*\Z"
"""``--constraint=a100``: one option of sbatch's."""
_MEMORY = r"^[0-9]{1,9}[KMGT]?\Z"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
_TIME = r"^([0-9]{1,6}(:[0-9]{2}){0,2}|[0-9]{1,3}-[0-9]{1,2}(:[0-9]{2}){0,2})\Z"

SLURM = {
    "partition": text(
        "a partition, or several with commas between", '"gpu"', rf"^{_NAME}(,{_NAME})*\Z"
    ),
    "account": text("an account", '"project1"', rf"^{_NAME}\Z"),
    "time": text(
        "a time limit as sbatch takes it: minutes, HH:MM:SS, or D-HH:MM:SS", '"02:00:00"', _TIME
    ),
    "gres": text(
        "the GPUs of a node as sbatch's --gres takes them",
        '"gpu:4"',
        r"^[A-Za-z0-9_][A-Za-z0-9_.:,-]*\Z",
    ),
    "cpus": whole("16", 1, 2**16),
    "mem": text("the memory of a node as sbatch takes it", '"64G"', _MEMORY),
    "setup": list_of(
        text("", "", r"\S"),
        "a list of lines of shell that come first",
        '["module load cuda"]',
    ),
    "sbatch_args": list_of(
        text("", "", _OPTION),
        "a list of further options of sbatch, each one word",
        '["--constraint=a100"]',
    ),
}

TABLES = {
    "data": DATA | OPTIONS,
    "model": MODEL,
    "train": TRAIN,
    "target": TARGET,
    "demo": DEMO,
    "slurm": SLURM,
}
EXAMPLES = {key: example(kind) for table in TABLES.values() for key, kind in table.items()}
