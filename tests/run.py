"""`make test`: runs every check in its own environment, all of them even if some fail.

    python3 tests/run.py                    everything
    python3 tests/run.py lint pytorch       some parts, by the names the closing lines show
    python3 tests/run.py --soak             the long forms of checks, `make soak`

Standard library only. Ends with one line a part, and with exit code 1 if any part failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "environments"))

import kernels  # noqa: E402

Part = Callable[[], str]  # runs one part; "" if it passed, else why not

# Two frameworks live in one kernel, and the limits need any; other files are named after theirs.
KERNEL_OF = {"keras": "tensorflow", "limits": "pytorch"}


def command(kernel: str, *words: str | Path) -> str:
    """Runs a program of a kernel's environment, as if that environment were active."""
    status = kernels.status(kernel)
    if not status["ok"]:
        return f"no {kernel} environment: {status['reason']}"
    env = kernels.activation(kernel, status["form"])
    program = kernels.VENVS / kernel / "bin" / words[0]
    code = subprocess.run([program, *words[1:]], cwd=ROOT, env=env, check=False).returncode
    return f"exit code {code}" if code else ""


def environments() -> str:
    made = [sys.executable, str(ROOT / "environments" / "build.py")]
    code = subprocess.run(made, cwd=ROOT, check=False).returncode
    return f"exit code {code}" if code else ""


def notebooks() -> str:
    """Executes every notebook, each in the kernel it names, at demo size; then reads what it left.

    Compare comes last, so that it has something to show.
    """
    found = sorted((ROOT / "notebooks").glob("*.ipynb"), key=lambda file: file.stem == "Compare")
    if not found:
        return "there are no notebooks"
    options = ["--nbmake", "--nbmake-timeout=1800", "--durations=0"]
    return command("lab", "pytest", *options, *found, "tests/notebooks")


def parts() -> dict[str, Part]:
    """Every part by name, in order."""
    apart = ["--ignore=tests/frameworks", "--ignore=tests/notebooks"]
    found: dict[str, Part] = {
        "environments": environments,
        "lint": lambda: command("lab", "ruff", "check"),
        "format": lambda: command("lab", "ruff", "format", "--check"),
        "types": lambda: command("lab", "mypy"),
        "tests": lambda: command("lab", "pytest", "tests", *apart),
    }
    for file in sorted((ROOT / "tests" / "frameworks").glob("test_*.py")):
        name = file.stem[len("test_") :]
        kernel = KERNEL_OF.get(name, name)
        found[name] = lambda file=file, kernel=kernel: command(kernel, "pytest", file)  # type: ignore[misc]
    found["mutants"] = lambda: command("lab", "python", "tests/mutants.py", "--sample", "40")
    found["notebooks"] = notebooks
    return found


def long_parts() -> dict[str, Part]:
    """What takes too long for every day."""
    return {"mutants": lambda: command("lab", "python", "tests/mutants.py", "--all")}


def main(wanted: list[str]) -> int:
    soak = "--soak" in wanted
    wanted = [name for name in wanted if name != "--soak"]
    known = long_parts() if soak else parts()
    if unknown := [name for name in wanted if name not in known]:
        print(f"run.py: no part named {', '.join(unknown)}: the parts are {', '.join(known)}",
              file=sys.stderr)  # fmt: skip
        return 2
    lines, failed = [], 0
    for name in wanted or known:
        print(f"\n=== {name}", flush=True)
        began = time.monotonic()
        wrong = known[name]()
        failed += bool(wrong)
        seconds = time.monotonic() - began
        lines.append(
            f"{name:13} {'FAILED' if wrong else 'ok':6} {seconds:6.0f} s  {wrong}".rstrip()
        )
    print("\n=== summary", *lines, sep="\n")
    print(f"parts: {len(lines) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
