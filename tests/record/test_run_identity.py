"""What makes two runs the same run, and what is left out of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import records
from ipython_shell import run_all, shell_fixture, write_notebook

from helpers import record
from helpers.record import run_identity

__all__ = ["shell_fixture"]


def test_the_code_is_the_notebooks_and_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("helpers/a.py", "data_prep/b.py", "gpumon/c.py", "notebooks/N.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"cells": []}')
    monkeypatch.setattr("helpers.paths.ROOT", tmp_path)
    monkeypatch.setattr("helpers.paths.NOTEBOOKS", tmp_path / "notebooks")

    def digest() -> str:
        run_identity._packages.cache_clear()
        return run_identity.follow(tmp_path / "notebooks/N.ipynb")()

    def cell(source: str, *tags: str) -> str:
        cell = {"cell_type": "code", "source": [source], "metadata": {"tags": tags}}
        return json.dumps({"cells": [cell]})

    before = digest()
    (tmp_path / "gpumon/c.py").write_text("looks on")
    (tmp_path / "notebooks/N.ipynb").write_text(cell("seed = 1", "parameters"))
    assert digest() == before
    (tmp_path / "notebooks/N.ipynb").write_text(cell("step()"))
    changed = digest()
    (tmp_path / "helpers/a.py").write_text("other")
    assert len({before, changed, digest()}) == 3
    run_identity._packages.cache_clear()


PARAMETERS = "epochs = 1"
CELLS = ("this_run = begin()", "flip = True", "%pwd\nprint(flip)\n", "done = 1")


@pytest.fixture(name="notebook")
def notebook_fixture(tmp_path: Path) -> Path:
    return write_notebook(tmp_path / "N.ipynb", PARAMETERS, *CELLS)


def code_of(shell: Any, notebook: Path, *texts: str) -> str:
    """The digest in the record of a run that was interrupted after these cells."""
    shell.user_ns["begin"] = lambda: records.started(notebook.parent, notebook=notebook)
    run_all(shell, PARAMETERS, "# injected\nepochs = 2", *texts)
    shell.user_ns["this_run"].fail(KeyboardInterrupt())
    found: str = record.read(notebook.parent)["run"]["code"]
    return found


def test_a_whole_notebook_has_the_digest_of_its_file(shell: Any, notebook: Path) -> None:
    file = run_identity.follow(notebook)()
    assert code_of(shell, notebook, *CELLS) == file
    again = (*CELLS, PARAMETERS, CELLS[1], "", CELLS[1] + "\n")
    assert code_of(shell, notebook, *again) == file


@pytest.mark.parametrize("place", range(len(CELLS)))
def test_an_edited_cell_that_ran_gives_another_digest(
    shell: Any, notebook: Path, place: int
) -> None:
    file = run_identity.follow(notebook)()
    edited = [cell + "; more = 1" if place == n else cell for n, cell in enumerate(CELLS)]
    unsaved = code_of(shell, notebook, *edited)
    assert code_of(shell, notebook, *edited, *edited[1:]) == unsaved
    write_notebook(notebook, PARAMETERS, *edited)
    saved = code_of(shell, notebook, *edited)
    assert file not in (unsaved, saved)
    as_it_was = code_of(shell, notebook, *CELLS)
    assert as_it_was not in (unsaved, saved, file)
    write_notebook(notebook, PARAMETERS, *CELLS)
    assert code_of(shell, notebook, *CELLS) == file


def test_a_cell_that_is_edited_and_saved_while_the_run_goes_on_counts(
    shell: Any, notebook: Path
) -> None:
    run = records.started(notebook.parent, notebook=notebook)
    before = run.content["run"]["code"]
    edited = (*CELLS[:1], "flip = False", *CELLS[2:])
    write_notebook(notebook, PARAMETERS, *edited)
    run_all(shell, CELLS[1])
    run.add("monitor", {})
    assert run.content["run"]["code"] == before
    run_all(shell, edited[1])
    run.add("monitor", {})
    assert run.content["run"]["code"] != before
