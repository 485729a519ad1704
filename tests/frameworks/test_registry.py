"""The registry is the only list of what is compared, and says what is so."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import records

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import ROWS, Row, name_of, why_not
from helpers.results.comparison import Entry
from helpers.runner import selection

sys.path.append(str(paths.ROOT / "environments"))

import kernels


def test_no_two_rows_are_called_or_found_alike() -> None:
    """By their names, and by what plans, journals and records know of them."""
    for found in ([row.name for row in ROWS], [row.notebook for row in ROWS]):
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_its_notebook_says_the_same(row: Row) -> None:
    path = paths.NOTEBOOKS / f"{row.notebook}.ipynb"
    metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    assert metadata["rosetta"]["framework"] == row.framework
    assert metadata["kernelspec"]["name"] == row.kernel


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
    differ = set(selection.framework_notebooks()) ^ {row.notebook for row in ROWS}
    assert not differ, f"notebooks/ and the registry differ in {sorted(differ)}"


def test_the_environments_have_the_same_kernels() -> None:
    differ = (set(kernels.KERNELS) - {"lab"}) ^ {row.kernel for row in ROWS}
    assert not differ, f"environments/kernels.py and the registry differ in {sorted(differ)}"


def wanted(notebooks: Sequence[str] = (), frameworks: Sequence[str] = ()) -> list[str]:
    return [offer.notebook for offer in selection.chosen(notebooks, frameworks)]


def test_an_optional_kernel_is_left_out_where_none_is_named() -> None:
    """By `make envs`, and by `compare`; its rows are run by their word, or by their notebooks'."""
    assert set(kernels.KERNELS) - set(kernels.USUAL) == {"horovod"}
    assert not {"Keras_Horovod", "TensorFlow_Horovod"} & set(wanted())
    assert wanted(frameworks=["horovod"]) == ["Keras_Horovod", "TensorFlow_Horovod"]
    assert wanted(frameworks=["tensorflow"]) == ["TensorFlow_MultiGPU"]
    assert wanted(["TensorFlow_Horovod"]) == ["TensorFlow_Horovod"]


def test_an_unknown_framework_is_refused_with_the_words_there_are() -> None:
    with pytest.raises(UserError, match="unknown framework 'kerras': did you mean 'keras'"):
        wanted(frameworks=["kerras"])


def test_a_row_says_how_its_steps_cannot_be_executed() -> None:
    for name in ("PyTorch_MultiGPU", "TensorFlow_MultiGPU"):
        assert not why_not(name, execution="compiled")
        assert not why_not(name, execution="eager")
    assert "jax.jit" in why_not("JAX_MultiGPU", execution="eager")
    assert why_not("Chainer_MultiGPU", execution="compiled").startswith("execution ")
    assert not why_not("JAX_MultiGPU", execution="compiled")
    assert "PyTorch_MultiGPU spans" in why_not("PyTorch_MultiGPU_DataParallel", nodes=2)
