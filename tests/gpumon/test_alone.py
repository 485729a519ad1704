"""gpumon as a distribution of its own: installed alone, and without what it does not need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gpumon_tools import ROOT, python

import gpumon

GPUMON = ROOT / "gpumon"
OPTIONAL = {"IPython", "matplotlib", "numpy", "pandas"}

Run = subprocess.CompletedProcess[str]
Install = Callable[..., Path]


def run(*words: str | Path, cwd: Path) -> Run:
    """A command as in a shell that knows nothing of this checkout."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        list(map(str, words)), cwd=cwd, env=env, capture_output=True, text=True, timeout=600
    )


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs something into an environment that was empty; gives its folder of commands.

    What it needs comes from uv's cache, where `make envs` has put it, in the locked versions.
    """
    monkeypatch.syspath_prepend(ROOT / "environments")
    import python311

    uv = shutil.which("uv", path=f"{ROOT / '.venvs/.uv/bin'}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("no uv here to install with: make envs")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    python311.set_up_uv(ROOT / ".venvs")
    venv = tmp_path / "venv"
    made = run(uv, "venv", "--python", sys.executable, venv, cwd=tmp_path)
    assert made.returncode == 0, made.stderr

    def install(*what: str | Path) -> Path:
        locks = [ROOT / "environments" / "tools.txt", ROOT / "environments" / "lab.txt"]
        words: list[str | Path] = [uv, "pip", "install", "--python", venv]
        words += ["--build-constraints", locks[0], "--constraints", locks[1], *what]
        done = run(*words, "--offline", cwd=tmp_path)
        if done.returncode:  # its cache was emptied
            done = run(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return venv / "bin"

    return install


def test_alone_it_records_and_with_plot_it_summarises_and_draws(
    install: Install, tmp_path: Path
) -> None:
    no = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", ".*")
    source = shutil.copytree(GPUMON, tmp_path / "source" / "gpumon", ignore=no)
    bin = install(source)
    assert run(bin / "gpumon", "--version", cwd=tmp_path).stdout == f"gpumon {gpumon.__version__}\n"
    recorded = run(bin / "gpumon", "record", "--", "sleep", "3", cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    for module in OPTIONAL | {"helpers", "data_prep"}:
        assert run(bin / "python", "-c", f"import {module}", cwd=tmp_path).returncode, module
    refused = run(bin / "gpumon", "summary", "gpumon-trace", cwd=tmp_path)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert refused.stderr.endswith("does not have: pip install 'gpumon-phases[plot]'\n")

    install(f"{source}[plot]")
    told = run(bin / "gpumon", "summary", "gpumon-trace", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "host" in told.stdout and max(map(len, told.stdout.splitlines())) <= 80
    for name, begins in (("chart.png", b"\x89PNG"), ("chart.html", b"<!doctype html>")):
        drawn = run(bin / "gpumon", "plot", "gpumon-trace", "-o", name, cwd=tmp_path)
        assert drawn.returncode == 0, drawn.stderr
        assert (tmp_path / name).read_bytes().startswith(begins)


BLOCK = f"""
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(OPTIONAL | {"helpers", "data_prep"})}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def test_without_the_extra_it_records_and_names_it_in_one_line(tmp_path: Path) -> None:
    code = """
import gpumon, gpumon.__main__ as command
with gpumon.Monitor("t", live=True), gpumon.phase("train"):
    pass
print(command.main(["devices"]), command.main(["summary", "t"]))
"""
    done = python("-c", BLOCK + code, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("\n0 2\n"), done.stderr
    assert re.search(r"recording continues without the chart: a live chart needs", done.stderr)
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"gpumon: .+ needs (numpy|pandas), .+ 'gpumon-phases\[plot\]'", last), last


def test_its_licence_is_the_projects() -> None:
    assert (GPUMON / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
