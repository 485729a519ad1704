"""The cores that a process may use: never more than a container, a job or its affinity gives."""

from pathlib import Path

import pytest

from data_prep import files

NESTED = {
    "slurm/job_1/step_0/cpu.max": "max 100000\n",
    "slurm/job_1/cpu.max": "250000 100000\n",
    "cpu.max": "800000 100000\n",
}


def test_a_limit_anywhere_above_counts(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("0::/slurm/job_1/step_0\nnonsense\n")
    for name, text in NESTED.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(files._cgroup_limits(tmp_path / "groups", tmp_path / "root")) == [2.5, 8]
    assert list(files._cgroup_limits(tmp_path / "gone", tmp_path)) == []


def test_a_jobs_share_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    outside = files.core_count()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert files.core_count() == 1 <= outside
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "many")
    assert files.core_count() == outside
