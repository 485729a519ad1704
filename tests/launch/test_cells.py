"""The code that a run's ranks run."""

from types import SimpleNamespace
from typing import Any

import pytest

from helpers.launch import cells
from helpers.launch.cells import Cells


class Shell:
    """What IPython's shell has of it."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {"In": [""]}
        self.heard: Any = None
        self.events = SimpleNamespace(register=self._register)

    def _register(self, event: str, listener: Any) -> None:
        assert event == "post_run_cell"
        self.heard = listener

    def transform_cell(self, text: str) -> str:
        return text.replace("%pylab", "get_ipython().run_line_magic('pylab', '')")

    def run(self, text: str, error: Exception | None = None) -> None:
        self.user_ns["In"].append(text)
        number = len(self.user_ns["In"]) - 1
        ended = {"error_before_exec": None, "error_in_exec": error, "execution_count": number}
        self.heard(SimpleNamespace(**ended))


def test_in_a_notebook_it_is_what_was_run_without_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = Shell()
    shell.user_ns["In"].append("devices = 2")
    monkeypatch.setattr(cells, "running_shell", lambda: shell)
    found = Cells("A_MultiGPU", {})
    shell.run("%pylab\nrate = 1\n")
    shell.run("rate = unknown", NameError("unknown"))
    shell.run("rate = 2")
    shell.user_ns["In"].append("this_run.rehearse(lesson)")  # it runs while it is asked for
    assert found.so_far() == [
        ("cell 1", "devices = 2"),
        ("cell 2", "\nrate = 1\n"),
        ("cell 4", "rate = 2"),
        ("cell 5", "this_run.rehearse(lesson)"),
    ]


def test_outside_jupyter_it_is_the_notebooks_with_what_was_given() -> None:
    found = Cells("PyTorch_MultiGPU", {"epochs": 1, "nodes": 2}).so_far()
    texts = [text for _, text in found]
    assert texts[1] == "epochs = 1\nnodes = 2" and texts[0].startswith("recipe = ")
    assert "this_run.rehearse(" in texts[-1]
