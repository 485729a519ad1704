"""What a batch is to run: which notebooks, on how many devices, with which parameters."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers import devices as device_helpers
from helpers import parameters, paths
from helpers.comparison import order
from helpers.errors import UserError
from helpers.recipe import lookup


@dataclass
class RunState:
    """One planned run and how it stands; the journal keeps exactly these fields."""

    notebook: str
    framework: str
    kernel: str
    devices: int
    sha256: str
    state: str = "waiting"
    reason: str | None = None
    seconds: float | None = None
    process: int | None = None
    process_started: float | None = None

    @property
    def folder(self) -> str:
        """The run's folder in the batch."""
        return f"{self.notebook}-{self.devices}x"

    @property
    def title(self) -> str:
        return f"{self.notebook} on {self.devices} device{'s' if self.devices != 1 else ''}"


@dataclass
class Plan:
    """What a batch runs: the same recipe, data and seed for each of its runs."""

    recipe: str
    data: str
    seed: int
    runs: list[RunState]

    def parameters(self) -> dict[str, Any]:
        """The parameters that all its notebooks get."""
        return {"recipe": self.recipe, "data": self.data, "seed": self.seed}

    def asks_for_the_same(self, other: "Plan") -> bool:
        """Whether both name the same runs, however far they are and whatever the code is now."""
        return self.parameters() == other.parameters() and [r.folder for r in self.runs] == [
            r.folder for r in other.runs
        ]


def make_plan(
    *,
    notebooks: Sequence[str] = (),
    devices: Sequence[int | str] = ("auto",),
    recipe: str = "auto",
    data: str = "auto",
    seed: int = 0,
) -> Plan:
    """What is to be run, with everything a user may have mistyped checked.

    Args:
        notebooks: names without ``.ipynb``; none means every framework notebook, in order.
        devices: how many, several in turn, or ``auto``.
        recipe: a recipe's name, or ``auto``.
        data: a data folder, or ``auto``.
    """
    chosen = lookup("demo" if recipe == "auto" else recipe)
    if data != "auto":
        data = str(parameters.prepare_data(chosen, data))
    known = framework_notebooks()
    if not known:
        raise UserError(f"{paths.NOTEBOOKS}: no notebook there names its framework in its metadata")
    wanted = [name.removesuffix(".ipynb") for name in notebooks] or list(known)
    for name in wanted:
        if name not in known:
            raise UserError(f"unknown notebook '{name}': the notebooks are {', '.join(known)}")
    counts = [device_helpers.resolve(number).count for number in devices]
    runs = [
        RunState(name, *known[name], count, digest(name))
        for name in dict.fromkeys(wanted)
        for count in dict.fromkeys(counts)
    ]
    return Plan(recipe, data, seed, runs)


def framework_notebooks() -> dict[str, tuple[str, str]]:
    """Each framework notebook's framework and kernel, in the order they are run and shown.

    A framework notebook says so in its metadata: ``"compare": {"framework": "PyTorch"}``.
    """
    found = {}
    for path in sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        try:
            metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
            framework = metadata.get("compare", {}).get("framework")
            if framework:
                found[path.stem] = (str(framework), str(metadata["kernelspec"]["name"]))
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
            raise UserError(f"{path}: not a notebook ({error})") from None
        except KeyError as error:
            raise UserError(
                f"{path}: its metadata lack {error}; choose a kernel in Jupyter and save it"
            ) from None
    return dict(sorted(found.items(), key=lambda item: order(item[0])))


def digest(notebook: str) -> str:
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
