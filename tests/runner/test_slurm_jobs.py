"""Jobs in a real Slurm: queued, told to stop, requeued, cancelled, started twice.

The notebook is a tiny one, which behaves towards the runner as a framework's does.
"""

import re
import tempfile
from pathlib import Path

import pytest
import slurm_cluster
from runner_tools import BEGIN, FINISH, Suite, images_fixture, suite_fixture, wait_for
from slurm_cluster import Cluster
from slurm_jobs import SLURM, Jobs, cluster_fixture

from helpers import paths
from helpers.__main__ import main

__all__ = ["cluster_fixture", "images_fixture", "suite_fixture"]

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


@pytest.fixture(name="jobs")
def jobs_fixture(suite: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    suite.notebook("Train", BEGIN, TRAINS, FINISH)
    return Jobs(suite, cluster, monkeypatch)


def test_a_job_that_is_stopped_in_order_is_requeued_and_goes_on(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = jobs.queue()
    wait_for(jobs.trains)
    twin = jobs.queue()  # the same job a second time: refused, and not requeued
    jobs.cluster.wait(twin, "FAILED", seconds=240)
    assert f"works on the experiment 'mine-1n' (job {job}, process" in jobs.log(twin)
    for name in ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, jobs.cluster.environment[name])
    assert main(["status", "mine-1n"]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"^mine-1n +{job} .* running ", said, re.MULTILINE), said

    jobs.stop(job)
    jobs.cluster.wait(job, "PENDING", seconds=240)
    assert "stopped as asked after epoch 0 of 2 and 1 of 9 steps; 0 of 1 runs" in jobs.log(job)
    assert jobs.train()["state"] == "interrupted"
    (paths.RUNS / "mine-1n" / "go").touch()
    jobs.cluster.wait(job, "COMPLETED", "FAILED", seconds=240)
    assert jobs.restarts(job) == 1, jobs.about(job)
    assert jobs.train()["state"] == "finished", jobs.about(job)
    assert jobs.train()["earlier"] == [
        "interrupted: stopped as asked after epoch 0 of 2 and 1 of 9 steps"
    ]


@pytest.mark.slow
def test_a_job_that_is_asked_to_stop_before_its_runner_listens_is_requeued(
    suite: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.notebook("Train", BEGIN, FINISH)
    jobs = Jobs(suite, cluster, monkeypatch)
    compare = suite.folder / ".venvs" / "lab" / "bin" / "rosetta"
    begun = suite.folder / "begun"
    late = f"[ -e {begun} ] || {{ touch {begun}; exec sleep 600; }}\n"
    compare.write_text(compare.read_text().replace("exec ", f"{late}exec ", 1), encoding="utf-8")
    job = jobs.queue()
    wait_for(begun.exists)
    jobs.stop(job)
    jobs.cluster.wait(job, "COMPLETED", "FAILED", seconds=240)
    assert jobs.restarts(job) == 1, jobs.about(job)
    assert jobs.train()["state"] == "finished" and jobs.train()["earlier"] == [], jobs.about(job)


@pytest.mark.slow
def test_a_job_whose_nodes_are_wanted_before_it_has_gained_anything_is_requeued(jobs: Jobs) -> None:
    """Ten minutes before its time limit."""
    job = jobs.queue()
    no_gain = paths.RUNS / "mine-1n" / "no-gain"
    wait_for(no_gain.parent.exists)
    no_gain.touch()
    wait_for(jobs.trains)
    jobs.stop(job)
    jobs.cluster.wait(job, "PENDING", "FAILED", seconds=240)
    assert jobs.restarts(job) == 1, jobs.about(job)
    assert "of the 10:00 that this job may take" in jobs.log(job)
    (paths.RUNS / "mine-1n" / "go").touch()
    jobs.cluster.wait(job, "COMPLETED", "FAILED", seconds=240)
    assert jobs.train()["state"] == "finished", jobs.about(job)


def test_a_job_that_gains_nothing_or_is_cancelled_is_not_requeued(
    suite: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.notebook("Train", BEGIN, TRAINS, FINISH)
    # In so little time any moment is near the end.
    slurm = SLURM.replace('time = "10"', 'time = "2"').replace(
        "signal_seconds = 60", "signal_seconds = 59"
    )
    jobs = Jobs(suite, cluster, monkeypatch, slurm)
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
    wait_for(lambda: "attempt" in jobs.log(again))
    wait_for(jobs.trains)
    jobs.stop(again)
    jobs.cluster.wait(again, "FAILED", seconds=240)
    said = jobs.log(again)
    assert "; 0 of 1 runs are finished, none of them now, and no training step was" in said
    assert "of the 2:00 that this job may take, so it would never finish" in said
    assert 'such as twice as much (time = "00:04:00")' in said
    assert jobs.restarts(again) == 0


PREEMPTS = "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
NOTICE = "SlurmctldParameters=preempt_send_user_signal\n"
URGENT = "PartitionName=urgent Nodes={names} PriorityTier=2 MaxTime=INFINITE State=UP\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conf", "said"),
    [
        (PREEMPTS + NOTICE, "stopped as asked after epoch 0 of 2 and 1 of 9 steps"),
        (PREEMPTS, "stopped by SIGTERM"),
    ],
    ids=["with notice", "without"],
)
def test_a_job_that_another_preempts_is_queued_again_and_continues(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, conf: str, said: str
) -> None:
    """With a partition whose jobs may end those of the other, after some seconds of grace."""
    suite.notebook("Train", BEGIN, TRAINS, FINISH)
    ours = slurm_cluster.PARTITION.replace("State=UP", "State=UP GraceTime=120")
    monkeypatch.setattr(slurm_cluster, "PARTITION", ours + URGENT)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slurm-") as folder,
            slurm_cluster.cluster(Path(folder) / "c", slurm_cluster.CONF + conf) as found,
        ):
            jobs = Jobs(suite, found, monkeypatch)
            job = jobs.queue()
            wait_for(jobs.trains)
            urgent = ["--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null"]
            other = found.run("sbatch", "--parsable", *urgent, input="#!/bin/sh\nsleep 1\n").strip()
            wait_for(lambda: jobs.restarts(job) == 1)
            found.wait(other, "COMPLETED")
            (paths.RUNS / "mine-1n" / "go").touch()
            found.wait(job, "COMPLETED", "FAILED", seconds=240)
            assert jobs.train()["state"] == "finished", jobs.about(job)
            assert jobs.train()["earlier"] == [f"interrupted: {said}"]
    except slurm_cluster.CannotBeHad as error:
        pytest.skip(str(error))
