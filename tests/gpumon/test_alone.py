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
from gpumon_tools import ROOT, python, write

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


# --- Installed -------------------------------------------------------------------------------


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


def copied(target: Path, *names: str) -> Path:
    """Those files and folders of the checkout, in which building is to leave nothing."""
    no = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "*.so", ".*")
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=no)
        else:
            target.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def test_alone_it_records_and_summarises_and_with_plot_it_draws(
    install: Install, tmp_path: Path
) -> None:
    source = copied(tmp_path / "source", "gpumon") / "gpumon"
    bin = install(source)
    assert run(bin / "gpumon", "--version", cwd=tmp_path).stdout == f"gpumon {gpumon.__version__}\n"
    recorded = run(bin / "gpumon", "record", "--", "sleep", "3", cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    told = run(bin / "gpumon", "summary", "gpumon-trace", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    row = next(line.split() for line in told.stdout.splitlines() if " host " in line)
    assert float(row[3]) >= 3, told.stdout
    for module in OPTIONAL | {"helpers", "data_prep"}:
        assert run(bin / "python", "-c", f"import {module}", cwd=tmp_path).returncode, module
    refused = run(bin / "gpumon", "plot", "gpumon-trace", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.endswith("does not have: pip install matplotlib\n")
    # A busy machine's gaps come before it, a line each.
    assert all(line.startswith("gpumon: ") for line in refused.stderr.splitlines())

    install(f"{source}[plot]")
    for name, begins in (("chart.png", b"\x89PNG"), ("chart.html", b"<!doctype html>")):
        drawn = run(bin / "gpumon", "plot", "gpumon-trace", "-o", name, cwd=tmp_path)
        assert drawn.returncode == 0, drawn.stderr
        assert (tmp_path / name).read_bytes().startswith(begins)


def test_the_project_installed_brings_only_commands_that_work(
    install: Install, tmp_path: Path
) -> None:
    """`rosetta` runs the notebooks of its checkout, so only an editable install has it."""
    parts = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "helpers", "data_prep", "gpumon")
    source = copied(tmp_path / "source", *parts)
    bin = install(source)
    assert not (bin / "rosetta").exists()
    for command in ("data-prep", "gpumon"):
        assert run(bin / command, "--version", cwd=tmp_path).returncode == 0
    made = run(
        bin / "data-prep", "generate", "demo", "--num-images", "20", "--size", "32", cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    home = run(bin / "python", "-c", "import gpumon; print(gpumon.__file__)", cwd=tmp_path).stdout
    assert "site-packages" in home

    install("--editable", source, "--editable", source / "gpumon")
    shown = run(bin / "rosetta", "--version", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    home = run(bin / "python", "-c", "import gpumon; print(gpumon.__file__)", cwd=tmp_path).stdout
    assert home.strip() == str(source / "gpumon" / "__init__.py")


# --- Imported --------------------------------------------------------------------------------

BLOCK = f"""
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(OPTIONAL | {"helpers", "data_prep"})}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def without_extras(code: str, *arguments: str, cwd: Path) -> Run:
    return python("-c", BLOCK + code, *arguments, cwd=cwd)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "t", {"gpu0": [10, 90, None]}, marks=(("train", 0, 2, {"items": 8}),))


MAIN = "from gpumon.__main__ import main; sys.exit(main())"


@pytest.mark.parametrize(
    "arguments",
    [
        "summary t",
        "summary t t2 --by mark --csv",
        "summary t --metadata",
        "devices",
        "export t -o t.csv",
    ],
)
def test_what_works_without_extras(trace: Path, arguments: str) -> None:
    other = {"boot": "b", "host": "other"}
    write(trace.with_name("t2"), {"gpu0": [10, 90, None]}, **other)  # type: ignore[arg-type]
    done = without_extras(MAIN, *arguments.split(), cwd=trace.parent)
    assert done.returncode == 0 and done.stdout
    # The clock offset of these two hosts was not measured.
    two = "gpumon: The clock offset between other and node is not known: " in done.stderr
    assert two == ("t2" in arguments) and done.stderr.count("\n") == two


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        ("plot t", "matplotlib"),
        ("plot t -o t.html", "numpy"),
    ],
)
def test_what_needs_an_extra_says_so_in_one_line(trace: Path, arguments: str, package: str) -> None:
    before = sorted(trace.parent.iterdir())
    done = without_extras(MAIN, *arguments.split(), cwd=trace.parent)
    assert done.returncode == 2
    assert re.fullmatch(rf"gpumon: .+ needs {package}, .+: pip install {package}\n", done.stderr), (
        done.stderr
    )
    assert sorted(trace.parent.iterdir()) == before


def test_a_live_chart_without_matplotlib_is_a_warning(tmp_path: Path) -> None:
    code = """
import gpumon, gpumon.live_chart
gpumon.live_chart.in_notebook = lambda: True
with gpumon.Monitor("t", live=True), gpumon.phase("train"):
    pass
print(gpumon.read("t").metadata()["ended"])
"""
    done = without_extras(code, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "closed\n", done.stderr
    assert "recording continues without the chart: a live chart needs matplotlib" in done.stderr


def test_its_licence_is_the_projects() -> None:
    assert (GPUMON / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
