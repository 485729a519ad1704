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

import gpumon
from helpers import paths
from helpers.errors import FOR_USERS, Plain
from helpers.frameworks import replicas, temporary_files
from helpers.launch import this_notebook
from helpers.run import Run
from helpers.training import measurement_rounds

LAUNCHED = {"launch": (), "chart": ("launch",), "report": ("launch",)}
IN_KERNEL = {
    "epochs": (), "test": ("epochs",), "measure": ("epochs",), "chart": ("epochs",),
    "report": ("test", "measure"),
}  # fmt: skip
"""A notebook's calls of ``run`` and what each needs, said apart from the code that is tested."""
RECORDS = {"launch": ("epochs", "test", "loader"), "epochs": ("epochs",), "test": ("test",)}
RECORDS |= {"measure": ("loader",), "report": ("attribution",)}
RAW = (NameError, KeyboardInterrupt, Plain, *FOR_USERS)
"""What a user may see: a name that no cell has defined yet, an interrupt, and a line each."""
LENGTH = 10
ALL = "run all"
TRAINS = ("launch", "epochs")


class Kernel:
    """A notebook's kernel from its start to its end, and what should hold of its run by now."""

    def __init__(self, notebook: str, folder: Path, devices: int, draw: random.Random) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        path = paths.NOTEBOOKS / f"{notebook}.ipynb"
        content = json.loads(path.read_text(encoding="utf-8"))
        self.cells = [
            "".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"
        ]
        launched = any("run.launch(" in cell for cell in self.cells)
        self.needs: Mapping[str, tuple[str, ...]] = LAUNCHED if launched else IN_KERNEL
        self.shell = InteractiveShell.instance()
        self.shell.user_ns[this_notebook.VS_CODE] = str(path)
        self.folder, self.devices, self.draw = folder, devices, draw
        self.valid: set[str] = set()
        self.epochs = 0
        self.problems: list[str] = []
        self.done: list[str] = []

    def act(self, action: str) -> None:
        self.done.append(action)
        if action == ALL:
            for each in ("begin", *self.needs):
                if self.carry_out(each) is not None:
                    break
        else:
            self.carry_out(action)

    def needed(self, name: str) -> set[str]:
        direct = set(self.needs[name])
        return direct.union(*(self.needed(need) for need in direct))

    def carry_out(self, action: str) -> BaseException | None:
        """One cell, or those that begin a run; what they raised."""
        if action == "begin":
            error = self.begin()
        elif action == "change":
            error = self.change()
        else:
            wanted = next(iter(self.needs)) if action in ("interrupt", "kill") else action
            error = self.run(wanted, action if action != wanted else "")
        if error is not None and not isinstance(error, RAW):
            self.problem(f"{type(error).__name__}: {error}")
        self.check()
        return error

    def begin(self) -> BaseException | None:
        """All cells before the training, with other values for some parameters."""
        self.valid.clear()
        self.epochs, resume = self.draw.choice([2, 3]), self.draw.random() < 0.3
        given: dict[str, Any] = {"recipe": str(self.folder / "recipe" / "mine.toml")}
        given |= {"devices": self.devices, "run": str(self.folder / "run"), "resume": resume}
        given |= {"epochs": self.epochs, "batch_size": 100 // self.devices, "num_workers": 0}
        given["seed"] = 0 if resume else self.draw.randrange(100)
        for cell in self.cells:
            if f"run.{next(iter(self.needs))}(" in cell:
                break
            if cell.startswith("recipe = "):
                cell += "\n" + "\n".join(f"{name} = {value!r}" for name, value in given.items())
            if (error := self.cell(cell)) is not None:
                return error
            if isinstance(run := self.shell.user_ns.get("run"), Run):
                vars(run)["check"] = lambda *given: None  # it takes long, and has its own tests
        return None

    def change(self) -> BaseException | None:
        """Another value for a parameter of a run that has begun, which refuses to go on."""
        if not isinstance(self.shell.user_ns.get("run"), Run):
            return None
        self.cell("epochs += 1")
        name = self.draw.choice(list(self.needs))
        error = self.run(name, "", changed=True)
        self.cell("epochs -= 1")
        return error

    def run(self, name: str, broken_off: str, *, changed: bool = False) -> BaseException | None:
        """One cell, which may be interrupted, or killed with the kernel."""
        begun = isinstance(self.shell.user_ns.get("run"), Run) and not changed
        allowed = begun and self.needed(name) <= self.valid
        if allowed:
            self.valid -= {other for other in self.needs if name in self.needed(other)} | {name}
        (cell,) = (each for each in self.cells if f"run.{name}(" in each)
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
        return name in TRAINS and bool(self.shell.user_ns["resume"])

    def cell(self, text: str) -> BaseException | None:
        try:
            result = self.shell.run_cell(text)
        except KeyboardInterrupt as late:  # between the cell and its end
            return late
        return result.error_before_exec or result.error_in_exec

    def check(self) -> None:
        """The record on the disk holds the sections that hold, of this run and no other."""
        run = self.shell.user_ns.get("run")
        if not isinstance(run, Run):
            return
        content: Mapping[str, Any] = json.loads((run.folder / "record.json").read_text())
        if content["run"]["id"] != run.record.id:
            self.problem("the record is another run's")
        for name in self.needs:
            for section in RECORDS.get(name, ()):
                if (section in content) != (name in self.valid):
                    self.problem(f"{section} in the record: {section in content}")
        if ("monitor" in content) != bool({"chart", "report"} & self.valid):
            self.problem(f"monitor in the record: {'monitor' in content}")
        if "epochs" in content and len(content["epochs"]) != self.epochs:
            self.problem(f"{len(content['epochs'])} epochs in the record of {self.epochs}")
        if (content["state"] == "finished") != ("report" in self.valid):
            self.problem(f"the record's state is {content['state']}")
        samples = isinstance(run.monitor, gpumon.Monitor) and run.monitor.running
        if self.done[-1] == "interrupt" and not self.valid and samples:
            self.problem("the monitor runs, and nothing trains")

    def problem(self, text: str) -> None:
        self.problems.append(f"after {', '.join(self.done)}: {text}")


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
        if isinstance(run := kernel.shell.user_ns.get("run"), Run):
            run.record._left()  # as Python does at its end
        os._exit(0)
    os.waitpid(child, 0)
    return int((folder / "done").read_text()) + 1


def order(notebook: str, devices: int, folder: Path, seed: int) -> list[str]:
    """What did not hold in one order."""
    draw = random.Random(seed)
    text = (paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8")
    calls = LAUNCHED if "run.launch(" in text else IN_KERNEL
    often = {"begin": 3, "restart": 1, "kill": 1, ALL: 2, "interrupt": 3, "change": 1}
    often |= dict.fromkeys(calls, 2)  # what users do, and rarely in this order
    actions = draw.choices([*often], [*often.values()], k=LENGTH)
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
    measurement_rounds.LEAST_ROUNDS, measurement_rounds.MOST_SECONDS = 2, 0.0
    measurement_rounds.TURN_SECONDS = measurement_rounds.LOADER_SECONDS = 0.01
    problems, began = [], time.monotonic()
    for seed in seeds:
        problems += order(notebook, int(devices), Path(folder) / seed, int(seed))
    with temporary_files.own(replicas.PREFIX):
        pass  # the next run removes what killed kernels have left
    print(f"{len(seeds)} orders in {time.monotonic() - began:.0f} s", *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    import helpers.frameworks.pytorch
    import helpers.training.notebook_run  # noqa: F401

    sys.exit(main())
