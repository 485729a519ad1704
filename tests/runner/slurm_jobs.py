"""What tests of jobs share: a real Slurm, and a checkout in small as a job's script finds it."""

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import slurm_cluster
from runner_tools import ROOT, Suite
from slurm_cluster import Cluster

from helpers import paths
from helpers.runner.slurm import script

SLURM = '[slurm]\npartition = "p"\ntime = "10"\ncpus = 1\nsignal_seconds = 60\n'
UNLIMITED = SLURM.replace('time = "10"\n', "")
"""For jobs that only the test is to end: a busy machine would take any limit."""


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


def real_command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for this checkout's notebooks in their own kernels; its runs are the test's."""
    monkeypatch.delenv("JUPYTER_PATH")
    monkeypatch.setattr(paths, "NOTEBOOKS", ROOT / "notebooks")
    monkeypatch.setattr(paths, "VENVS", ROOT / ".venvs")
    code = (
        "import sys; from pathlib import Path; from helpers import paths\n"
        f"paths.RUNS = Path({str(paths.RUNS)!r})\n"
        "from helpers.__main__ import main; sys.exit(main())"
    )
    return [sys.executable, "-c", code]


class Jobs:
    """The jobs of one recipe, and their only run.

    Args:
        suite: the checkout in small.
        cluster: where they are queued.
        monkeypatch: the test's.
        slurm: the recipe's table ``[slurm]``.
        words: the command as the job finds it; by default the suite's, with its own kernel.
        run: the run's notebook and what follows it in the folder's name.
        nodes: of the job.
    """

    def __init__(
        self,
        suite: Suite,
        cluster: Cluster,
        monkeypatch: pytest.MonkeyPatch,
        slurm: str = SLURM,
        words: Sequence[str] = (),
        run: str = "Train-1x",
        nodes: int = 1,
    ) -> None:
        self.suite, self.cluster = suite, cluster
        self.nodes, self.name = nodes, f"mine-{nodes}n"
        words = words or suite.command()
        more = words[4:] if words[3:4] == ["run"] else words[3:]  # the script says run itself
        line = f'exec {shlex.join(words[:3])} "$@" {shlex.join(more)}\n'
        rosetta = suite.folder / ".venvs" / "lab" / "bin" / "rosetta"
        rosetta.parent.mkdir(parents=True)
        rosetta.write_text("#!/bin/bash\n" + line, encoding="utf-8")
        rosetta.chmod(0o755)
        cluster.environment["PYTHONPATH"] = str(ROOT)
        cluster.environment["CUDA_VISIBLE_DEVICES"] = ""
        cluster.environment["JUPYTER_PATH"] = os.environ.get("JUPYTER_PATH", "")
        paths.RUNS.mkdir(exist_ok=True)
        recipe = suite.folder / "mine.toml"
        recipe.write_text('recipe = "demo"\n' + slurm, encoding="utf-8")
        with monkeypatch.context() as patched:
            patched.setattr(paths, "ROOT", suite.folder)
            self.script = script.text(script.job_of(str(recipe)))
        self.folder = paths.RUNS / self.name / run

    def queue(self) -> str:
        """Queue the job; its number."""
        command = ["sbatch", "--parsable", f"--nodes={self.nodes}", f"--job-name={self.name}"]
        return self.cluster.run(*command, input=self.script).strip()

    def trains(self) -> bool:
        record = self.folder / "record.json"
        return record.exists() and json.loads(record.read_text())["state"] == "running"

    def stop(self, job: str) -> None:
        """What Slurm does some time before the limit."""
        self.cluster.run("scancel", "--signal=USR1", "--batch", job)

    def log(self, job: str) -> str:
        path = paths.RUNS / f"slurm-{self.name}-{job}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def shown(self, job: str) -> str:
        return self.cluster.run("scontrol", "--oneliner", "show", "job", job)

    def about(self, job: str) -> str:
        """All that is known of it, for a test that fails."""
        return f"{self.log(job)}\n{self.shown(job)}\n{self.cluster.told()}"

    def restarts(self, job: str) -> int:
        return int(self.shown(job).partition("Restarts=")[2].split()[0])

    def node(self, job: str) -> str:
        """Where its script runs, or ran."""
        return self.shown(job).partition("BatchHost=")[2].split()[0]

    def train(self) -> dict[str, Any]:
        """The run as the journal has it."""
        (found,) = self.suite.journal(self.name)["runs"]
        return dict(found)

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "record.json").read_text(encoding="utf-8")))
