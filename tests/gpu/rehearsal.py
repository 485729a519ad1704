"""Rehearses the ten minutes on a GPU here, on the GPU machine's software without a network.

    .venvs/lab/bin/python tests/gpu/rehearsal.py [--minutes 10] [--python PYTHON] [--out FOLDER]

It builds the environment of `rehearsal.txt` for Python 3.12, clones this checkout's last commit,
packs the missing wheels, and runs `run.sh --cpu` on two cores, next to a fake H100. A second
command continues it if the first has no time for some steps. The results are carried home, and
published into `FOLDER/published`. Ten minutes are those of two cores with nothing else to do: give
each command more where other programs run.
Exit code: 0 every step ran and ended well, 1 one did not, 2 the rehearsal could not begin.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_place import ROOT, Parser

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

import environment  # noqa: E402
import fake_nvml  # noqa: E402
import publish_results  # noqa: E402
import python311  # noqa: E402
from fake_nvml import scenarios  # noqa: E402
from kernels import VENVS  # noqa: E402

PYTHON = "3.12"
LOCK = Path(__file__).with_name("rehearsal.txt")
APART = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
"""Runs a command where there is no network, only the loopback that notebooks' kernels talk over."""
COMMANDS = 2
FILES, BYTES = 8, 16 << 20
"""What the GPU machine gives back."""


def main() -> int:
    parser = Parser(prog="rehearsal.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, help="use this Python instead of building one")
    parser.add_argument("--minutes", default="10", help="of each command (default: 10)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "rehearsal", metavar="FOLDER")
    given = parser.parse_args()
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        parser.error("a network namespace needs unshare and ip, and the right to use them")
    shutil.rmtree(given.out, ignore_errors=True)
    try:
        python = given.python or make_environment()
        with tempfile.TemporaryDirectory(prefix="rehearsal-") as scratch:
            return rehearse(python.absolute(), given.minutes, Path(scratch), given.out)
    except (python311.NoPython, environment.BuildError, subprocess.CalledProcessError) as error:
        print(f"rehearsal.py: {error}", file=sys.stderr)
        return 2


def make_environment() -> Path:
    """The Python of .venvs/rehearsal, where the lock is installed unless it is already."""
    folder = VENVS / "rehearsal"
    stamp = folder / "stamp"
    if not stamp.is_file() or stamp.read_text() != LOCK.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        python311.set_up_uv(VENVS)
        uv = python311.find_uv(VENVS)
        run = environment.runner(VENVS / "rehearsal.log")
        pyenv = sorted(Path.home().glob(f".pyenv/versions/{PYTHON}.*/bin/python"))
        run([uv, "venv", "--python", pyenv[0] if pyenv else PYTHON, folder])
        run([uv, "pip", "sync", "--python", folder, LOCK])
        stamp.write_text(LOCK.read_text())
    return folder / "bin" / "python"


def rehearse(python: Path, minutes: str, scratch: Path, out: Path) -> int:
    """Clone, pack, run, carry home and publish; the exit code."""
    machine, clone = scratch / "machine", scratch / "machine" / "clone"
    machine.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CUDA_VISIBLE"))}
    env["PYTHON"] = str(python)
    run_sh = str(clone / "tests/gpu/run.sh")
    have = subprocess.run([run_sh, "--have"], env=env, check=True, capture_output=True, text=True)
    pack = [sys.executable, str(clone / "tests/gpu/pack.py"), "--python", PYTHON]
    subprocess.run([*pack, "--have", have.stdout.strip()], check=True)
    (script := scratch / "h100").write_text(h100())
    run = [*APART, "taskset", "--cpu-list", two_cores(), run_sh, "runs/gpu", "--cpu"]
    run += ["--minutes", minutes]
    env |= fake_nvml.environment(script)
    for _ in range(COMMANDS):
        code = subprocess.run(run, cwd=clone, env=env, check=False).returncode
        if not (late := without_time(clone / "runs" / "gpu")):
            break
    parts = carried(clone / "runs", scratch)
    shutil.rmtree(machine)
    out.mkdir(parents=True)
    subprocess.run(f"cat {shlex.join(map(str, parts))} | tar -xz -C {shlex.quote(str(out))}",
                   shell=True, check=True)  # fmt: skip
    publish_results.publish_check(out / "gpu", out / "published")
    leaks = [file for file in (out / "published").rglob("*")
             if file.is_file() and str(scratch).encode() in file.read_bytes()]  # fmt: skip
    mib = sum(part.stat().st_size for part in parts) / 2**20
    print(f"carried home: {mib:.1f} MiB in {len(parts)} files; {out / 'published' / 'summary.md'}")
    for what, found in (("no time for", late), ("the machine's folders are named in", leaks)):
        if found:
            print(f"rehearsal.py: {what} {', '.join(map(str, found))}", file=sys.stderr)
    return int(code != 0 or bool(late or leaks))


def without_time(out: Path) -> list[str]:
    """The steps that were not begun because time was over."""
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return [step["step"] for step in summary["steps"] if "s are left" in step["said"]]


def h100() -> str:
    """The fake driver's script: a busy H100, with GPM and energy."""
    script = scenarios.script(scenarios.ok, 1).replace("NVIDIA H200", "NVIDIA H100 80GB HBM3")
    joules = " ".join(str(60_000 * tick) for tick in range(10_000))  # 600 W, in mJ a step
    return f"driver 580.65.06\n{script}0 capability 90\n0 energy {joules}\n"


def two_cores() -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))


def carried(folder: Path, scratch: Path) -> list[Path]:
    """The results as the GPU machine gives them back, with README's command."""
    command = f"tar -cz gpu | split -b {BYTES} - {shlex.quote(str(scratch / 'results.'))}"
    subprocess.run(command, shell=True, cwd=folder, check=True)
    parts = sorted(scratch.glob("results.*"))
    if len(parts) > FILES:
        raise SystemExit(f"rehearsal.py: {len(parts)} files of 16 MiB, more than {FILES}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
