"""What `pytest --nbmake notebooks/` runs, and in which order; test_batches executes it."""

import subprocess
import sys

from helpers import paths
from helpers.frameworks import ROWS


def nbmake(*words: str) -> list[str]:
    """The lines that it prints; exit code 0."""
    command = [sys.executable, "-m", "pytest", "--nbmake", "notebooks/", "-q", *words]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_all_notebooks_are_run_and_compare_comes_last() -> None:
    said = [line.partition("::")[0] for line in nbmake("--collect-only") if "::" in line]
    assert sorted(said) == sorted(f"notebooks/{f.name}" for f in paths.NOTEBOOKS.glob("*.ipynb"))
    assert said[-1] == "notebooks/Compare.ipynb"


def test_what_a_launcher_must_start_is_left_out_with_the_reason() -> None:
    reasons = {row.notebook: row.ranks_only for row in ROWS if row.ranks_only}
    said = [line for line in nbmake("-k", " or ".join(reasons)) if line.startswith("SKIPPED")]
    for name, reason in reasons.items():
        how = f"rosetta run --notebooks {name} --devices 2"
        assert [line for line in said if line.endswith(f"{reason}: {how}")], said
