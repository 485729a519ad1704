"""The registry is the only list of what is compared, and says what is so."""

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import records

from helpers import frameworks, paths
from helpers.errors import UserError
from helpers.frameworks import ROWS, Row, installed, name_of, rows_of, run_label, why_not
from helpers.results.comparison import Entry
from helpers.runner import plans, selection
from helpers.runner.selection import Offer

sys.path.append(str(paths.ROOT / "environments"))

import kernels

ALLOWED = {
    "environments/kernels.py": "what is installed for each kernel, and how it is tried",
    "helpers/frameworks/__init__.py": "the registry",
    "helpers/frameworks/capabilities.py": "the GPU code in each lock",
    "tests/kernels/own_networks.py": "somebody's own network for each",
}
MOST = 3
"""So many frameworks beside each other are an example; more are a list."""
FOLDERS = ("benchmarks", "data_prep", "environments", "gpumon", "helpers", "tests", "tools")


def names_of(row: Row) -> set[str]:
    return {row.name, row.framework, row.family, row.module, row.kernel, row.notebook}


def texts(node: ast.AST, depth: int = 2) -> Iterator[str]:
    """The strings of a list, tuple, set or dictionary, and of those directly in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif depth and isinstance(node, ast.List | ast.Tuple | ast.Set):
        for item in node.elts:
            yield from texts(item, depth - 1)
    elif depth and isinstance(node, ast.Dict):
        for part in (*node.keys, *node.values):
            if part is not None:
                yield from texts(part, depth - 1)


NAMES = [(row.family, names_of(row)) for row in ROWS]


def lists(source: str) -> list[int]:
    """The lines on which a list of frameworks begins."""
    named = {family for family, names in NAMES if any(name in source for name in names)}
    if len(named) <= MOST + 1:  # most files: they need not be parsed
        return []
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            said = set(texts(node))
            if len({family for family, names in NAMES if names & said}) > MOST + 1:
                found.append(node.lineno)
    return found


def test_there_is_no_second_list() -> None:
    for folder in FOLDERS:
        for path in sorted((paths.ROOT / folder).rglob("*.py")):
            name = path.relative_to(paths.ROOT).as_posix()
            if name not in ALLOWED:
                assert lists(path.read_text(encoding="utf-8")) == [], name


def test_a_second_list_would_be_found() -> None:
    assert lists("A = ('PyTorch', 'Keras', 'TensorFlow', 'MXNet', 'Chainer')") == [1]
    assert lists("A = {'pytorch': 1, 'tensorflow': 2, 'mxnet': 3, 'chainer': 4}") == [1]
    assert lists("A = [('Keras', 1), ('Chainer', 2), ('PyTorch', 3)]") == []


def test_no_two_rows_are_called_or_found_alike() -> None:
    """By their names, and by what plans, journals and records know of them."""
    for found in ([row.name for row in ROWS], [(row.notebook, row.kernel) for row in ROWS]):
        assert len(set(found)) == len(found)
    labels = [run_label(row.notebook, row.kernel) for row in ROWS]
    assert len(set(labels)) == len(ROWS)


def test_rows_look_alike_where_they_are_of_one_framework_and_nowhere_else() -> None:
    looks = {(row.family, row.colour, row.dark_colour, row.marker) for row in ROWS}
    families = {row.family for row in ROWS}
    for part in zip(*looks, strict=True):
        assert len(set(part)) == len(families)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_its_notebook_says_the_same(row: Row) -> None:
    path = paths.NOTEBOOKS / f"{row.notebook}.ipynb"
    metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    assert metadata["rosetta"]["framework"] == row.framework
    assert metadata["kernelspec"]["name"] == rows_of(row.notebook)[0].kernel


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_its_runs_are_shown_by_its_name(row: Row) -> None:
    content = records.make(row.framework, notebook=row.notebook, kernel=row.kernel)
    assert Entry(Path("run"), content).label == row.name


def test_another_users_own_notebook_is_shown_by_its_framework_and_what_its_name_ends_in() -> None:
    own = "Keras_MultiGPU_no_flip"
    assert name_of("Keras", own, "tensorflow") == "Keras no flip"
    assert name_of("Keras", own, "my-kernel") == "Keras no flip"
    assert name_of("Keras", "Keras_MultiGPU", "my-kernel") == "Keras"


def test_every_framework_notebook_has_a_row() -> None:
    differ = set(plans.framework_notebooks()) ^ {row.notebook for row in ROWS}
    assert not differ, f"notebooks/ and the registry differ in {sorted(differ)}"


def test_the_environments_have_the_same_kernels() -> None:
    differ = (set(kernels.KERNELS) - {"lab"}) ^ {row.kernel for row in ROWS}
    assert not differ, f"environments/kernels.py and the registry differ in {sorted(differ)}"


def test_an_optional_kernel_is_left_out_where_none_is_named() -> None:
    """By `make envs`, and by `compare`; its rows are run by their word, or by their notebooks'."""
    assert set(kernels.KERNELS) - set(kernels.USUAL) == {"horovod"}
    assert not {"Keras_Horovod", "TensorFlow_Horovod"} & {offer.notebook for offer in wanted()}
    assert notebooks_of(wanted(frameworks=["horovod"])) == ["Keras_Horovod", "TensorFlow_Horovod"]
    assert notebooks_of(wanted(frameworks=["tensorflow"])) == ["TensorFlow_MultiGPU"]
    assert notebooks_of(wanted(["TensorFlow_Horovod"])) == ["TensorFlow_Horovod"]


def wanted(notebooks: Sequence[str] = (), frameworks: Sequence[str] = ()) -> list[Offer]:
    return selection.chosen(plans.framework_notebooks(), notebooks, frameworks)


def notebooks_of(chosen: list[Offer]) -> list[str]:
    return [offer.notebook for offer in chosen]


def test_an_unknown_framework_is_refused_with_the_words_there_are() -> None:
    with pytest.raises(UserError, match="unknown framework 'kerras': did you mean 'keras'"):
        wanted(frameworks=["kerras"])


def test_a_row_says_how_its_steps_cannot_be_executed() -> None:
    for name, kernel in (("PyTorch_MultiGPU", "pytorch"), ("TensorFlow_MultiGPU", "tensorflow")):
        assert not why_not(name, kernel, 1, execution="compiled")
        assert not why_not(name, kernel, 2, execution="eager")
    assert "several devices" in why_not(
        "TensorFlow_MultiGPU", "tensorflow", 2, execution="compiled"
    )
    assert "jax.jit" in why_not("JAX_MultiGPU", "jax", 1, execution="eager")
    assert why_not("Chainer_MultiGPU", "chainer", 1, execution="compiled").startswith("execution ")
    assert not why_not("JAX_MultiGPU", "jax", 2, execution="compiled")
    assert "PyTorch_MultiGPU spans" in why_not("PyTorch_MultiGPU_Exp_Loss", "", 1, nodes=2)


def test_where_it_is_not_built_the_command_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "VENVS", tmp_path)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    said = """kernel 'horovod' is not installed: run 'make envs ARGS="--environments horovod"'"""
    why = installed.problem("horovod")
    assert why in (said, None), "None: it is built here, and Jupyter knows it"
    assert installed.how_to_make("pytorch") == "'make envs'"


def test_labels_and_notebooks_are_ordered_as_the_rows_and_others_follow() -> None:
    names = ["Zoo", "Chainer", "MXNet_Gluon_MultiGPU", "PyTorch bf16", "PyTorch", "Keras_MultiGPU"]
    assert sorted(names, key=frameworks.order) == [
        "PyTorch", "PyTorch bf16", "Keras_MultiGPU", "MXNet_Gluon_MultiGPU", "Chainer", "Zoo",
    ]  # fmt: skip
