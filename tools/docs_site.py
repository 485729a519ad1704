#!/usr/bin/env python3
"""Build the documentation's site into site/, in a separate environment under .venvs/docs.

    python3 tools/docs_site.py            build (a broken link is an error)
    python3 tools/docs_site.py serve      show it while you write

`make envs` and `make compare` do not build this environment. The lists of commands and Python
names come from the environment lab (tools/reference_pages.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "environments"))

import environment
import python311
from kernels import HERE, ROOT, VENVS

LOCK = HERE / "docs.txt"


def make_environment() -> None:
    """Installs the lock into .venvs/docs, unless it is there. Raises BuildError, NoPython."""
    venv = VENVS / "docs"
    stamp = venv / "stamp"
    if stamp.is_file() and stamp.read_text() == LOCK.read_text():
        return
    VENVS.mkdir(exist_ok=True)
    shutil.rmtree(venv, ignore_errors=True)
    python311.set_up_uv(VENVS)
    uv = python311.find_uv(VENVS)
    python = python311.find_python(uv)
    run = environment.runner(VENVS / "docs.log")
    run([uv, "venv", "--python", python or python311.fetch_python(uv), "--prompt", "docs", venv])
    run([uv, "pip", "sync", "--python", venv, "--require-hashes", LOCK])
    stamp.write_text(LOCK.read_text())


def main(arguments: list[str]) -> int:
    try:
        make_environment()
    except (python311.NoPython, environment.BuildError) as error:
        print(f"docs_site.py: {error} (details in .venvs/docs.log)", file=sys.stderr)
        return 2
    words = arguments or ["build", "--strict", "--quiet"]
    mkdocs = [str(VENVS / "docs" / "bin" / "python"), "-m", "mkdocs", *words]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # what Material says of its successor
    code = subprocess.run(mkdocs, cwd=ROOT, env=quiet, check=False).returncode
    if not code and words[0] == "build":
        print(f"The site is in {ROOT / 'site' / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
