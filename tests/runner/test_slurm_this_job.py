"""A job that is stopped before it has gained anything: how long it had, and what to ask for."""

from pathlib import Path

import pytest

from helpers.errors import GO_ON
from helpers.runner import shutdown
from helpers.runner.slurm import script, this_job

FOR_EVER = ", so it would never finish: ask for "


@pytest.mark.parametrize(
    ("squeue", "code", "end"),
    [
        # Asked 180 s before the end, or 60 s sooner, as Slurm may; the stop itself takes time.
        ("echo 10:00 3:00", 1, 'twice as much (time = "00:20:00")'),
        ("echo 10:00 4:00", 1, f"in 6:00 of the 10:00 that this job may take{FOR_EVER}a longer"),
        ("echo 1-00:00:30 1:05", 1, 'twice as much (time = "48:01:00")'),
        # Somebody else wants the nodes.
        ("echo 10:00 9:58", GO_ON, "was gained in 0:02 of the 10:00 that this job may take"),
        ("echo 2:00:00 6:00", GO_ON, "was gained in 1:54:00 of the 2:00:00 that this job may"),
        # Nobody knows.
        ("echo UNLIMITED UNLIMITED", 1, f"was gained{FOR_EVER}a longer time limit"),
        ("echo 10:00 INVALID", 1, f"was gained{FOR_EVER}a longer time limit"),
        ("exit 1", 1, f"was gained{FOR_EVER}a longer time limit"),
        ("exit 0", 1, f"was gained{FOR_EVER}a longer time limit"),
    ],
)
def test_what_a_job_that_gained_nothing_says(
    squeue: str, code: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{squeue}\n", encoding="utf-8")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv(shutdown.PATIENCE_VARIABLE, raising=False)
    ended = this_job.without_gain(
        "stopped as asked before its training; 0 of 1 runs are finished", 1
    )
    assert ended.code == code and end in str(ended), str(ended)
    assert str(ended).startswith("stopped as asked before its training; 0 of 1 runs are finished, ")


def test_a_job_is_queued_again_once_where_it_gains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was: another job's wish, or a node that was gone."""
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 10:00 9:58\n", encoding="utf-8")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for gone in (False, True):
        assert this_job.without_gain("ValueError: no", 1, gone=gone).code == GO_ON
        ended = this_job.without_gain("ValueError: no", 2, gone=gone)
        assert ended.code == 1 and str(ended).startswith("ValueError: no, none of them now, ")
        assert str(ended).endswith("as in the attempt before, so the job is not queued again")


def test_outside_of_slurm_none_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert this_job.limit() is None


@pytest.mark.parametrize("notice", [30, 60, 180, 600])
def test_slurms_own_notice_is_never_taken_for_another_users_wish(
    notice: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where it comes a minute early; else such a job would be queued again for ever."""
    monkeypatch.setenv(shutdown.PATIENCE_VARIABLE, str(script.patience(notice)))
    assert this_job.Limit(3600, notice + 60).near
    assert not this_job.Limit(3600, 3 * notice + 61).near
