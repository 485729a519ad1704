"""gpumon on Python 3.9 and later, and what it says on systems that it was not made for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import psutil
import pynvml
import pytest
from gpumon_tools import ROOT, python, write

GPUMON = ROOT / "gpumon"
VERSIONS = [f"3.{minor}" for minor in range(9, 15)]


def interpreter(version: str) -> str:
    """An interpreter of that version, from the path or pyenv; skips where there is none."""
    homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
    found = shutil.which(f"python{version}", path=os.pathsep.join(map(str, homes)))
    if found is None:
        pytest.skip(f"no Python {version} here")
    return found


LOCK = """
class Timeout(TimeoutError):
    pass

class FileLock:
    is_locked = True
    def __init__(self, lock_file, **options):
        self.lock_file = str(lock_file)
    def acquire(self):
        open(self.lock_file, "a").close()
    def release(self):
        self.is_locked = False
"""
"""In place of filelock, of which each Python has another release."""


@pytest.fixture(name="packages")
def packages_fixture(tmp_path: Path) -> Path:
    """The packages that gpumon needs, which are of no Python version in particular."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "filelock.py").write_text(LOCK)
    (folder / "psutil").symlink_to(Path(psutil.__file__).parent)
    (folder / "pynvml.py").symlink_to(pynvml.__file__)
    return folder


IMPORT_ALL = f"""
import importlib, pathlib, sys
for file in sorted(pathlib.Path({str(GPUMON)!r}).glob("*.py")):
    if file.stem != "__main__":
        importlib.import_module("gpumon." + file.stem.replace("__init__", "errors"))
"""
TRAIN = "import gpumon\nwith gpumon.phase('train'):\n    sum(range(10**6))"


@pytest.mark.parametrize("version", VERSIONS)
def test_it_records_and_says_what_it_saw(version: str, packages: Path, tmp_path: Path) -> None:
    which = interpreter(version)
    (tmp_path / "psutil.py").write_text("raise SystemExit('a file of the working folder')")

    def run(*words: str) -> str:
        done = subprocess.run(
            [which, *words],
            cwd=tmp_path / "work",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{packages}"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "json.py").write_text("raise SystemExit('of the working folder')")
    main = "import sys; del sys.path[0]; from gpumon.__main__ import main; sys.exit(main())"
    run("-c", "import sys; del sys.path[0]" + IMPORT_ALL)
    program = ["--", which, "-c", f"import sys; del sys.path[0]\n{TRAIN}"]
    for name in ("a", "b"):
        run("-c", main, "record", "--interval", "0.05", "--out", name, *program)
    assert "train" in run("-c", main, "summary", "a")
    assert run("-c", main, "summary", "a", "b", "--csv").count("train") == 1
    assert run("-c", main, "export", "a", "-o", "a.json")
    run("-c", main, "devices")


# --- Other systems ---------------------------------------------------------------------------

ELSEWHERE = """
import sys, os, select, signal, subprocess, ctypes, socket, threading, tempfile, multiprocessing
import matplotlib.backends.backend_agg, matplotlib.font_manager, numpy.typing, sysconfig
sysconfig.get_config_vars()
import psutil, pathlib, asyncio, json, inspect, shutil, platform, contextlib
for name in ("sched_getaffinity", "uname", "sysconf", "O_NOFOLLOW", "O_NONBLOCK"):
    if hasattr(os, name) and SYSTEM == "win32":
        delattr(os, name)
os.__dict__.pop("sched_getaffinity", None)
if SYSTEM == "win32":
    del select.poll, signal.SIGCHLD
    sys.modules["fcntl"] = sys.modules["resource"] = None
reading = os.open
def no_proc(path, *rest, **named):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return reading(path, *rest, **named)
os.open = no_proc
sys.platform = SYSTEM
import gpumon
"""
ON_WINDOWS = (
    "gpumon: gpumon cannot record on Windows, which lacks the file locks and signals it needs; "
    "traces of other machines can be read, summarised, drawn and exported here\n"
)


def elsewhere(system: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    main = "from gpumon.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    return python("-c", f"SYSTEM = {system!r}\n{ELSEWHERE}{main}", *words, cwd=cwd)


@pytest.mark.parametrize("words", [("record", "--", "true"), ("devices",)])
def test_windows_says_in_one_line_that_it_cannot_record(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = elsewhere("win32", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, ON_WINDOWS)
    assert not list(tmp_path.iterdir())


def test_windows_reads_what_others_recorded(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, {"gpu0": [10, 20, 30]}, marks=(("train", 0.0, 3.0, {}),))
    for words in (
        "summary a b",
        "export a -o a.csv",
        "plot a -o a.html",
    ):
        done = elsewhere("win32", *words.split(), cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), (words, done.stderr)


def test_macos_says_what_it_does_not_record(tmp_path: Path) -> None:
    done = elsewhere("darwin", "devices", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("On macOS gpumon records the host alone: no GPU")
    recorded = elsewhere("darwin", "record", "--out", "t", "--", "true", cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    assert len(re.findall("on macOS gpumon records the host alone", recorded.stderr)) == 1
