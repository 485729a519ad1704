"""The registry of the compared frameworks, with one row for each notebook and environment.

What is compared is listed here alone. This folder also holds the frameworks' modules, each with the
functions that ``interface`` describes, and the code that they share. `make envs` imports this
module before anything is installed, so it uses only Python's standard library and no syntax newer
than Python 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of the comparison: a notebook in a kernel, and how it is shown.

    Plans, journals and records identify a row by its notebook and kernel. A notebook may have
    several rows, each in another kernel; the first is the notebook's own.
    """

    name: str
    """As tables and charts have it: the framework, and which notebook where it has several."""
    framework: str
    """As its module and its records name it."""
    module: str
    """``helpers.frameworks.<module>``."""
    kernel: str
    """The environment that its notebook runs in."""
    notebook: str
    """In ``notebooks/``, without ``.ipynb``."""
    colour: str
    """In charts, on a light page. All rows of a framework share theirs, and the marker."""
    dark_colour: str
    """The same on a dark page: the same hue, brighter."""
    marker: str
    """Matplotlib's sign for it."""
    one_node_only: str = ""
    """Why its notebook does not span several nodes; empty where it does."""
    many_nodes_only: bool = False
    """Whether it is run only where several nodes are asked for, or it is asked for by name."""
    rank_a_device: bool = False
    """Whether over several nodes each device has a process of its own; else each node has one."""
    ranks_only: str = ""
    """Why its notebook needs processes that a launcher starts on one machine too; else empty."""
    never_eager: str = ""
    """Why its steps cannot be executed operation by operation; empty where they can."""
    never_compiled: str = ""
    """Why its steps cannot be compiled; empty where they can."""
    shared_memory: bool = False
    """Whether its loader's workers write batches to /dev/shm."""
    optional: bool = False
    """Whether it is run only where that is asked for by name; so is a kernel made that only such
    rows have."""
    asked: str = ""
    """The word of ``--frameworks`` that asks for it, where that is not its framework."""

    @property
    def family(self) -> str:
        """The word that the framework's labels and notebooks begin with: ``MXNet``."""
        return self.framework.split()[0]

    @property
    def word(self) -> str:
        """What asks for it in ``--frameworks``: ``mxnet``, ``horovod``."""
        return self.asked or self.family.casefold()


_DEFINED_BY_RUN = "Chainer 7 defines by run: there is no graph to compile"
_JIT = "a step is a program of jax.jit; without it each operation would be a program of its own"
_NO_XLA = "XLA does not know Horovod's all-reduce"

ROWS = (
    Row(
        name="PyTorch",
        framework="PyTorch",
        module="pytorch",
        kernel="pytorch",
        notebook="PyTorch_MultiGPU",
        colour="#D55E00",
        dark_colour="#FF8F45",
        marker="o",
        rank_a_device=True,
        shared_memory=True,
    ),
    Row(
        name="PyTorch DataParallel",
        framework="PyTorch",
        module="pytorch",
        kernel="pytorch",
        notebook="PyTorch_MultiGPU_Exp_Loss",
        colour="#D55E00",
        dark_colour="#FF8F45",
        marker="o",
        shared_memory=True,
        one_node_only=(
            "DataParallel is one process, which drives the GPUs of one machine; PyTorch_MultiGPU "
            "spans nodes"
        ),
        never_compiled=(
            "replicate copies a network's compiled call, which computes with the original's weights"
        ),
    ),
    Row(
        name="Keras",
        framework="Keras",
        module="keras",
        kernel="tensorflow",
        notebook="Keras_MultiGPU",
        colour="#CC79A7",
        dark_colour="#EE9CCB",
        marker="s",
        one_node_only=(
            "Keras 3's fit does not work under MultiWorkerMirroredStrategy "
            "(github.com/keras-team/keras/issues/20585); TensorFlow_MultiGPU spans nodes"
        ),
    ),
    Row(
        name="TensorFlow",
        framework="TensorFlow",
        module="tensorflow",
        kernel="tensorflow",
        notebook="TensorFlow_MultiGPU",
        colour="#E69F00",
        dark_colour="#F7C85A",
        marker="^",
    ),
    Row(
        name="MXNet Gluon",
        framework="MXNet Gluon",
        module="mxnet",
        kernel="mxnet",
        notebook="MXNet_Gluon_MultiGPU",
        colour="#0072B2",
        dark_colour="#4FB3F0",
        marker="D",
    ),
    Row(
        name="Chainer",
        framework="Chainer",
        module="chainer",
        kernel="chainer",
        notebook="Chainer_MultiGPU",
        colour="#009E73",
        dark_colour="#2FD3A0",
        marker="v",
        one_node_only=(
            "Chainer's own updaters end at one machine; ChainerMN_MultiNode is Chainer across nodes"
        ),
        never_compiled=_DEFINED_BY_RUN,
    ),
    Row(
        name="ChainerMN",
        framework="Chainer",
        module="chainermn",
        kernel="chainer",
        notebook="ChainerMN_MultiNode",
        colour="#009E73",
        dark_colour="#2FD3A0",
        marker="v",
        rank_a_device=True,
        ranks_only="ChainerMN joins processes by MPI",
        many_nodes_only=True,
        never_compiled=_DEFINED_BY_RUN,
    ),
    Row(
        name="Keras Horovod",
        framework="Keras",
        module="keras_horovod",
        kernel="horovod",
        notebook="Keras_Horovod",
        colour="#CC79A7",
        dark_colour="#EE9CCB",
        marker="s",
        rank_a_device=True,
        ranks_only="Horovod joins processes by MPI",
        optional=True,
        asked="horovod",
        never_compiled=_NO_XLA,
    ),
    Row(
        name="TensorFlow Horovod",
        framework="TensorFlow",
        module="tensorflow_horovod",
        kernel="horovod",
        notebook="TensorFlow_Horovod",
        colour="#E69F00",
        dark_colour="#F7C85A",
        marker="^",
        rank_a_device=True,
        ranks_only="Horovod joins processes by MPI",
        optional=True,
        asked="horovod",
        never_compiled=_NO_XLA,
    ),
    Row(
        name="JAX",
        framework="JAX",
        module="jax",
        kernel="jax",
        notebook="JAX_MultiGPU",
        colour="#5B2A86",
        dark_colour="#C3B1F2",
        marker="X",
        never_eager=_JIT,
    ),
)
"""In the order in which they are run and shown. Colours: helpers/results/charts/style.py."""

KERNEL_VARIABLES = {"OPENBLAS_THREAD_TIMEOUT": "18"}
"""Variables that every kernel is started with. OpenBLAS is NumPy's, and so Chainer's on a CPU. Its
idle threads spin for 2**26 cycles before they sleep, on cores that loaders could use; after 2**18,
a step takes no longer. Source: docs/speed.md."""

NOTEBOOKS = {row.module: row.notebook for row in ROWS if row.name == row.framework}
"""Each module's own notebook; a framework's others are variations of it."""


def rows_of(notebook: str) -> list[Row]:
    """A shipped notebook's rows, its own kernel's first; a copy has none."""
    return [row for row in ROWS if row.notebook == notebook]


def original(notebook: str, module: str = "") -> str:
    """The shipped notebook that one is or was copied from; itself where there is none.

    A copy has a name that begins with the original's, or trains with the same module.
    """
    rows = [row for row in ROWS if module in ("", row.module)]
    named = [row.notebook for row in rows if notebook.startswith(row.notebook)]
    return max(named, key=len) if named else rows[0].notebook if module and rows else notebook


def row_of(notebook: str, kernel: str = "") -> Row | None:
    """The row of a notebook or its original in a kernel; None without any.

    In a kernel that it has no row for it has that of its own kernel.
    """
    rows = rows_of(original(notebook))
    return next((row for row in rows if row.kernel == kernel), rows[0] if rows else None)


def run_label(notebook: str, kernel: str) -> str:
    """What a run's folder and title begin with: the notebook, and a kernel that is not its own.

    ``JAX_MultiGPU``, and ``JAX_MultiGPU-my-kernel``.
    """
    row = row_of(notebook, kernel)
    is_own = not rows_of(notebook) or row is row_of(notebook)
    return notebook if is_own else f"{notebook}-{kernel}"


def name_of(framework: str, notebook: str, kernel: str = "") -> str:
    """A row's name; of a copy its original's, and what its own name adds to that.

    ``PyTorch-Copy1``, ``Keras no flip``.
    """
    row = row_of(notebook, kernel)
    if row is not None and row.framework == framework:
        return row.name + notebook.removeprefix(row.notebook).replace("_", " ")
    names = [row.name for row in ROWS if (row.framework, row.kernel) == (framework, kernel)]
    _, named, variant = notebook.partition("_MultiGPU")
    variant = (variant if named else notebook).replace("_", " ").strip()
    return f"{names[0] if names else framework} {variant}".rstrip()


def networks_of(module: str) -> str:
    """The module of ``helpers.networks`` that a module trains, and a recipe's key of it.

    That of the framework's first notebook: ChainerMN trains Chainer's networks.
    """
    named = {row.framework for row in ROWS if row.module == module}
    return next((row.module for row in ROWS if row.framework in named), module)


def order(name: str) -> tuple[int, str]:
    """Sorting key of a label or of a notebook's name: frameworks as above, others behind."""
    families = list(dict.fromkeys(row.family for row in ROWS))
    place = next((i for i, family in enumerate(families) if name.startswith(family)), len(families))
    return place, name


def why_not(notebook: str, kernel: str, nodes: int = 1, execution: str = "default") -> str:
    """Why a row does not train on so many nodes, or not so; empty if it does."""
    row = row_of(notebook, kernel)
    if row is None:
        return ""
    reasons = []
    if nodes > 1:
        reasons.append((f"nodes {nodes}", row.one_node_only))
    if execution == "eager":
        reasons.append(("execution eager", row.never_eager))
    if execution == "compiled":
        reasons.append(("execution compiled", row.never_compiled))
    return next((f"{what}: {why}" for what, why in reasons if why), "")


def optional_kernels() -> list[str]:
    """The kernels that are made only where they are asked for: no other row needs them."""
    usual = {row.kernel for row in ROWS if not row.optional}
    return list(dict.fromkeys(row.kernel for row in ROWS if row.kernel not in usual))
