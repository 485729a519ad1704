"""`rosetta slurm FILE.toml --submit` in a real Slurm: the same command goes on with a batch."""

import json
import re
from collections.abc import Sequence

import pytest
from runner_tools import BEGIN, FINISH, ROOT, Suite, images_fixture, suite_fixture, wait_for
from slurm_cluster import Cluster
from slurm_jobs import SLURM, Jobs, cluster_fixture, real_command

from helpers import paths
from helpers.__main__ import main

__all__ = ["cluster_fixture", "images_fixture", "suite_fixture"]

WAITS = """
import time
while not (Path(run).parents[1] / "go").exists():
    time.sleep(0.1)
"""
ILL = """
if not (Path(run).parents[1] / "cured").exists():
    raise RuntimeError("no module of that name")
"""
SWEEP = '[sweep]\nnotebooks = ["Waits", "Ill"]\n'


class User:
    """Somebody at a login node, with a recipe's file."""

    def __init__(
        self,
        suite: Suite,
        cluster: Cluster,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        words: Sequence[str] = (),
    ) -> None:
        words = words or [*suite.command()[:3], "--data", str(suite.data), "--devices", "1"]
        self.jobs = Jobs(suite, cluster, monkeypatch, words=words, run="Ill-1x")
        self.file, self.capsys = suite.folder / "mine.toml", capsys
        monkeypatch.setattr(paths, "ROOT", suite.folder)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        for name in ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH"):
            monkeypatch.setenv(name, cluster.environment[name])

    def submits(self, text: str) -> tuple[int, str]:
        """Exit code and output, once the file says this."""
        self.file.write_text(text, encoding="utf-8")
        code = main(["slurm", str(self.file), "--submit"])
        out, error = self.capsys.readouterr()
        assert code == 0 or (code == 2 and error.count("\n") == 1), error
        return code, out + error

    def queued(self, text: str) -> str:
        code, said = self.submits(text)
        found = re.search(r"^Job (\d+): mine-1n, 1 node; it prints to", said, re.MULTILINE)
        assert code == 0 and found, said
        return found[1]


def test_after_a_failure_the_same_command_keeps_what_finished_and_tries_the_rest_again(
    suite: Suite,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suite.notebook("Waits", BEGIN, WAITS, FINISH)
    suite.notebook("Ill", BEGIN, ILL, FINISH)
    user, text = User(suite, cluster, monkeypatch, capsys), f'recipe = "demo"\n{SLURM}{SWEEP}'
    job = user.queued(text)
    code, said = user.submits(text)
    assert code == 2 and f"job {job} is called mine-1n already: wait for it" in said
    (paths.RUNS / "go").touch()
    cluster.wait(job, "FAILED", "COMPLETED", seconds=240)
    assert suite.states("mine-1n") == {"Waits": "finished", "Ill": "failed"}, user.jobs.about(job)
    assert "then: rosetta run --resume mine-1n, or submit the job again" in user.jobs.log(job)

    for other, differing in (
        (text.replace("[sweep]", "[train]\nepochs = 7\n[sweep]"), "mine.toml was changed"),
        (f"{text}epochs = 7\n", "epochs was changed"),
        (f"{text}seeds = [0, 1]\n", "[sweep] was changed"),
        (f"{text}devices = [2]\n", "[sweep] was changed"),
    ):
        code, said = user.submits(other)
        assert code == 2 and f"started with other runs, as {differing} since: put that back" in said

    # What the job is given is another thing than what it runs: it may have been the cause.
    (paths.RUNS / "cured").touch()
    before = (paths.RUNS / "mine-1n" / "Waits-1x" / "record.json").stat().st_mtime_ns
    again = user.queued(text.replace('time = "10"', 'time = "11"'))
    wait_for(lambda: cluster.state(again) in ("COMPLETED", "FAILED"))
    assert suite.states("mine-1n") == {"Waits": "finished", "Ill": "finished"}, user.jobs.about(
        again
    )
    assert (paths.RUNS / "mine-1n" / "Waits-1x" / "record.json").stat().st_mtime_ns == before
    earlier = {run["notebook"]: run["earlier"] for run in suite.journal("mine-1n")["runs"]}
    assert earlier["Waits"] == [] and earlier["Ill"][0].startswith(
        "failed: RuntimeError: no module"
    )
    assert cluster.state(again) == "COMPLETED", user.jobs.about(again)
    code, said = user.submits(text)
    assert code == 2 and "mine-1n has finished: rosetta report mine-1n" in said


DEMO = """\
recipe = "demo"
[train]
epochs = 1
[sweep]
nnodes = [1, 2]
devices = [1]
notebooks = ["PyTorch_MultiGPU", "ChainerMN_MultiNode"]
"""


@pytest.mark.slow
def test_jobs_of_one_node_and_of_two_are_one_report(
    suite: Suite,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The demo in PyTorch, whose ranks srun starts, and in ChainerMN, with mpiexec in the job."""
    user = User(suite, cluster, monkeypatch, capsys, real_command(monkeypatch))
    code, said = user.submits(DEMO + SLURM.replace('"10"', '"60"'))
    found = re.findall(r"^Job (\d+): mine-(\d)n, ", said, re.MULTILINE)
    assert code == 0 and [nodes for _, nodes in found] == ["1", "2"], said
    for job, nodes in found:
        cluster.wait(job, "COMPLETED", "FAILED", seconds=1500)
        states = suite.states(f"mine-{nodes}n")
        assert states == {"PyTorch_MultiGPU": "finished", "ChainerMN_MultiNode": "finished"}, (
            f"{states}\n{(paths.RUNS / f'slurm-mine-{nodes}n-{job}.log').read_text()}"
        )
    assert main(["report", "mine-1n", "mine-2n"]) == 0
    page = (paths.RUNS / "mine-1n" / "report.md").read_text(encoding="utf-8")
    assert "4 of 4 finished runs passed their fairness check" in page
    capsys.readouterr()
    assert main(["report", "mine-1n", "mine-2n", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["batches"] == ["mine-1n", "mine-2n"] and told["unreadable"] == []
    for notebook, launcher in (("PyTorch_MultiGPU", "srun"), ("ChainerMN_MultiNode", "mpiexec")):
        record = paths.RUNS / "mine-2n" / f"{notebook}-2n-1x" / "record.json"
        content = json.loads(record.read_text(encoding="utf-8"))
        assert content["fairness"]["comparable"] and content["cluster"]["launcher"] == launcher


ONE_JOB = f"""\
recipe = "demo"
[train]
epochs = 1
[sweep]
nnodes = [1, 2]
devices = [1]
repeats = 2
batch_size = 8
notebooks = ["PyTorch_MultiGPU"]
{SLURM.replace('"10"', '"60"')}one_job = true
"""


@pytest.mark.slow
def test_one_job_alternates_between_its_numbers_of_nodes_also_after_it_was_cancelled(
    suite: Suite,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*real_command(monkeypatch), "--data", str(suite.data)]
    user, folder = User(suite, cluster, monkeypatch, capsys, words), paths.RUNS / "mine-2n"

    def submitted() -> str:
        code, said = user.submits(ONE_JOB)
        (found,) = re.findall(r"^Job (\d+): mine-2n, 2 nodes; ", said, re.MULTILINE)
        assert code == 0 and said.count("; it prints to") == 1, said
        return str(found)

    def states() -> list[str]:
        return [run["state"] for run in suite.journal("mine-2n")["runs"]]

    job = submitted()
    wait_for((folder / "experiment.json").exists)
    wait_for(lambda: states() == ["finished", "running", "waiting", "waiting"], 1500)
    first = (folder / "PyTorch_MultiGPU-1x-repeat1" / "record.json").read_bytes()
    code, said = user.submits(ONE_JOB)
    assert code == 2 and f"job {job} is called mine-2n already: wait for it" in said
    cluster.run("scancel", job)
    wait_for(lambda: states() == ["finished", "interrupted", "waiting", "waiting"])
    cluster.wait(job, "CANCELLED")
    again = submitted()
    cluster.wait(again, "COMPLETED", "FAILED", seconds=1500)
    log = (paths.RUNS / f"slurm-mine-2n-{again}.log").read_text(encoding="utf-8")
    assert states() == ["finished"] * 4, log
    assert (folder / "PyTorch_MultiGPU-1x-repeat1" / "record.json").read_bytes() == first
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*/record.json")]
    runs.sort(key=lambda content: content["run"]["started"])
    assert [content.get("cluster", {}).get("nodes", 1) for content in runs] == [1, 2, 1, 2]
    assert all(content["fairness"]["comparable"] for content in runs)
