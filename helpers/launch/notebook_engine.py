"""Run a notebook's cells in this process, and store their output in the notebook file.

A kernel would be a child, and a child loses the descriptors by which MPI's ranks meet.
"""

import base64
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from helpers import paths
from helpers.launch import cell_output

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INLINE = "module://matplotlib_inline.backend_inline"


class CellError(Exception):
    """A cell has failed: the message is the traceback, the cause the cell's own error."""


class _Outputs:
    """What the running cell has shown so far, as a notebook's file has it."""

    shown: list[dict[str, Any]] = []  # noqa: RUF012 (of the one shell of this process)
    taken = 0

    @classmethod
    def begin(cls, outputs: list[dict[str, Any]]) -> None:
        cls.shown, cls.taken = outputs, 0

    @classmethod
    def add(cls, kind: str, **more: Any) -> None:
        found = cell_output.bounded(kind, more, cls.taken)
        cls.taken += cell_output.size(more)
        if found is None:
            return
        kind, content = found
        last = cls.shown[-1] if cls.shown else {}
        if kind == "stream" and last.get("name") == content["name"]:
            last["text"] += content["text"]
        else:
            cls.shown.append({"output_type": kind, **content})


class _Result(DisplayHook):
    """A cell's last value."""

    def start_displayhook(self) -> None:
        """Nothing comes before it."""

    write_output_prompt = finish_displayhook = start_displayhook

    def write_format_data(
        self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None
    ) -> None:
        assert self.shell is not None  # this hook is a shell's
        number = self.shell.execution_count
        data, about = _plain(format_dict), md_dict or {}
        _Outputs.add("execute_result", data=data, metadata=about, execution_count=number)


class _Displayed(DisplayPublisher):
    """What ``display`` is given."""

    def publish(self, data: Any, metadata: Any = None, *more: Any, **named: Any) -> None:
        _Outputs.add("display_data", data=_plain(data), metadata=metadata or {})


class _Shell(InteractiveShell):
    displayhook_class = Type(_Result)
    display_pub_class = Type(_Displayed)

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        _Outputs.add("error", ename=etype.__name__, evalue=str(evalue), traceback=list(stb))


class _Stream(io.TextIOBase):
    """Goes to the notebook, and to the process's own stream, which is its log."""

    def __init__(self, name: str, log: TextIO) -> None:
        self._name, self._log = name, log

    def write(self, text: str) -> int:
        _Outputs.add("stream", name=self._name, text=text)
        return self._log.write(text)

    def flush(self) -> None:
        self._log.flush()

    def fileno(self) -> int:
        return self._log.fileno()


def execute(source: Path, target: Path, reached: Callable[[int], None] = lambda cell: None) -> None:
    """Run the cells of ``source``; ``target`` is it with what they have shown, from cell to cell.

    ``reached`` is called with each cell's place before it runs.

    Raises:
        CellError: from a cell's own error.
    """
    os.environ["MPLBACKEND"] = _INLINE
    content = json.loads(source.read_text(encoding="utf-8"))
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    shell = _Shell.instance(config=config, user_module=ModuleType("__main__"))
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Stream("stdout", before[0]), _Stream("stderr", before[1])
    try:
        for number, cell in enumerate(content["cells"]):
            if cell["cell_type"] != "code":
                continue
            reached(number)
            cell["outputs"] = []
            _Outputs.begin(cell["outputs"])
            cell["execution_count"] = shell.execution_count
            found = shell.run_cell("".join(cell["source"]), store_history=True)
            error = found.error_before_exec or found.error_in_exec
            try:
                paths.write_atomically(target, json.dumps(content, indent=1) + "\n")
            except OSError:
                if error is None:  # else the cell's own error counts: a full disk may be its cause
                    raise
            if error is not None:
                shown = "\n".join(_Outputs.shown[-1].get("traceback", [str(error)]))
                raise CellError(_COLOUR.sub("", shown)) from error
    finally:
        sys.stdout, sys.stderr = before


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """The data of each type as a notebook's file has them: pictures in base64."""
    return {
        kind: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for kind, value in data.items()
    }
