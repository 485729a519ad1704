"""What ``rosetta export`` writes, read by the readers of those whom it is for.

Their packages belong to no environment: where one is not there, its test is skipped.
"""

import sys
from pathlib import Path

import pytest
import records

from helpers.errors import UserError
from helpers.results import export


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    for name in ("PyTorch", "JAX"):
        content = records.make(name)
        content["recipe"]["network"] = "resnet50"
        records.save(tmp_path / "b", content)
    return tmp_path / "b"


LOSSES = pytest.approx([0.28, 0.26, 0.24, 0.22, 0.2])
"""The training losses of ``records.make``."""


def test_a_package_that_is_not_there_is_named(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_logging", None)
    with pytest.raises(UserError, match="pip install mlperf-logging"):
        export.write(experiment, "mllog")


def test_nothing_is_written_over(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(UserError, match="not empty"):
        export.write(experiment, "mllog", tmp_path / "full")
    with pytest.raises(UserError):
        export.write(tmp_path / "full", "mllog")


def test_mlperfs_own_checker_accepts_the_log_lines_of_its_benchmark(experiment: Path) -> None:
    pytest.importorskip("mlperf_logging", reason="the package mlperf-logging is not installed")
    from mlperf_logging.compliance_checker import mlp_compliance

    folder, runs = export.write(experiment, "mllog")
    logs = sorted(folder.glob("*.log"))
    assert len(logs) == runs == 2
    for log in logs:
        checker = mlp_compliance.make_checker("training", "4.0.0", quiet=True, werror=True)
        valid, *_ = mlp_compliance.main(str(log), "training_4.0.0/common.yaml", checker)
        assert valid
        assert str(export.paths.ROOT) not in log.read_text()


def test_tensorboard_reads_each_epoch(experiment: Path) -> None:
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = export.write(experiment, "tensorboard")
    events = EventAccumulator(str(folder / "PyTorch_MultiGPU-2x")).Reload()
    found = events.Tensors("train_loss")
    assert [tensor.tensor_proto.float_val[0] for tensor in found] == LOSSES
    assert [tensor.step for tensor in found] == [1, 2, 3, 4, 5] and events.Tensors("run/mean_auc")


def test_mlflow_lists_the_runs_with_their_settings(experiment: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the package mlflow is not installed")
    mlflow = pytest.importorskip("mlflow", reason="the package mlflow is not installed")
    folder, _ = export.write(experiment, "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    (place,) = [each for each in client.search_experiments() if each.name == "rosetta"]
    runs = {run.info.run_name: run for run in client.search_runs([place.experiment_id])}
    run = runs["PyTorch_MultiGPU-2x"]
    assert run.info.status == "FINISHED" and run.data.params["recipe.epochs"] == "4"
    history = client.get_metric_history(run.info.run_id, "train_loss")
    assert [each.value for each in sorted(history, key=lambda each: each.step)] == LOSSES
