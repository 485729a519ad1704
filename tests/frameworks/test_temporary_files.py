"""What replicas leave in the temporary folder: nothing, however they end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import paths
from helpers.frameworks import replicas

RUN = """
import multiprocessing.util, os, signal, sys, tempfile
import eager
from helpers.frameworks import replicas
def replica(rank):
    tempfile.mkdtemp()
    multiprocessing.util.get_temp_dir()
    if rank == 1 and "fails" in sys.argv:
        raise ValueError("planted")
    if rank == 1 and "dies" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return tempfile.gettempdir()
try:
    print(replicas.run(replica, 2))
except replicas.ReplicaError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [("ends", "/replicas-"), ("fails", "planted"), ("dies", "died with exit code -9")],
)
def test_replicas_leave_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, how: str, said: str
) -> None:
    empty = tmp_path_factory.mktemp("t")  # a short name, as sockets need it
    # As frameworks may: the server that forks the replicas knows a temporary folder already.
    (tmp_path / "eager.py").write_text("import tempfile; tempfile.gettempdir()")
    env = {**os.environ, "TMPDIR": str(empty), "PYTHONPATH": f"{paths.ROOT}:{tmp_path}"}
    words = [sys.executable, "-c", RUN, how]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert said in done.stdout and not done.stderr
    assert not list(empty.iterdir())


@pytest.mark.parametrize("name", ["x" * 100, "job#7", "what?"])
def test_a_folder_takes_sockets_whatever_the_temporary_one_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
    with replicas.temporary_folder("run-") as folder:
        assert Path(folder).parent == Path("/tmp") and replicas.takes_sockets(folder)
    assert not Path(folder).exists()
