#!/usr/bin/env python3
"""Build the documentation's site into site/, in a separate environment under .venvs/docs.

    python3 tools/docs_site.py            build (a broken link is an error)
    python3 tools/docs_site.py serve      show it while you write

`make envs` and `make compare` do not build this environment. The lists of commands and Python
names come from the environment lab (tools/reference_pages.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "environments"))

import build
import kernels
import python311
from environment import BuildError
from kernels import ROOT, VENVS


def main(arguments: list[str]) -> int:
    try:
        VENVS.mkdir(exist_ok=True)
        build.make_small(VENVS / "docs", lambda: build.get_maker(kernels.Machine(gpu=False)))
    except (python311.NoPython, BuildError) as error:
        print(f"docs_site.py: {error}", file=sys.stderr)
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
