"""What the first minute on a GPU says of our assumptions: its processes, and the driver's answers.

Those of frameworks are in ``tests/kernels``, where these are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import assumptions
import fake_nvml
import pytest
import rehearsal
from gpu_place import HERE, ROOT

PLANTED = f"""
import os, subprocess, sys, tempfile, time
sys.path[:0] = [{str(HERE)!r}]
import assumptions, gpu_checks
from assumptions import Assumption

def hangs(kind):
    open(tempfile.gettempdir() + "/rosetta-left", "w").close()
    child = subprocess.Popen(["sleep", "60"])
    open("child", "w").write(str(child.pid))
    time.sleep(60)

def lacks(kind):
    raise gpu_checks.NotHereError("no driver")

assumptions.__file__ = __file__
assumptions.ASSUMPTIONS = {{
    "holds": Assumption(lambda kind: (True, "0 levels"), None, "nothing"),
    "crashes": Assumption(lambda kind: os.abort(), None, "nothing"),
    "hangs": Assumption(hangs, None, "nothing", seconds=8),
    "raises": Assumption(lambda kind: [][1], None, "nothing"),
    "differs": Assumption(lambda kind: (False, "3 levels"), None, "it is another variant"),
    "lacks": Assumption(lacks, None, "nothing"),
    "needs": Assumption(lambda kind: (True, ""), "mxnet", "nothing"),
    "runs anywhere": Assumption(lambda kind: (True, kind), None, "nothing", on_cpu=True),
}}
if __name__ == "__main__":
    assumptions.main(*sys.argv[1:])
"""


def answers(*command: str | Path, cwd: Path, **env: str) -> tuple[dict[str, tuple[str, str]], str]:
    """Each assumption's outcome and what is said of it; the last line."""
    run = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    *lines, last = run.stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return {one["assumption"]: (one["outcome"], one["said"]) for one in found}, last


def test_no_check_spoils_another(tmp_path: Path) -> None:
    (script := tmp_path / "planted.py").write_text(PLANTED)
    found, last = answers(script, "gpu", cwd=tmp_path)
    assert found == {
        "holds": ("ok", "0 levels"),
        "crashes": ("failed", "ended with exit code -6"),
        "hangs": ("failed", "ran past its 8 s"),
        "raises": ("failed", "IndexError: list index out of range"),
        "differs": ("differs", "3 levels; so it is another variant"),
        "lacks": ("skipped", "no driver"),
        "needs": ("skipped", "mxnet is not installed here"),
        "runs anywhere": ("ok", "gpu"),
    }
    assert last == "2 ok, 3 failed, 1 differs, 2 skipped"
    assert not Path("/proc", (tmp_path / "child").read_text()).exists()


def test_without_a_gpu_only_what_runs_anywhere_is_checked(tmp_path: Path) -> None:
    (script := tmp_path / "planted.py").write_text(PLANTED)
    found, last = answers(script, "cpu", cwd=tmp_path)
    assert found.pop("runs anywhere") == ("ok", "cpu") and last == "7 skipped, 1 ok"
    assert set(found.values()) == {("skipped", "there is no GPU to compute on")}


def test_checks_share_bytecode_that_the_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (compiled := tmp_path / "numpy.pyc").touch()
    monkeypatch.setattr(assumptions.np.__spec__, "cached", str(compiled))
    assert assumptions.environment("folder") == os.environ | {"TMPDIR": "folder"}
    compiled.unlink()
    found = assumptions.environment("folder")
    assert found["PYTHONPYCACHEPREFIX"] == "folder/bytecode"
    assert found["TMPDIR"] == "folder" and "PYTHONDONTWRITEBYTECODE" not in found


@pytest.mark.parametrize(
    ("lines", "outcome", "said"),
    [
        ("0 gpm20 9\n0 gpm61 9\n", "ok", "no MIG; all 8 series answer"),
        ("0 gpm_sample E4\n", "differs", "no SM activity (%): GPM: Insufficient Permissions"),
        (None, "skipped", "no NVIDIA driver on this machine"),
    ],
)
def test_what_the_driver_answers_stand_in(
    lines: str | None, outcome: str, said: str, tmp_path: Path
) -> None:
    env: dict[str, Any] = {}
    if lines is not None:
        (script := tmp_path / "h100").write_text(rehearsal.h100() + lines)
        env = fake_nvml.environment(script)
    name = "the driver answers the monitor"
    run = subprocess.run(
        [sys.executable, HERE / "assumptions.py", "cpu", name],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(run.stdout)
    assert found[0] == outcome and said in found[1], found
