"""A write of each writer finds the disk full: one line, and the same command makes the rest."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import faults
import pytest
from data_prep_server import publish
from data_prep_tools import command, digest, make_folder, the_line

from data_prep import files


def a_write_fails(target: Path, *words: object) -> None:
    calls = faults.count(lambda: command(*words), below=target)
    expected = digest(target)
    shutil.rmtree(target)
    with faults.failing(calls // 2, errno.ENOSPC, below=target):
        line = the_line(command(*words))
    assert ("full" in line or "No space left on device" in line) and str(target) in line
    assert not list(target.rglob(f"*{files.TEMPORARY_SUFFIX}"))
    assert command(*words).returncode == 0
    assert digest(target) == expected


@faults.alone
def test_a_write_of_each_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process, where each write can be counted, those of the workers too.
    monkeypatch.setattr(
        files, "map_in_processes", lambda work, jobs, *_: ([work(job)] for job in jobs)
    )
    source, archives = make_folder(tmp_path / "set", patients=2), tmp_path / "archives"
    archives.mkdir()
    nih = ("--sources", publish(archives, source), "--archives", archives, "--size", 8)
    small, packed, fetched, demo = (tmp_path / name for name in ("small", "packed", "nih", "demo"))
    a_write_fails(small, "resize", source, small, "--size", 8)
    a_write_fails(packed, "pack", small, packed)
    a_write_fails(fetched, "nih", fetched, *nih)
    a_write_fails(demo, "generate", demo, "--num-images", 4, "--size", 64)
