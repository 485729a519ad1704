"""The cores that a process may use: never more than a container, a job or its affinity gives."""

from pathlib import Path

import pytest

from data_prep import files


def quotas(folder: Path, groups: str, **texts: str) -> list[float]:
    (folder / "groups").write_text(groups)
    for name, text in texts.items():
        path = folder / "root" / name.replace("__", "/").replace("_max", ".max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(files._cgroup_limits(folder / "groups", folder / "root"))


def test_a_limit_anywhere_above_counts(tmp_path: Path) -> None:
    found = quotas(
        tmp_path,
        "0::/slurm/job_1/step_0\n",
        slurm__job_1__step_0__cpu_max="max 100000\n",
        slurm__job_1__cpu_max="250000 100000\n",
        cpu_max="800000 100000\n",
    )
    assert found == [2.5, 8]


def test_no_limit_and_no_control_groups(tmp_path: Path) -> None:
    assert quotas(tmp_path, "0::/\nnonsense\n", cpu_max="max 100000\n") == []
    assert list(files._cgroup_limits(tmp_path / "gone", tmp_path)) == []


def test_the_older_kind(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "cpu" / "docker"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("150000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert quotas(tmp_path, "4:cpu,cpuacct:/docker\n3:memory:/x\n") == [1.5]


def test_a_jobs_share_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    outside = files.core_count()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert files.core_count() == 1 <= outside
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "many")
    assert files.core_count() == outside
