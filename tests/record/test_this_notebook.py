"""Whose run it is: found by the notebook's file, however the notebook is run."""

from pathlib import Path
from typing import Any

import pytest
from ipython_shell import shell_fixture, write_notebook

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import ROWS
from helpers.record import this_notebook
from helpers.record.this_notebook import VARIABLE, VS_CODE, find

__all__ = ["shell_fixture"]


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a kernel runs of which nothing is known yet; the notebooks A to C are there."""
    for name in (VARIABLE, "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in "ABC":
        write_notebook(tmp_path / f"{name}.ipynb", "seed = 0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_runner_comes_first_then_vs_code_and_jupyter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("elsewhere/C.ipynb", str(folder / "C.ipynb")):  # both are what Jupyter says
        monkeypatch.setenv("JPY_SESSION_NAME", name)
        assert find({}).name == "C.ipynb"
    vs_code = {VS_CODE: str(folder / "B.ipynb")}
    assert find(vs_code) == folder / "B.ipynb"
    monkeypatch.setenv(VARIABLE, str(folder / "A.ipynb"))
    assert find(vs_code) == folder / "A.ipynb"


def test_a_console_is_no_notebook(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/console-1-4a2f")
    with pytest.raises(UserError, match=rf"run %env {VARIABLE}=NAME.ipynb in a cell") as raised:
        find({})
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/old.ipynb")
    with pytest.raises(UserError, match=r"NAME names notebooks/old.ipynb, which is not there"):
        find({})
    monkeypatch.setenv(VARIABLE, "mine")
    with pytest.raises(UserError, match=rf"{VARIABLE} names mine, which is not there: run %env"):
        find({})


@pytest.mark.parametrize("name", dict.fromkeys(row.notebook for row in ROWS))
def test_else_it_is_the_shipped_notebook_whose_cell_ran(
    name: str, folder: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = paths.NOTEBOOKS / f"{name}.ipynb"
    (begins,) = (cell for cell in this_notebook.code_cells(path)[0] if "globals())" in cell)
    other = begins.replace(", globals()", ",globals()")
    for typed in (other, begins):
        shell.history_manager.store_inputs(1, typed, typed)
        if typed == begins:
            assert find({}) == path
        else:
            with pytest.raises(UserError, match="name of this notebook is unknown"):
                find({})


def test_without_ipython_no_cell_was_run() -> None:
    assert this_notebook.history() == []
