"""papermill's way to execute a notebook, as the runner needs it. To import this takes a while."""

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq.asyncio
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine

from helpers.frameworks.installed import required
from helpers.launch import cell_output
from helpers.runner import notebook_links


class Manager(required("jupyter_client").AsyncKernelManager):  # type: ignore[misc]
    """A kernel manager that knows its clients, so that their sockets can be closed."""

    def __init__(self, kernel: str) -> None:
        super().__init__(kernel_name=kernel, context=zmq.asyncio.Context())
        self.clients: list[Any] = []

    def client(self, **options: Any) -> Any:
        self.clients.append(super().client(context=self.context, **options))
        return self.clients[-1]


class Client(PapermillNotebookClient):  # type: ignore[misc]
    """papermill's client, which bounds the output of each cell."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.taken: Counter[int] = Counter()

    def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        kind, content = msg["msg_type"], msg["content"]
        found = cell_output.bounded(kind, content, self.taken[cell_index])
        self.taken[cell_index] += cell_output.size(content)
        if found is None:
            return None
        kind, content = found
        header = msg["header"] | {"msg_type": kind}
        msg = msg | {"header": header, "msg_type": kind, "content": content}
        return super().output(outs, msg, display_id, cell_index)

    def clear_output(self, outs: Any, msg: Any, cell_index: int) -> None:
        del self.taken[cell_index]
        super().clear_output(outs, msg, cell_index)


def of(
    manager: Manager, source: Path, target: Path, reached: Callable[[str, int, int], None]
) -> type[Engine]:
    """The engine that executes ``source`` in the manager's kernel, and reports each cell."""

    class Watched(Engine):  # type: ignore[misc]
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> None:
            sections = notebook_links.section_of_each_cell(nb_man.nb.cells)
            notebook_links.rewrite(nb_man.nb.cells, [source.parent], target.parent)

            def on_cell_start(cell: Any, cell_index: int) -> None:
                reached(sections[cell_index], cell_index + 1, len(sections))

            Client(
                nb_man,
                km=manager,
                kernel_name=kernel_name,
                startup_timeout=300,  # importing a framework from a cold disk
                timeout=None,
                log=logging.getLogger("papermill"),
                on_cell_start=on_cell_start,
            ).execute()

    return Watched
