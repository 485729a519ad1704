"""Each notebook's own training loop, ready to take steps on noise or on files.

The cells run as they stand, without the fairness check: a benchmark measures what people run.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias

from helpers.runner.notebook_code import run_cells

Take: TypeAlias = Callable[[int], Any]
"""Takes that many training steps, and returns when they are done."""


def names_of(notebook: str, folder: Path, until: str, **given: Any) -> dict[str, Any]:
    """The notebook's names where it comes to ``until``; ``given`` are its parameters."""
    with redirect_stdout(io.StringIO()):
        return run_cells(notebook, until=until, checked=False, **_parameters(folder) | given)


def _parameters(folder: Path) -> dict[str, Any]:
    data, run = str(folder / "data"), str(folder / "run")
    return {"data": data, "recipe": "demo", "devices": 1, "run": run}


def with_loops(
    notebook: str, folder: Path, use: Callable[[dict[str, Any], Take, Take], None], **given: Any
) -> None:
    """Call ``use`` with the notebook's names and its loop on synthetic data and on files.

    In each process that would train, in place of the notebook's training and measurements.
    """

    def only_measure(run: Any) -> None:
        def measure(synthetic: Take, files: Take, **others: Take) -> None:
            use(names, synthetic, files)

        names = run.names
        run.epochs = run.test = lambda *given: ()
        run.phase = lambda name: nullcontext()
        run.measure = measure

    run_cells(
        notebook,
        until="run.chart()",
        checked=False,
        changed=lambda text: text.replace("print(run)", "only_measure(run)"),
        only_measure=only_measure,
        **_parameters(folder) | given,
    )
