"""data_prep on an odd machine: few open files, streams that are closed, folders that are gone."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from data_prep_tools import ROOT, command, make_folder, the_line

from data_prep import DataError, resize_folder
from data_prep.nih_pipeline import prepare_nih
from data_prep.packed import pack_folder
from data_prep.verify import verify_folder

RESIZE = [sys.executable, "-m", "data_prep", "resize"]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_workers_that_cannot_be_started_are_one_line(tmp_path: Path) -> None:
    """The pool launches all at once; those it had started waited for work for ever."""
    make_folder(tmp_path / "mine")
    done = subprocess.run(
        [*RESIZE, tmp_path / "mine", tmp_path / "small", "--size", "8", "--num-workers", "100"],
        capture_output=True,
        text=True,
        timeout=60,
        env=HERE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    line = the_line(done)
    assert "100 worker processes cannot be started (Too many open files)" in line
    assert "fewer --num-workers" in line
    assert command("resize", tmp_path / "mine", tmp_path / "small", "--size", 8).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_what_cannot_be_printed_is_one_line(tmp_path: Path) -> None:
    make_folder(tmp_path / "mine")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "data_prep", "verify", "--quick", str(tmp_path / "mine")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=HERE,
        )
    done.stdout = ""  # it led elsewhere
    assert the_line(done).startswith("data-prep: standard output: No space left on device; ")


def test_a_folder_whose_name_is_not_text_is_a_folder(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff \n"))
    make_folder(odd / "mine")
    resize_folder(odd / "mine", odd / "small", size=8, progress=False)
    pack_folder(odd / "small", odd / "packed", progress=False)
    assert not verify_folder(odd / "small", progress=False).problems
    assert not verify_folder(odd / "packed", progress=False).problems


# --- nih -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["small/in", "."])
def test_originals_do_not_lie_among_the_small_ones(tmp_path: Path, where: str) -> None:
    """In the same folder each original was overwritten by its own small image."""
    with pytest.raises(DataError, match="the originals would be inside"):
        prepare_nih(tmp_path / "small", keep_originals=tmp_path / where, progress=False)
