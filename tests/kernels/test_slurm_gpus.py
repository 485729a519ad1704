"""Jobs in a real Slurm that gives each GPUs, cores and memory: what their ranks see of a node."""

import json
import sys
import tempfile
from pathlib import Path

import fake_nvml
import pytest
import ranks_tools as tools
import slurm_bound
from slurm_cluster import CannotBeHad

from helpers import paths

ASKED = ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--gres=gpu:1", "--mem=700")


@pytest.mark.parametrize("launcher", ["srun", "mpiexec"])
@pytest.mark.parametrize("hides", [True, False], ids=["hidden", "named"])
def test_stand_in_each_rank_has_its_own_gpu_by_uuid_and_the_jobs_cores(
    hides: bool, launcher: str, tmp_path: Path
) -> None:
    """Two jobs at once on both nodes, which hide the GPUs of others or name a job its own."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="slurm-") as folder,
            slurm_bound.cluster(Path(folder) / "c", hides=hides) as found,
        ):
            found.environment["PYTHONPATH"] = str(paths.ROOT)
            jobs = []
            for number in range(2):
                words = f"{sys.executable} {tools.__file__} gpus {tmp_path}/{number} {launcher}"
                # Neither ends before both have begun.
                meet = f"touch {tmp_path}/here-{number}\n"
                meet += f"until [ -e {tmp_path}/here-{1 - number} ]; do sleep 0.1; done\n"
                text = f"#!/bin/bash\n{meet}{words}\n"
                out = f"--output={tmp_path}/said-{number}"
                jobs.append(found.run("sbatch", "--parsable", *ASKED, out, input=text).strip())
            for number, job in enumerate(jobs):
                ended = found.wait(job, "COMPLETED", "FAILED", seconds=240)
                assert ended == "COMPLETED", (tmp_path / f"said-{number}").read_text()
    except CannotBeHad as error:
        pytest.skip(str(error))
    seen: dict[str, list[str]] = {"n1": [], "n2": []}
    for number in range(2):
        said = (tmp_path / f"said-{number}").read_text().splitlines()[-1]
        script, *ranks = json.loads(said)
        assert [rank["host"] for rank in (script, *ranks)] == ["n1", "n1", "n2"]
        assert script["CUDA"] == ranks[0]["CUDA"]
        for rank in ranks:
            assert rank["CUDA"] == rank["gpus"] and len(rank["gpus"]) == 1, rank
            assert (rank["workers' cores"], rank["monitor's cores"]) == (1, 1), rank
            assert rank["monitor's MiB"] == 700, rank
            seen[rank["host"]] += rank["CUDA"]
    for node, gpus in slurm_bound.GPUS.items():
        assert sorted(seen[node]) == list(map(fake_nvml.uuid, gpus)), seen
