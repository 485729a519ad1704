"""Tests have runs and images of their own: what a user has in the checkout stays as it is."""

import os
import subprocess
import sys
from pathlib import Path

from helpers import paths
from helpers.results import comparison

SHOWN = "from helpers.results import comparison; print(comparison.folder_of('latest'))"


def test_tests_have_runs_and_data_of_their_own() -> None:
    own = paths.ROOT / ".test-runs"
    assert (own / "runs", own / "data") == (paths.RUNS, paths.DATA)


def test_open_shows_the_last_experiment_of_the_user_and_not_of_a_test() -> None:
    of_user = {k: v for k, v in os.environ.items() if k not in ("ROSETTA_RUNS", "ROSETTA_DATA")}
    command = [sys.executable, "-c", SHOWN]
    done = subprocess.run(command, cwd=paths.ROOT, env=of_user, capture_output=True, check=True)
    assert Path(done.stdout.decode().strip()) == paths.ROOT / "runs" / "latest"
    assert comparison.folder_of("latest") == paths.RUNS / "latest"
