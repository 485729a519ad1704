"""How a run begins, and what it says where it cannot; the frameworks' tests train."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
import records
from ipython_shell import shell_fixture, write_notebook
from runner_tools import images_fixture

import helpers
from helpers import paths, record
from helpers.errors import UnsupportedError, UserError
from helpers.frameworks import ROWS, rank_info, replicas
from helpers.frameworks.rank_info import Place
from helpers.record import run_identity, this_notebook
from helpers.results.comparison import Entry
from helpers.run import Run
from helpers.training import checkpoint, launching, parameters, samplers, showing

__all__ = ["images_fixture", "shell_fixture"]


@pytest.fixture(name="cell")
def cell_fixture(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Parameters with which a run begins here, of modules that know no framework."""
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(replicas, "warm_up", lambda: None)
    for row in ROWS:
        name = f"helpers.frameworks.{row.module}"
        module = ModuleType(name)
        module.__dict__.update(
            SKIPPED={},
            versions=dict,
            list_devices=lambda kind, count: [kind] * count,
            configure=lambda precision, kind: None,
        )
        monkeypatch.setitem(sys.modules, name, module)
    return {"recipe": "demo", "data": str(images), "devices": 1, "batch_size": 8}


def said_to_be(name: str, folder: Path | None = None) -> dict[str, Any]:
    """What the ``globals()`` of a notebook in VS Code say; with a folder, of one made there."""
    if folder is not None:
        write_notebook(folder / f"{name}.ipynb", "seed = 0", "helpers.begin(framework, globals())")
    return {this_notebook.VS_CODE: str((folder or paths.NOTEBOOKS) / f"{name}.ipynb")}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"seed": "one"}, "seed is 'one': give a whole number from 0 to 2147483647$"),
        ({"seed": True}, "seed is True: give"),
        ({"seed": 2**31}, "seed is 2147483648: give"),
        ({"data": None}, "data is None: give a name in quotes, or 'auto'"),
        ({"recipe": ["demo"]}, r"recipe is \['demo'\]: give a name"),
        ({"resume": "False"}, "resume is 'False': give True or False"),
        ({"warmup_epochs": 10**400}, "warmup_epochs is 1000"),
        ({"num_workers": "many"}, "workers is 'many': give a whole number from 0 to 1024, or 'def"),
        ({"batch_size": True}, "batch_size is True: give a whole number from 1 to 2147483647, or"),
        ({"epochs": 0}, "epochs is 0: give a whole number from 1 to 2147483647, or 'default'"),
        ({"execution": "fast"}, "execution: Invalid enum value 'fast'"),
        ({"precision": "fp8"}, "precision: Invalid enum value 'fp8'"),
    ],
)
def test_a_parameter_typed_wrongly_is_named_before_anything_starts(
    typed: dict[str, Any], said: str, cell: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        helpers.begin("pytorch", cell | typed | said_to_be("PyTorch_MultiGPU"))
    assert not (tmp_path / "runs").exists()


def test_without_a_network_for_its_framework_nothing_is_begun(
    cell: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No image is made: the run is skipped, with the reason."""
    too_late = Mock(side_effect=AssertionError("something was prepared"))
    monkeypatch.setattr(parameters, "prepare_data", too_late)
    (tmp_path / "mine.py").write_text("def net(outputs):\n    raise AssertionError\n")
    recipe = tmp_path / "mine.toml"
    recipe.write_text('recipe = "demo"\n[model]\nmxnet = "mine.py:net"\n')
    names = cell | {"recipe": str(recipe)}
    reason = "the recipe mine has no network of its own for keras, only for mxnet"
    with pytest.raises(UnsupportedError, match=reason):
        helpers.begin("keras", names | said_to_be("Keras_MultiGPU"))
    with pytest.raises(AssertionError, match="something was prepared"):
        helpers.begin("mxnet", names | said_to_be("MXNet_Gluon_MultiGPU"))


def end(run: Run) -> None:
    run.record.fail(KeyboardInterrupt())


def test_a_copy_runs_under_its_own_name(cell: dict[str, Any], tmp_path: Path) -> None:
    for name, label in {
        "PyTorch_MultiGPU-Copy1": "PyTorch-Copy1",
        "no_flip": "PyTorch no flip",
    }.items():
        run = helpers.begin("pytorch", cell | said_to_be(name, tmp_path))
        assert run.folder == tmp_path / "runs" / "interactive" / f"{name}-1x"
        content: Any = run.record.content
        assert content["run"]["notebook"] == name
        assert content["run"]["code"] == run_identity.follow(tmp_path / f"{name}.ipynb")()
        assert Entry(run.folder, content).label == label
        end(run)


@pytest.mark.parametrize(
    ("name", "of", "said"),
    [
        ("PyTorch_MultiGPU_DataParallel-Copy1", "pytorch", "PyTorch_MultiGPU spans"),
        ("mine", "chainer", "ChainerMN_MultiNode is Chainer across"),
    ],
)
def test_a_copy_is_refused_what_its_original_is(
    name: str, of: str, said: str, cell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_rank(monkeypatch)
    with pytest.raises(UnsupportedError, match=said):
        helpers.begin(of, cell | said_to_be(name, tmp_path))
    end(helpers.begin("chainermn", cell | said_to_be("mine", tmp_path)))


def on_a_rank(patch: pytest.MonkeyPatch, rank: int = 0) -> None:
    """From now on this process is one of two nodes' ranks; no process waits for the other."""
    addresses, names = ("127.0.0.1:1", "127.0.0.1:2"), ("here", "here")
    given: dict[str, Any] = {"virtual": True, "devices": 1, "kind": "cpu", "port": 3}
    where = Place(rank, 2, 2, hosts=names, addresses=addresses, interfaces=("lo",) * 2, **given)
    patch.setattr(rank_info, "here", lambda: where)


def test_the_first_ranks_record_is_that_of_all(
    cell: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (1, 0):
        on_a_rank(monkeypatch, rank)
        run = helpers.begin("pytorch", cell | said_to_be("PyTorch_MultiGPU"))
        assert (run.rank, run.setup.replicas) == (rank, 2)
        run.record.finish() if rank else end(run)
        assert (run.folder / record.FILE).exists() == (rank == 0)


def test_a_notebook_of_mpi_says_how_it_is_run(cell: dict[str, Any], tmp_path: Path) -> None:
    said = "which a launcher starts: in a terminal run: rosetta run --notebooks mine --devices N$"
    with pytest.raises(UserError, match=said):
        helpers.begin("chainermn", cell | said_to_be("mine", tmp_path))


def test_a_training_that_begins_again_leaves_nothing_of_the_one_before(
    cell: dict[str, Any], tmp_path: Path
) -> None:
    """Else a cell would show the result of an earlier training; a report waits for the new one."""
    run = helpers.begin("pytorch", cell | said_to_be("N", tmp_path))
    whole = records.make("PyTorch", 1)
    for section in ("epochs", "training", "test", "files", "synthetic", "loader", "attribution"):
        run.record.add(section, whole[section])
    try:
        launching.begin_training(run)
        found = record.read(run.folder)
        assert not found.keys() & {"epochs", "training", "test", "files", "loader", "attribution"}
    finally:
        samplers.stop(run.monitor)
        end(run)


def test_the_checkpoint_goes_only_once_the_record_is_whole(
    cell: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run that could not finish its record had nothing left to continue from."""
    run = helpers.begin("pytorch", cell | said_to_be("N", tmp_path))
    left = run.folder / checkpoint.FILE
    left.write_bytes(b"weights")
    whole = records.make("PyTorch", 1)
    whole["epochs"] = [epoch | {"data_seconds": 0.1} for epoch in whole["epochs"]]
    for section in whole.keys() - run.record.content.keys():
        run.record.add(section, whole[section])
    monkeypatch.setattr(showing, "chart", Mock())
    run.record.add("checkpoint", {"resumed_after": 0, "seconds": 0.0})
    full = Mock(return_value=left, side_effect=OSError(28, "No space left on device"))
    run.record.finish = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        run.report()
    assert left.exists()
    full.side_effect = None
    run.report()
    assert not left.exists()
    end(run)
