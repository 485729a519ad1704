"""Loaders whose batches do not fit into /dev/shm, which a container limits to 64 MB."""

from types import SimpleNamespace

import pytest
from runner_tools import BEGIN, FINISH, Suite

from helpers.runner import preflight


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**6))


def test_a_run_whose_batches_do_not_fit_is_refused_with_the_flag(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    assert suite.compare("--name", "b", "--num-workers", "8", "--batch-size", "64") == 2
    # 2 loaders of 2 x 8 + 1 + 3 batches, of 64 grey images of 32 px each: 2.6 MB
    assert (
        "PyTorch_MultiGPU: the loaders on 1 CPU device need 3 MB in /dev/shm, which has 1 MB free: "
        "start the container with a larger --shm-size, such as docker run --shm-size=8g, or lower "
        "--num-workers\n"
    ) in capsys.readouterr().err
    assert not (suite.folder / "runs" / "b").exists()


@pytest.mark.parametrize(
    ("notebook", "workers"), [("PyTorch_MultiGPU", "0"), ("JAX_MultiGPU", "8"), ("Zoo", "8")]
)
def test_runs_that_share_no_memory_start(suite: Suite, notebook: str, workers: str) -> None:
    suite.without_kernels()
    suite.notebook(notebook, BEGIN, FINISH)
    assert suite.compare("--name", "b", "--num-workers", workers, "--batch-size", "64") == 0
    assert suite.states("b") == {notebook: "finished"}
