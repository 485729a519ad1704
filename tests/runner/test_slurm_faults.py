"""What happens to jobs in a real Slurm: requeued at any moment, a node that dies, time, disk.

The notebook is a tiny one that keeps real checkpoints and a real record; the long form of the first
test trains PyTorch's own notebook.
"""

import json
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import faults
import numpy as np
import pytest
from runner_tools import ROOT, Suite, images_fixture, suite_fixture, wait_for
from slurm_cluster import Cluster
from slurm_jobs import SLURM, UNLIMITED, Jobs, cluster_fixture, real_command

from helpers import paths
from helpers.networks import weights
from helpers.results import report
from helpers.training import checkpoint

__all__ = ["cluster_fixture", "images_fixture", "suite_fixture"]

TWO_NODES = "PyTorch_MultiGPU-2n-1x"

LEARNS = f"""
import json, os, sys, time
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
import numpy as np
from helpers.networks.weights import save
from helpers.training import graceful_stop, checkpoint
from helpers.training.partial_epoch import NONE, Part
from helpers.record import Run

folder = Path(run)
made = json.loads((folder.parents[2] / "made.json").read_text())
made["run"] |= {{"notebook": NAME, "process": os.getpid()}}
rows, steps = made["epochs"], made["data"]["steps_per_epoch"]
this_run = Run(folder, made | {{"state": "running"}})
begin = checkpoint.begin(this_run, {{"w": np.zeros(1000)}}, resume=resume)
writer = checkpoint.Writer(begin)
w, kept = begin.weights["w"], begin.optimizer or {{"first/w": np.zeros(1000)}}
first, part, history = kept["first/w"], begin.part, list(begin.history)

def write(part=None):
    moments = {{"first/w": first, "second/w": first, "step": np.array(len(history))}}
    writer.save(history, 0.5, {{"w": w}}, moments, part)
    writer.close()

def stop(step):
    write(Part(step, 0.3, 1.0, 0.0, 0.0, 1) if step else None)
    said = f"stopped as asked after epoch {{len(history)}} of {{len(rows)}} and {{step}} steps"
    raise graceful_stop.Stopped(said)

for epoch in range(begin.epoch + 1, len(rows) + 1):
    for step in range(part.steps, steps):
        held = epoch == len(rows) and step == steps - 1
        while True:
            if (folder / graceful_stop.WISH).exists() and not (folder.parents[1] / "deaf").exists():
                stop(step)
            if not held or (folder.parents[1] / "go").exists():
                break
            time.sleep(0.1)
        drawn = np.random.default_rng([epoch, step]).normal(size=1000)
        first = 0.9 * first + w - drawn
        w = w - 0.01 * first
        with (folder.parent / "steps").open("a") as file:
            file.write(f"{{epoch}} {{step}}\\n")
        time.sleep(0.03)
    part = NONE
    history.append(rows[epoch - 1])
    write()
save(folder / "weights.safetensors", {{"w": w}}, {{}})
this_run.add("epochs", history)
this_run.add("checkpoint", begin.as_record(writer.seconds))
checkpoint.remove(folder)
this_run.finish()
"""
"""Five epochs of 17 steps. The last waits for a file ``go`` in ``runs/``; with ``deaf`` there, no
step looks whether it is to stop."""


@pytest.fixture(name="learns")
def learns_fixture(suite: Suite) -> Suite:
    """A suite whose only notebook has been run once, undisturbed."""
    suite.without_kernels()
    suite.notebook("Learn", LEARNS)
    paths.RUNS.mkdir(exist_ok=True)
    (paths.RUNS / "go").touch()
    assert suite.compare("--name", "whole") == 0
    (paths.RUNS / "go").unlink()
    return suite


def steps_taken(jobs: Jobs) -> list[str]:
    path = jobs.folder.parent / "steps"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def take_steps(jobs: Jobs, more: int) -> None:
    """Wait until the job has taken so many more."""
    wanted = len(steps_taken(jobs)) + more
    wait_for(lambda: len(steps_taken(jobs)) >= wanted)


def requeue(jobs: Jobs, job: str) -> None:
    """As an administrator does, or a job of higher priority: without notice."""
    before = jobs.restarts(job)
    jobs.cluster.run("scontrol", "requeue", job)
    wait_for(lambda: jobs.restarts(job) == before + 1)


def check_as_undisturbed(jobs: Jobs, job: str, whole: Path, starts: int) -> None:
    """It is whole, after so many starts: its weights, its epochs, what record and report say."""
    jobs.cluster.wait(job, "COMPLETED", "FAILED", seconds=1800)
    about = jobs.about(job)
    assert jobs.train()["state"] == "finished", about
    assert len(jobs.train()["earlier"]) == starts - 1, about
    expected, found = (weights.load(run / "weights.safetensors") for run in (whole, jobs.folder))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())
    content, other = jobs.record(), json.loads((whole / "record.json").read_text("utf-8"))
    assert [row["epoch"] for row in content["epochs"]] == [row["epoch"] for row in other["epochs"]]
    # An attempt that was ended before its first checkpoint left nothing to go on from.
    restarts = content["checkpoint"]["restarts"]
    assert 1 <= len(restarts) <= starts - 1
    assert restarts == sorted(restarts, key=lambda each: (each["epoch"], each["step"]))
    assert not (jobs.folder / checkpoint.FILE).exists()
    jobs.suite.to_the_end()
    report.write(jobs.folder.parent)
    text = (jobs.folder.parent / report.MARKDOWN).read_text(encoding="utf-8")
    for each in restarts:
        within = f"step {each['step']} of epoch {each['epoch'] + 1}"
        assert f"after {within if each['step'] else 'epoch ' + str(each['epoch'])}" in text


def test_a_job_that_is_requeued_at_any_moment_ends_with_the_weights_of_an_undisturbed_one(
    learns: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, chance = Jobs(learns, cluster, monkeypatch, UNLIMITED, run="Learn-1x"), random.Random(0)
    job = jobs.queue()
    for _ in range(2):
        take_steps(jobs, chance.randint(18, 33))  # more than an epoch, which is kept
        requeue(jobs, job)
    (paths.RUNS / "go").touch()
    check_as_undisturbed(jobs, job, learns.run("whole", "Learn"), starts=3)
    assert len(jobs.record()["checkpoint"]["restarts"]) == 2
    taken = Counter(steps_taken(jobs))
    assert len(taken) == 85 and max(taken.values()) > 1, "no step was lost, and none taken again"


def pytorch(monkeypatch: pytest.MonkeyPatch, devices: int) -> list[str]:
    """The command for PyTorch's own notebook."""
    chosen = ["--notebooks", "PyTorch_MultiGPU", "--devices", str(devices)]
    return [*real_command(monkeypatch), *chosen]


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "run"), [(1, "PyTorch_MultiGPU-2x"), (2, TWO_NODES)])
def test_pytorch_that_is_requeued_five_times_ends_with_the_weights_of_an_undisturbed_run(
    suite: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, nodes: int, run: str
) -> None:
    words = pytorch(monkeypatch, devices=2 // nodes)
    recipe = f"[train]\nepochs = 12\n{UNLIMITED}".replace("cpus = 1", f"cpus = {2 // nodes}")
    jobs = Jobs(suite, cluster, monkeypatch, recipe, words, run, nodes=nodes)
    whole = [*words[:3], "run", *words[3:], "--recipe", str(suite.folder / "mine.toml")]
    whole += ["--name", "whole", "--nnodes", str(nodes)]
    subprocess.run(whole, check=True, env=jobs.cluster.environment)

    job, chance = jobs.queue(), random.Random(0)
    for number in range(5):
        wait_for(lambda n=number: jobs.restarts(job) == n and jobs.trains(), 900)  # type: ignore[misc]
        wanted = checkpoint.position(jobs.folder)[0] + chance.randint(0, 1)
        wait_for(lambda w=wanted: checkpoint.position(jobs.folder)[0] >= w, 900)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 3.0))
        requeue(jobs, job)
    check_as_undisturbed(jobs, job, paths.RUNS / "whole" / run, starts=6)


@pytest.mark.parametrize("when", ["told by Slurm", "deaf"])
@pytest.mark.slow
def test_before_its_time_limit_a_job_stops_by_itself_and_goes_on(
    when: str, learns: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Slurm's own signal. One whose steps take too long is stopped hard while there is time."""
    slurm = SLURM.replace('time = "10"', 'time = "2"').replace(
        "signal_seconds = 60", "signal_seconds = 40"
    )
    jobs = Jobs(learns, cluster, monkeypatch, slurm, run="Learn-1x")
    if when == "deaf":
        (paths.RUNS / "deaf").touch()
    job = jobs.queue()
    wait_for(lambda: jobs.restarts(job) == 1)
    (paths.RUNS / "go").touch()
    check_as_undisturbed(jobs, job, learns.run("whole", "Learn"), starts=2)
    (place,) = jobs.record()["checkpoint"]["restarts"]
    said = jobs.log(job)
    if when == "deaf":
        assert "stopped, as a stop in order took too long; 0 of 1 runs are finished" in said
        assert place == {"epoch": 4, "step": 0}
    else:
        assert "stopped as asked after epoch 4 of 5 and 16 steps; 0 of 1 runs are finished" in said
        assert place == {"epoch": 4, "step": 16}


@pytest.mark.slow
def test_a_job_whose_node_dies_goes_on_at_another(
    learns: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(learns, cluster, monkeypatch, run="Learn-1x")
    job = jobs.queue()
    take_steps(jobs, 25)
    first = jobs.node(job)
    with cluster.dead(first):
        wait_for(lambda: jobs.restarts(job) == 1)
        assert jobs.train()["state"] == "running", "nobody was left to say that it is not"
        (paths.RUNS / "go").touch()
        check_as_undisturbed(jobs, job, learns.run("whole", "Learn"), starts=2)
        assert jobs.node(job) != first
    assert jobs.train()["earlier"] == ["killed while it was running"]


@pytest.mark.slow
def test_a_job_that_loses_one_of_its_nodes_is_queued_again_and_goes_on(
    suite: Suite, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sooner than Slurm notices, which would leave the runs that follow nothing but to fail."""
    words, recipe = pytorch(monkeypatch, devices=1), f"[train]\nepochs = 6\n{UNLIMITED}"
    jobs = Jobs(suite, cluster, monkeypatch, recipe, words, TWO_NODES, nodes=2)
    job = jobs.queue()
    wait_for(lambda: checkpoint.position(jobs.folder)[0] >= 1, 900)
    with cluster.dead("n2"):
        wait_for(lambda: jobs.restarts(job) == 1)
    jobs.cluster.wait(job, "COMPLETED", "FAILED", seconds=1800)
    assert jobs.train()["state"] == "finished", jobs.about(job)
    earlier = jobs.train()["earlier"]  # on a node that is back, ranks may be ended once more
    assert all(each.startswith("interrupted: ") for each in earlier)
    assert "a node of this job is gone" in earlier[0]
    content = jobs.record()
    assert [row["epoch"] for row in content["epochs"]] == list(range(1, 7))
    assert content["checkpoint"]["restarts"][0]["epoch"] >= 1
    assert content["fairness"]["comparable"], "its nodes are those that were asked for"


@pytest.mark.slow
def test_a_full_disk_ends_a_job_that_says_so_and_goes_on_once_there_is_room(
    suite: Suite,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    with faults.disk(suite.folder / "runs", "size=64m"):
        learns = request.getfixturevalue("learns")
        jobs = Jobs(learns, cluster, monkeypatch, run="Learn-1x")
        job = jobs.queue()
        take_steps(jobs, 25)
        filler = paths.RUNS / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(2**12))
        jobs.cluster.wait(job, "FAILED", seconds=240)
        assert jobs.restarts(job) == 0, "to begin again would help nobody"
        assert "No space left on device" in jobs.log(job) + str(jobs.train()["reason"])
        filler.unlink()
        (paths.RUNS / "go").touch()
        again = jobs.queue()
        check_as_undisturbed(jobs, again, learns.run("whole", "Learn"), starts=2)
