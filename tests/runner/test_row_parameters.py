"""A row of the registry may give its notebook parameters of its own."""

from dataclasses import replace

import pytest
from runner_tools import BEGIN, FINISH, PARAMETERS, Suite, images_fixture, suite_fixture

from helpers import frameworks

__all__ = ["images_fixture", "suite_fixture"]


def test_a_rows_parameters_reach_its_notebook_and_no_other(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(frameworks.ROWS[0], notebook="Own_MultiGPU", parameters={"way": "quick"})
    monkeypatch.setattr(frameworks, "ROWS", (*frameworks.ROWS, own))
    parameters = f'{PARAMETERS}\nway = "plain"'
    for name, way in (("Own_MultiGPU", "quick"), ("Other_MultiGPU", "plain")):
        suite.notebook(name, BEGIN, f"assert way == {way!r}", FINISH, parameters=parameters)
    assert suite.compare("--name", "both") == 0
    assert set(suite.states().values()) == {"finished"}
