"""Run a notebook's cells as a user does: in any order, with interrupts and restarts of the kernel.

    python tests/kernels/any_order.py NOTEBOOK DEVICES FOLDER SEED...

Each seed is an order. What must hold after every cell is in :meth:`Kernel.check`; what does not is
printed, a line each, and makes the exit code 1. A kernel's life is a process that is forked from
this one, which has imported the framework.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from own_networks import recipe_of_classes

from helpers import paths
from helpers.errors import FOR_USERS, Plain
from helpers.fairness import network_checks, training_loop
from helpers.fairness.check_results import Check, FairnessCheck
from helpers.networks import weights
from helpers.training import data_coverage, measured_run, measurement_rounds
from helpers.training.sections import SECTIONS

NEEDS = {
    "check_fairness": (), "check_training_loop": ("check_fairness",),
    "train": ("check_training_loop",), "test": ("train",),
    "profile": ("train",), "chart": ("profile",), "attribute_time": ("chart",),
    "finish": ("test", "attribute_time"),
}  # fmt: skip
"""Said once more, apart from the code that is tested."""
RECORDS = {"train": "epochs", "test": "test", "profile": "loader", "chart": "monitor"}
RECORDS |= {"explain": "attribution"}
RAW = (NameError, KeyboardInterrupt, Plain, *FOR_USERS)
"""What a user may see: a name that no cell has defined yet, an interrupt, and a line each."""
LENGTH = 10
ALL = "run all"
"""What users do, and rarely in this order; weighted by how often it is drawn."""
ACTIONS = {"begin": 3, "restart": 1, "kill": 1, ALL: 2, "interrupt": 3}
ACTIONS |= dict.fromkeys(NEEDS, 2)


def needs(name: str) -> set[str]:
    direct = set(NEEDS[name])
    return direct.union(*(needs(need) for need in direct))


class Kernel:
    """A notebook's kernel from its start to its end, and what should hold of its run by now."""

    def __init__(self, notebook: str, folder: Path, devices: int, draw: random.Random) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
        self.cells = [
            "".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"
        ]
        self.shell = InteractiveShell.instance()
        self.folder, self.devices, self.draw = folder, devices, draw
        self.valid: set[str] = set()
        self.epochs = 0
        self.problems: list[str] = []
        self.done: list[str] = []

    def act(self, action: str) -> None:
        self.done.append(action)
        if action == ALL:
            for each in ("begin", *NEEDS):
                if self.carry_out(each) is not None:
                    break
        else:
            self.carry_out(action)

    def carry_out(self, action: str) -> BaseException | None:
        """One section's cells; what they raised."""
        if action == "begin":
            error = self.begin()
        else:
            wanted = "train" if action in ("interrupt", "kill") else action
            error = self.run(wanted, action if action != wanted else "")
        if error is not None and not isinstance(error, RAW):
            self.problem(f"{type(error).__name__}: {error}")
        self.check()
        return error

    def begin(self) -> BaseException | None:
        """Sections 2 to 8, with other values for some parameters."""
        first = next(n for n, cell in enumerate(self.cells) if "this_run.check_fairness(" in cell)
        self.valid.clear()
        self.epochs, resume = self.draw.choice([2, 3]), self.draw.random() < 0.3
        given: dict[str, Any] = {"recipe": str(self.folder / "recipe" / "mine.toml"), "gpus": 0}
        given |= {"devices": self.devices, "run": str(self.folder / "run"), "resume": resume}
        given |= {"epochs": self.epochs, "batch_size": 100 // self.devices, "num_workers": 0}
        given["seed"] = 0 if resume else self.draw.randrange(100)
        for cell in [*self.cells[:first], *self.cells[first + 1 :]]:
            if "this_run.check_training_loop(" in cell:
                break
            if cell.startswith("recipe = "):
                cell += "\n" + "\n".join(f"{name} = {value!r}" for name, value in given.items())
            if (error := self.cell(cell)) is not None:
                return error
        return None

    def run(self, name: str, broken_off: str) -> BaseException | None:
        """One section, which may be interrupted, or killed with the kernel."""
        allowed = "this_run" in self.shell.user_ns and needs(name) <= self.valid
        if allowed:
            self.valid -= {other for other in NEEDS if name in needs(other)} | {name}
        (cell,) = (each for each in self.cells if f"this_run.{name}(" in each)
        number = {"interrupt": signal.SIGINT, "kill": signal.SIGKILL}.get(broken_off)
        if number is not None:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), number))
            signal.setitimer(signal.ITIMER_REAL, self.draw.uniform(0.05, 1.5))
        try:
            error = self.cell(cell)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if error is None:
            self.valid.add(name)
            if not allowed:
                self.problem(f"{name} ran before what it needs")
        elif allowed and number is None and not self.may_be_refused(name):
            self.problem(f"{name} was refused, and had all that it needs: {error}")
        return error

    def may_be_refused(self, name: str) -> bool:
        """A checkpoint may be of another recipe."""
        return name == "train" and bool(self.shell.user_ns["resume"])

    def cell(self, text: str) -> BaseException | None:
        try:
            result = self.shell.run_cell(text)
        except KeyboardInterrupt as late:  # between the cell and its end
            return late
        return result.error_before_exec or result.error_in_exec

    def check(self) -> None:
        """The record on the disk holds the sections that hold, of this run and no other."""
        run = self.shell.user_ns.get("this_run")
        if run is None or run.progress.replaced:
            return
        content: Mapping[str, Any] = json.loads((run.folder / "record.json").read_text())
        if content["run"]["id"] != run.record.id:
            self.problem("the record is another run's")
        for name, section in RECORDS.items():
            if (section in content) != (name in self.valid):
                self.problem(f"{section} in the record: {section in content}")
        if "epochs" in content and len(content["epochs"]) != self.epochs:
            self.problem(f"{len(content['epochs'])} epochs in the record of {self.epochs}")
        if "test" in self.valid and TESTED["trained"] != TESTED["tested"]:
            self.problem("what was tested is not what was trained")
        if (content["state"] == "finished") != ("finish" in self.valid):
            self.problem(f"the record's state is {content['state']}")
        broken_off = (
            self.done[-1] in ("check_training_loop", "interrupt") and "train" not in self.valid
        )
        if broken_off and run.monitor.running:
            self.problem("the monitor runs, and nothing trains")

    def problem(self, text: str) -> None:
        self.problems.append(f"after {', '.join(self.done)}: {text}")


TESTED: dict[str, str] = {}
"""Digests of the weights that were trained last, and of those tested last; of one process."""


def small() -> None:
    """Replace what takes long and has tests of its own; note what is trained and tested."""
    network_checks.check_fairness = lambda *given, **named: FairnessCheck(
        (Check("planted", 0.0, 1.0),)
    )
    training_loop.check_fairness = lambda *given, **named: []
    data_coverage.check_fairness = lambda *given, **named: []
    measurement_rounds.ROUNDS = 2
    measurement_rounds.LOADER_SECONDS = 0.01
    run: Any = measured_run.Run
    train, load = run._check_training, run._trained_weights

    def trained(run: Any, each: Any) -> None:
        TESTED["trained"] = each[0].digest
        train(run, each)

    def loaded(run: Any) -> Any:
        found = load(run)
        TESTED["tested"] = weights.digest(found)
        return found

    run._check_training, run._trained_weights = trained, loaded


def live(notebook: str, folder: Path, devices: int, seed: str, actions: list[str]) -> int:
    """One kernel's life, in a process of its own; how many of the actions were done, negative
    where something did not hold."""
    report = folder / "problems"
    child = os.fork()
    if child == 0:
        with (folder / "said").open("a") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        kernel = Kernel(notebook, folder, devices, random.Random(seed))
        try:
            for action in actions:
                if action == "restart":
                    break
                kernel.act(action)
                (folder / "done").write_text(str(len(kernel.done)))
        except BaseException as error:
            kernel.problem(f"the driver: {type(error).__name__}: {error}")
        with report.open("a") as file:
            file.writelines(f"{problem}\n" for problem in kernel.problems)
        if "this_run" in kernel.shell.user_ns:
            kernel.shell.user_ns["this_run"].record._left()  # as Python does at its end
        os._exit(0)
    os.waitpid(child, 0)
    return int((folder / "done").read_text()) + 1


def order(notebook: str, devices: int, folder: Path, seed: int) -> list[str]:
    """What did not hold in one order."""
    draw = random.Random(seed)
    actions = draw.choices([*ACTIONS], [*ACTIONS.values()], k=LENGTH)
    folder.mkdir(parents=True)
    recipe_of_classes(folder / "recipe", "pytorch")
    left, life = list(actions), 0
    while left:
        (folder / "done").write_text("0")
        left = left[live(notebook, folder, devices, f"{seed} {life}", left) :]
        life += 1
    found = (folder / "problems").read_text().splitlines()
    return [f"{notebook}, {devices} devices, order {seed}: {problem}" for problem in found]


def main() -> int:
    notebook, devices, folder, *seeds = sys.argv[1:]
    assert SECTIONS.keys() >= NEEDS.keys()
    small()
    problems, began = [], time.monotonic()
    for seed in seeds:
        problems += order(notebook, int(devices), Path(folder) / seed, int(seed))
    print(f"{len(seeds)} orders in {time.monotonic() - began:.0f} s", *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    import helpers.frameworks.pytorch
    import helpers.training.pytorch_batches  # noqa: F401

    sys.exit(main())
