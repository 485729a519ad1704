#!/usr/bin/env python3
"""Makes the environments of the kernels under .venvs/, each from its lock (see docs/environments.md).

    python3 environments/build.py                         all of them; a second run does nothing
    python3 environments/build.py --kernels lab,pytorch   some of them
    python3 environments/build.py --lock                  re-makes the locks (`-U` for newer versions)

Standard library only, on whatever Python 3 is at hand: it finds or fetches Python 3.11 and uv.
Exit code: 0 all there, 1 at least one could not be built (the others were), 2 nothing could start.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import python311
import sources

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENVS = ROOT / ".venvs"


class Kernel(NamedTuple):
    title: str  # as Jupyter's menu shows it
    imports: str  # what must import for the environment to count as built
    cpu_above: int | None = None  # GPUs of a compute capability (major) above this get the CPU form


# To add a kernel: a line here, <name>.in beside this file (and <name>-gpu.in if its GPU packages
# are other packages), and `make lock`.
KERNELS = {
    "lab": Kernel("Lab (no framework)", "jupyterlab, papermill, nbmake"),
    "pytorch": Kernel("PyTorch", "torch, torchvision"),
    "tensorflow": Kernel("TensorFlow and Keras", "tensorflow, keras"),
    # MXNet's GPU build holds no code for GPUs after Ampere and Ada (compute capability 8.x).
    "mxnet": Kernel("MXNet Gluon", "mxnet", cpu_above=8),
    "chainer": Kernel("Chainer", "chainer, chainercv.transforms"),
}


class BuildError(Exception):
    """An environment could not be built; its text is one line that says why."""


class Setting(NamedTuple):
    """What all builds share."""

    uv: Path
    python: str
    gpu: bool
    capability: int | None  # the newest GPU's compute capability (major), None if unknown
    env: dict[str, str]


# --- What there is ---------------------------------------------------------------------------


def driver_present() -> bool:
    """Whether an NVIDIA driver is loaded on this machine (or on the Windows around this WSL)."""
    signs = "/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1"
    return any(Path(sign).exists() for sign in signs)


def newest_capability() -> int | None:
    """Compute capability (major) of the newest GPU here, None where nvidia-smi does not say."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=60, check=False,
        ).stdout  # fmt: skip
        return max(int(float(line)) for line in said.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def form(kernel: str, setting: Setting) -> str:
    """ "gpu" or "cpu": which of a kernel's two locks to install. PyTorch's one form counts as GPU."""
    limit = KERNELS[kernel].cpu_above
    too_new = limit is not None and (setting.capability or 0) > limit
    return "gpu" if setting.gpu and kernel != "lab" and not too_new else "cpu"


def lock_of(kernel: str, kind: str) -> Path:
    gpu = HERE / f"{kernel}-gpu.txt"
    return gpu if kind == "gpu" and gpu.exists() else HERE / f"{kernel}.txt"


def stamp(kernel: str, setting: Setting) -> dict[str, str]:
    """What a kernel's environment is made of. Another stamp, another build.

    "project" is apart: when only pyproject.toml changed, only the project is installed again.
    """
    parts = [lock_of(kernel, form(kernel, setting)), *sorted(HERE.glob("*.py")), HERE / "tools.txt"]
    parts += [HERE / "pillow-simd.txt", HERE / "pillow-stand-in" / "pyproject.toml"]
    parts += [HERE / "chainercv.txt"] * (kernel == "chainer")
    recipe = hashlib.sha256()
    for part in parts:
        recipe.update(part.name.encode() + b"\0" + part.read_bytes() + b"\0")
    # A compiler that has come or gone since decides between Pillow and pillow-simd.
    recipe.update(f"{setting.python} {sources.instruction_set()} {sources.compiler()}".encode())
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode())
    return {"recipe": recipe.hexdigest(), "project": project.hexdigest()}


def stamped(kernel: str) -> dict[str, str]:
    """The stamp of what is in .venvs/<kernel>; empty if there is nothing whole."""
    try:
        if not (VENVS / kernel / "bin" / "python").exists():  # its base Python may have gone
            return {}
        found: dict[str, str] = json.loads((VENVS / kernel / "stamp.json").read_text())
        return found
    except (OSError, ValueError):
        return {}


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)


# --- Building --------------------------------------------------------------------------------


def runner(log: Path, setting: Setting) -> sources.Run:
    """A function that runs a command with its output in `log`; raises BuildError if it fails."""
    log.write_text("")

    def run(command: list[Any], env: dict[str, str] | None = None) -> None:
        with log.open("a") as out:
            print("$", *command, file=out, flush=True)
            code = subprocess.run(
                [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                cwd=ROOT, env={**setting.env, **(env or {})}, check=False,
            ).returncode  # fmt: skip
        if code:
            raise BuildError(reason_in(log.read_text(), f"exit code {code}"))

    return run


def reason_in(log: str, otherwise: str) -> str:
    """The line of a log that says best why it failed: uv's and pip's error, or Python's last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if line.lower().startswith(("error:", "cause:", "caused by:"))]
    return (causes or lines or [otherwise])[-1][:300]


def build(kernel: str, setting: Setting, pillow_wheel: concurrent.futures.Future[Any]) -> dict[str, Any]:  # noqa: E501
    """Makes one environment and returns its status (also written to .venvs/<kernel>.json)."""
    began, venv, kind = time.monotonic(), VENVS / kernel, form(kernel, setting)
    status = {"kernel": kernel, "ok": False, "form": kind, "reason": "the build was interrupted"}
    status |= {"seconds": 0.0, "pillow": None}
    target, have = stamp(kernel, setting), stamped(kernel)
    (venv / "stamp.json").unlink(missing_ok=True)  # from here on: not whole
    unregister(kernel)
    write_json(VENVS / f"{kernel}.json", status)
    run = runner(VENVS / f"{kernel}.log", setting)
    pip = [setting.uv, "pip", "install", "--python", venv, "--no-deps", "-b", HERE / "tools.txt"]
    try:
        if have.get("recipe") == target["recipe"]:
            run([*pip, "--editable", ROOT])
            status["pillow"] = have["pillow"]
        else:
            shutil.rmtree(venv, ignore_errors=True)
            run([setting.uv, "venv", "--python", setting.python, "--prompt", kernel, venv])
            run([setting.uv, "pip", "sync", "--python", venv, "--require-hashes",
                 "-b", HERE / "tools.txt", lock_of(kernel, kind)])  # fmt: skip
            local: list[Any] = ["--editable", ROOT]
            if kernel == "chainer":
                local.append(sources.chainercv(tools(setting), wheels(), run))
            try:
                local += [pillow_wheel.result(), HERE / "pillow-stand-in"]
                status["pillow"] = f"{sources.PILLOW_SIMD} ({sources.instruction_set()})"
            except BuildError as error:
                status["pillow"] = f"{sources.PILLOW} ({error})"
            run([*pip, *local])
            run([setting.uv, "pip", "check", "--python", venv])
            check = f"import PIL.Image, {KERNELS[kernel].imports}"
            run([venv / "bin" / "python", "-c", check], env=activation(kernel, kind))
        write_json(venv / "stamp.json", {**target, "pillow": status["pillow"]})
        status |= {"ok": True, "reason": ""}
    except BuildError as error:
        status["reason"] = str(error)
    status["seconds"] = round(time.monotonic() - began, 1)
    write_json(VENVS / f"{kernel}.json", status)
    return status


def wheels() -> Path:
    (VENVS / ".wheels").mkdir(parents=True, exist_ok=True)
    return VENVS / ".wheels"


def tools(setting: Setting) -> Path:
    """The Python of `.venvs/.tools`, which builds from source."""
    return VENVS / ".tools" / "bin" / "python"


def make_tools(setting: Setting) -> None:
    folder, mark = VENVS / ".tools", VENVS / ".tools" / "stamp"
    want = setting.python + (HERE / "tools.txt").read_text()
    if mark.is_file() and mark.read_text() == want:
        return
    shutil.rmtree(folder, ignore_errors=True)
    run = runner(VENVS / "tools.log", setting)
    run([setting.uv, "venv", "--python", setting.python, folder])
    run([setting.uv, "pip", "sync", "--python", folder, "--require-hashes", HERE / "tools.txt"])
    mark.write_text(want)


def make_pillow_simd(setting: Setting) -> Path:
    """The wheel that takes Pillow's place. Raises BuildError with the reason it cannot be had."""
    if not sources.compiler():
        raise BuildError("no C compiler to make pillow-simd with (Debian: gcc)")
    log = VENVS / "pillow-simd.log"
    try:
        return sources.pillow_simd(tools(setting), wheels(), runner(log, setting))
    except BuildError:
        raise BuildError(sources.why_no_pillow_simd(log.read_text())) from None


# --- Jupyter's kernels -----------------------------------------------------------------------


def activation(kernel: str, kind: str) -> dict[str, str]:
    """The environment variables that "activate" a kernel's environment, PATH as a whole."""
    env = kernel_variables(kernel, kind)
    return {**env, "PATH": env["PATH"].replace("${PATH}", os.environ.get("PATH", os.defpath))}


def kernel_variables(kernel: str, kind: str) -> dict[str, str]:
    """For kernel.json. Jupyter fills in ${PATH}, which is always set; an unset one stays as it is.

    The CUDA libraries come as packages. MXNet and Chainer look for them on LD_LIBRARY_PATH only.
    """
    venv = VENVS / kernel
    env = {"PATH": f"{venv / 'bin'}:${{PATH}}", "VIRTUAL_ENV": str(venv)}
    if kind == "gpu" and lock_of(kernel, kind).stem.endswith("-gpu"):
        libraries = sorted(map(str, venv.glob("lib/python*/site-packages/nvidia/*/lib")))
        before = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
        env["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys([*libraries, *before]))
    return env


def specification(kernel: str) -> Path:
    return VENVS / "lab" / "share" / "jupyter" / "kernels" / kernel / "kernel.json"


def register(kernel: str, kind: str) -> None:
    """Tells the lab's Jupyter, papermill and nbmake of a kernel."""
    python = VENVS / kernel / "bin" / "python"
    write_json(specification(kernel), {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": KERNELS[kernel].title,
        "language": "python",
        "metadata": {"debugger": True},
        "env": kernel_variables(kernel, kind),
    })  # fmt: skip


def unregister(kernel: str) -> None:
    shutil.rmtree(specification(kernel).parent, ignore_errors=True)


# --- The command -----------------------------------------------------------------------------


def make_locks(uv: Path, python: str, extra: list[str]) -> int:
    """Re-makes every lock from its .in file; pins that still hold are kept unless asked (`-U`)."""
    names = sorted(p.stem for p in HERE.glob("*.in") if p.stem != "common")
    for name in sorted(names, key=lambda n: n != "tools"):  # the tools constrain the others
        alone = ["--no-deps"] if name in ("pillow-simd", "chainercv") else []
        constraints = ["-b", "tools.txt"] if name != "tools" else []
        code = subprocess.run(
            [uv, "pip", "compile", f"{name}.in", "-o", f"{name}.txt", "--python", python,
             "--python-platform", "x86_64-manylinux_2_28", "--generate-hashes", "--no-header",
             "--quiet", *alone, *constraints, *extra], cwd=HERE, check=False,
        ).returncode  # fmt: skip
        print(f"{name:15} {'locked' if not code else 'FAILED'}", flush=True)
        if code:
            return 1
    return 0


def build_all(wanted: list[str], setting: Setting) -> list[dict[str, Any]]:
    """Builds those that need it, two at a time (one unpacks while the other downloads)."""
    done = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
        make_tools(setting)
        pillow_wheel = pool.submit(make_pillow_simd, setting)
        jobs = [pool.submit(build, kernel, setting, pillow_wheel) for kernel in wanted]
        try:
            for job in concurrent.futures.as_completed(jobs):
                done.append(status := job.result())
                word = "ok" if status["ok"] else "FAILED"
                print(f"{status['kernel']:11} {word:6} {status['seconds']:5.0f} s  {status['form']}"
                      f"  {status['pillow'] if status['ok'] else status['reason']}", flush=True)  # fmt: skip
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="build.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kernels", metavar="A,B", default=",".join(KERNELS))
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--gpu", action="store_true", default=None, help="install the GPU forms")
    forms.add_argument("--cpu", action="store_false", dest="gpu", help="install the CPU forms")
    parser.add_argument("--lock", action="store_true", help="re-make the locks instead")
    options, extra = parser.parse_known_args(arguments)
    if extra and not options.lock:
        parser.error(f"unknown: {' '.join(extra)}")
    return options, extra


def main(arguments: list[str]) -> int:
    options, extra = parse(arguments)
    wanted = list(dict.fromkeys(k for k in options.kernels.split(",") if k))
    if unknown := [k for k in wanted if k not in KERNELS]:
        print(f"build.py: no kernel named {', '.join(unknown)}: "
              f"the kernels are {', '.join(KERNELS)}", file=sys.stderr)  # fmt: skip
        return 2
    VENVS.mkdir(exist_ok=True)
    with (VENVS / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # one build at a time; a second waits and finds it done
        try:
            python = python311.find_python()
            uv = python311.find_uv(VENVS, python)
            python = python or python311.fetch_python(uv)
        except python311.NoPython as error:
            print(f"build.py: {error}", file=sys.stderr)
            return 2
        if options.lock:
            return make_locks(uv, python, extra)
        return make(wanted, options.gpu, uv, python)


def make(wanted: list[str], gpu: bool | None, uv: Path, python: str) -> int:
    driver = driver_present()
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    env |= {"UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    home = Path(env.get("UV_CACHE_DIR") or Path.home())
    if "UV_CACHE_DIR" not in env and home.exists() and home.stat().st_dev != VENVS.stat().st_dev:
        env["UV_CACHE_DIR"] = str(VENVS / ".cache")  # hard links need one file system
    setting = Setting(uv, python, driver if gpu is None else gpu, newest_capability() if driver else None, env)  # noqa: E501
    todo = [k for k in wanted if without_pillow(stamped(k)) != stamp(k, setting)]
    failed: list[dict[str, Any]] = []
    if todo:
        print(f"Making {', '.join(todo)} in .venvs/ with {python} "
              f"({'GPU' if setting.gpu else 'CPU'} forms); details in .venvs/<kernel>.log", flush=True)  # fmt: skip  # noqa: E501
        try:
            failed = [s for s in build_all(todo, setting) if not s["ok"]]
        except KeyboardInterrupt:
            print("build.py: interrupted; run it again to go on", file=sys.stderr)
            return 130
        except BuildError as error:
            print(f"build.py: {error}", file=sys.stderr)
            return 1
    else:
        print(f"Environments are there: {', '.join(wanted)}")
    if stamped("lab"):
        for kernel in KERNELS:
            kind = form(kernel, setting)
            if without_pillow(stamped(kernel)) == stamp(kernel, setting):
                register(kernel, kind)
    return 1 if failed else 0


def without_pillow(found: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if key != "pillow"}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
