"""Run a notebook that is a program: its names before it trains, and functions where it trains.

For the notebooks that ``helpers.run`` serves. As a program it trains what ``resuming`` tells it.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import own_networks
from notebook_cells import write_noise_images

from helpers.fairness.check_results import FairnessCheck
from helpers.frameworks import row_of
from helpers.runner.notebook_code import run_cells
from helpers.training import samplers

Names = dict[str, Any]
Changes = Mapping[str, str]

CHECK = "run.check(replica, "
MEASURE = "files = chain.from_iterable("
"""The first line of what is measured after the test."""
GIVEN = ("build_model", "make_replica", "train_steps", "predict", "make_loader")
"""What the notebook gives to ``run.check``."""
UNCHANGED: Changes = MappingProxyType({})


def names_of(
    notebook: str,
    folder: Path,
    *,
    devices: int = 1,
    changes: Changes = UNCHANGED,
    until: str = CHECK,
    **given: Any,
) -> Names:
    """The names that a notebook has defined before its first cell that holds ``until``.

    Args:
        changes: of its text, each of which it has to have.
        given: more of its parameters.
    """
    said: Names = {"devices": devices, "run": str(folder / "run"), "recipe": "demo"} | given
    if "data" not in said:
        said["data"] = str(write_noise_images(folder))
    missing = set(changes)

    def changed(text: str) -> str:
        for sound, broken in changes.items():
            if sound in text:
                missing.discard(sound)
                text = text.replace(sound, broken)
        return text

    found = run_cells(notebook, until=until, changed=changed, **said)
    assert not missing, f"{notebook} lacks {missing}"
    return found


def module_of(notebook: str) -> str:
    row = row_of(notebook)
    assert row is not None
    return row.module


def own_names(notebook: str, folder: Path, **given: Any) -> Names:
    """The names of a notebook with a small custom network, whose check takes no time."""
    recipe = own_networks.recipe_of(folder / "recipe", module_of(notebook))
    return names_of(notebook, folder, recipe=str(recipe), **given)


def train(
    notebook: str,
    folder: Path,
    *,
    checked: bool = True,
    changes: Changes = UNCHANGED,
    **given: Any,
) -> Any:
    """The run of a notebook up to its test, and nothing measured; checked before, if so."""

    def changed(text: str) -> str:
        for sound, other in changes.items():
            text = text.replace(sound, other)
        return re.sub(rf"^( +){re.escape(MEASURE)}", r"\1return\n\g<0>", text, flags=re.M)

    how: Names = {"devices": 2, "run": str(folder), "recipe": "demo"} | given
    names = run_cells(
        notebook,
        until="run.chart()",
        wanted=lambda text: not text.startswith(MEASURE),
        changed=changed,
        checked=checked,
        **how,
    )
    samplers.stop(names["run"].monitor)
    return names["run"]


def in_each(names: Names, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``function(names, *args)`` gives in each process that would train."""
    run, own = names["run"], {name: names[name] for name in names if not name.startswith("__")}

    def main(rank: int, world: int) -> list[Any]:
        run.device(rank)
        own["dist"].init_process_group(run.backend)
        found: list[Any] = run.gather(function(own, *args))
        own["dist"].destroy_process_group()
        return found

    try:
        return run.launch(main) if "dist" in names else run.gather(function(own, *args))
    finally:
        samplers.stop(run.monitor)


def fairness_check(names: Names) -> FairnessCheck:
    """That of the notebook, of what its names stand for now."""
    found: FairnessCheck = in_each(names, _check)[0]
    return found


def _check(names: Names) -> FairnessCheck:
    run, replica = names["run"], names["make_replica"](names["build_model"]())
    run.check(replica, *(names[name] for name in GIVEN))
    found: FairnessCheck = run.loop.fairness
    return found


def _main(notebook: str, folder: str, resumes: str, recipe: str, epochs: str) -> None:
    how: Names = {"epochs": int(epochs), "batch_size": 8, "resume": resumes == "1", "data": "auto"}
    train(notebook, Path(folder), checked=False, recipe=recipe, **how)


if __name__ == "__main__":
    _main(*sys.argv[1:])
