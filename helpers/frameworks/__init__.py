"""The registry of the compared frameworks, with one row for each notebook and environment.

`make envs` imports it before anything is installed: only Python 3.9's standard library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A notebook and the kernel that it runs in.

    ``name`` is the label in tables and charts, ``framework`` the name in records. A text says why
    the notebook does not span nodes, needs a launcher's processes on one machine too, cannot
    execute its steps operation by operation, or cannot compile them; else it is empty.
    """

    name: str
    framework: str
    module: str
    kernel: str
    notebook: str
    one_node_only: str = ""
    many_nodes_only: bool = False
    """Whether it is run only where several nodes are asked for, or it is asked for by name."""
    rank_a_device: bool = False
    """Whether over several nodes each device has a process of its own; else each node has one."""
    ranks_only: str = ""
    never_eager: str = ""
    never_compiled: str = ""
    optional: bool = False
    """Whether it is run only where its kernel is asked for by name, as only then that is made."""

    @property
    def family(self) -> str:
        """The word that the framework's labels and notebooks begin with: ``MXNet``."""
        return self.framework.split()[0]

    @property
    def word(self) -> str:
        """Its name in ``--frameworks``: ``mxnet``, ``horovod``."""
        return self.kernel if self.optional else self.family.casefold()


_DEFINED_BY_RUN = "Chainer 7 defines by run: there is no graph to compile"
_JIT = "a step is a program of jax.jit; without it each operation would be a program of its own"
_HOROVOD: dict[str, Any] = {
    "rank_a_device": True,
    "ranks_only": "Horovod joins processes by MPI",
    "optional": True,
    "never_compiled": "XLA does not know Horovod's all-reduce",
}

ROWS = (
    Row("PyTorch", "PyTorch", "pytorch", "pytorch", "PyTorch_MultiGPU", rank_a_device=True),
    Row(
        "PyTorch DataParallel",
        "PyTorch",
        "pytorch",
        "pytorch",
        "PyTorch_MultiGPU_DataParallel",
        one_node_only=(
            "DataParallel is one process, which drives the GPUs of one machine; PyTorch_MultiGPU "
            "spans nodes"
        ),
        never_compiled=(
            "replicate copies a network's compiled call, which computes with the original's weights"
        ),
    ),
    Row(
        "Keras",
        "Keras",
        "keras",
        "tensorflow",
        "Keras_MultiGPU",
        one_node_only=(
            "Keras 3's fit does not work under MultiWorkerMirroredStrategy "
            "(github.com/keras-team/keras/issues/20585); TensorFlow_MultiGPU spans nodes"
        ),
    ),
    Row("TensorFlow", "TensorFlow", "tensorflow", "tensorflow", "TensorFlow_MultiGPU"),
    Row("MXNet Gluon", "MXNet Gluon", "mxnet", "mxnet", "MXNet_Gluon_MultiGPU"),
    Row(
        "Chainer",
        "Chainer",
        "chainer",
        "chainer",
        "Chainer_MultiGPU",
        one_node_only=(
            "Chainer's own updaters end at one machine; ChainerMN_MultiNode is Chainer across nodes"
        ),
        never_compiled=_DEFINED_BY_RUN,
    ),
    Row(
        "ChainerMN",
        "Chainer",
        "chainermn",
        "chainer",
        "ChainerMN_MultiNode",
        rank_a_device=True,
        ranks_only="ChainerMN joins processes by MPI",
        many_nodes_only=True,
        never_compiled=_DEFINED_BY_RUN,
    ),
    Row("Keras Horovod", "Keras", "keras_horovod", "horovod", "Keras_Horovod", **_HOROVOD),
    Row(
        "TensorFlow Horovod",
        "TensorFlow",
        "tensorflow_horovod",
        "horovod",
        "TensorFlow_Horovod",
        **_HOROVOD,
    ),
    Row("JAX", "JAX", "jax", "jax", "JAX_MultiGPU", never_eager=_JIT),
)
"""In the order in which they are run and shown."""

LOOKS = {
    "PyTorch": ("#D55E00", "#FF8F45", "o"),
    "Keras": ("#CC79A7", "#EE9CCB", "s"),
    "TensorFlow": ("#E69F00", "#F7C85A", "^"),
    "MXNet": ("#0072B2", "#4FB3F0", "D"),
    "Chainer": ("#009E73", "#2FD3A0", "v"),
    "JAX": ("#5B2A86", "#C3B1F2", "X"),
}
"""By family: its colour on a light page, and on a dark one, and Matplotlib's sign for it."""

KERNEL_VARIABLES = {"OPENBLAS_THREAD_TIMEOUT": "18"}
"""Variables that every kernel is started with: idle threads of OpenBLAS, NumPy's, spin for 2**18
cycles and not 2**26 before they sleep, on cores that loaders could use (docs/speed.md)."""

NOTEBOOKS = {row.module: row.notebook for row in ROWS if row.name == row.framework}
"""Each module's own notebook; a framework's others are variations of it."""


def original(notebook: str, module: str = "") -> str:
    """The shipped notebook that a copy has its name or module from; else the notebook itself."""
    rows = [row for row in ROWS if module in ("", row.module)]
    named = [row.notebook for row in rows if notebook.startswith(row.notebook)]
    return max(named, key=len) if named else rows[0].notebook if module and rows else notebook


def row_of(notebook: str) -> Row | None:
    """The row of a notebook or its original; None without any."""
    shipped = original(notebook)
    return next((row for row in ROWS if row.notebook == shipped), None)


def name_of(framework: str, notebook: str, kernel: str = "") -> str:
    """A row's name; of a copy its original's, and what its own adds to that: ``Keras no flip``."""
    row = row_of(notebook)
    if row is not None and row.framework == framework:
        return row.name + notebook.removeprefix(row.notebook).replace("_", " ")
    names = [row.name for row in ROWS if (row.framework, row.kernel) == (framework, kernel)]
    _, named, variant = notebook.partition("_MultiGPU")
    variant = (variant if named else notebook).replace("_", " ").strip()
    return f"{names[0] if names else framework} {variant}".rstrip()


def networks_of(module: str) -> str:
    """The module of ``helpers.networks`` that a module trains: ChainerMN trains Chainer's."""
    named = {row.framework for row in ROWS if row.module == module}
    return next((row.module for row in ROWS if row.framework in named), module)


def order(name: str) -> tuple[int, str]:
    """Sorting key of a label or of a notebook's name: frameworks as above, others behind."""
    families = list(dict.fromkeys(row.family for row in ROWS))
    place = next((i for i, family in enumerate(families) if name.startswith(family)), len(families))
    return place, name


def why_not(notebook: str, nodes: int = 1, execution: str = "default") -> str:
    """Why a notebook does not train on this number of nodes or in this way; empty if it does."""
    row = row_of(notebook)
    if row is None:
        return ""
    if nodes > 1 and row.one_node_only:
        return f"nodes {nodes}: {row.one_node_only}"
    never = {"eager": row.never_eager, "compiled": row.never_compiled}.get(execution)
    return f"execution {execution}: {never}" if never else ""


def optional_kernels() -> list[str]:
    """The kernels that are built only on request, because no other row needs them."""
    usual = {row.kernel for row in ROWS if not row.optional}
    return list(dict.fromkeys(row.kernel for row in ROWS if row.kernel not in usual))
