"""Jobs in a real Slurm: queued, told to stop, requeued, cancelled, started twice.

The notebook is a tiny one, which behaves towards the runner as a framework's does.
"""

import json
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
from runner_tools import BEGIN, FINISH, Suite, images_fixture, suite_fixture, wait_for
from slurm_cluster import Cluster

from helpers import paths
from helpers.__main__ import main
from helpers.runner.slurm import script

__all__ = ["images_fixture", "suite_fixture"]

TRAINS = """
import time
import numpy as np
from safetensors.numpy import save_file
class Stopped(Exception):
    pass
folder = Path(run)
steps = 1 + (folder / "checkpoint.safetensors").exists()
said = {"history": [], "part": {"steps": steps}}
gains = not (folder.parent / "no-gain").exists()
while not (folder.parent / "go").exists():
    if (folder / ".stop").exists():
        if gains:
            about = {"said": json.dumps(said)}
            save_file({"a": np.zeros(1)}, folder / "checkpoint.safetensors", about)
        raise Stopped(f"stopped as asked after epoch 0 of 2 and {steps} of 9 steps")
    time.sleep(0.1)
(folder / "checkpoint.safetensors").unlink(missing_ok=True)
"""
SLURM = '[slurm]\npartition = "p"\ntime = "10"\ncpus = 1\nnotice = 60\n'


@pytest.fixture(name="cluster", scope="module")
def cluster_fixture() -> Iterator[Cluster]:
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slurm-") as folder,
            slurm_cluster.cluster(Path(folder) / "c") as found,
        ):
            yield found
    except slurm_cluster.CannotBeHad as error:
        pytest.skip(str(error))


class Jobs:
    """The checkout in small, as the script finds it, and its jobs."""

    def __init__(
        self, suite: Suite, cluster: Cluster, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.suite, self.cluster = suite, cluster
        suite.notebook("Train", BEGIN, TRAINS, FINISH)
        words = suite.command()
        line = f'exec {shlex.join(words[:3])} "$@" {shlex.join(words[3:])}\n'
        compare = suite.folder / ".venvs" / "lab" / "bin" / "compare"
        compare.parent.mkdir(parents=True)
        compare.write_text("#!/bin/bash\n" + line, encoding="utf-8")
        compare.chmod(0o755)
        cluster.environment["PYTHONPATH"] = str(paths.ROOT)
        for name in ("JUPYTER_PATH", "CUDA_VISIBLE_DEVICES"):
            cluster.environment[name] = str(suite.folder / "jupyter") if "J" in name else ""
        paths.RUNS.mkdir()
        recipe = suite.folder / "mine.toml"
        recipe.write_text('recipe = "demo"\n' + text, encoding="utf-8")
        self.recipe = str(recipe)
        with monkeypatch.context() as patched:
            patched.setattr(paths, "ROOT", suite.folder)
            self.script = script.text(script.job_of(self.recipe))
        self.folder = suite.run("mine-1n", "Train")

    def queue(self) -> str:
        command = ["sbatch", "--parsable", "--nodes=1", "--job-name=mine-1n"]
        return self.cluster.run(*command, input=self.script).strip()

    def trains(self) -> bool:
        record = self.folder / "record.json"
        return record.exists() and json.loads(record.read_text())["state"] == "running"

    def stop(self, job: str) -> None:
        """What Slurm does some time before the limit."""
        self.cluster.run("scancel", "--signal=USR1", "--batch", job)

    def log(self, job: str) -> str:
        return (paths.RUNS / f"slurm-mine-1n-{job}.log").read_text(encoding="utf-8")

    def restarts(self, job: str) -> int:
        shown = self.cluster.run("scontrol", "--oneliner", "show", "job", job)
        return int(shown.partition("Restarts=")[2].split()[0])

    def train(self) -> dict[str, object]:
        (found,) = self.suite.journal("mine-1n")["runs"]
        return dict(found)


@pytest.fixture(name="jobs")
def jobs_fixture(suite: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(suite, cluster, SLURM, monkeypatch)


def test_a_job_that_is_stopped_in_order_is_requeued_and_goes_on(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = jobs.queue()
    wait_for(jobs.trains)
    twin = jobs.queue()  # the same job a second time: refused, and not requeued
    jobs.cluster.wait(twin, "FAILED", seconds=240)
    assert f"works on the batch 'mine-1n' (job {job}, process" in jobs.log(twin)
    for name in ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, jobs.cluster.environment[name])
    assert main(["status", "mine-1n"]) == 0
    said = capsys.readouterr().out
    assert f"mine-1n  {job}" in said and "running" in said, said

    jobs.stop(job)
    jobs.cluster.wait(job, "PENDING", seconds=240)
    assert "stopped as asked after epoch 0 of 2 and 1 of 9 steps; 0 of 1 runs" in jobs.log(job)
    assert jobs.train()["state"] == "interrupted"
    (paths.RUNS / "mine-1n" / "go").touch()
    # Slurm waits for two minutes, in case that the node was ill.
    jobs.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    jobs.cluster.wait(job, "COMPLETED", "FAILED", seconds=240)
    about = jobs.cluster.run("scontrol", "show", "job", job)
    assert jobs.restarts(job) == 1, about
    assert jobs.train()["state"] == "finished", jobs.log(job) + about
    assert jobs.train()["earlier"] == [
        "interrupted: stopped as asked after epoch 0 of 2 and 1 of 9 steps"
    ]


@pytest.mark.slow
def test_a_job_that_gains_nothing_or_is_cancelled_is_not_requeued(jobs: Jobs) -> None:
    job = jobs.queue()
    wait_for(jobs.trains)
    jobs.cluster.run("scancel", job)
    jobs.cluster.wait(job, "CANCELLED", seconds=60)
    assert jobs.restarts(job) == 0

    # Its runner says so once it has let go of the batch.
    wait_for(lambda: "the same command continues it" in jobs.log(job))
    assert jobs.train()["state"] == "interrupted"
    (paths.RUNS / "mine-1n" / "no-gain").touch()
    again = jobs.queue()  # goes on with the batch, and is stopped before it has gained anything
    wait_for(lambda: "attempt" in jobs.log(again) if _exists(jobs, again) else False)
    wait_for(jobs.trains)
    jobs.stop(again)
    jobs.cluster.wait(again, "FAILED", seconds=240)
    assert "to go on would take for ever: ask for a longer time limit" in jobs.log(again)
    assert jobs.restarts(again) == 0


def _exists(jobs: Jobs, job: str) -> bool:
    return (paths.RUNS / f"slurm-mine-1n-{job}.log").exists()
