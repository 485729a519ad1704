"""Tries on a machine with a GPU and no network what needs one, in ten minutes.

    python3 tests/gpu/gpu_run.py OUT [--minutes 8.5] [--only STEP,...] [--keep FOLDER] [--small]

Uses this Python's frameworks; what else is missing comes from tests/gpu/wheels (pack.py). Every
step has a limit of time, a log in OUT/logs, and a line in OUT/summary.md and summary.json as soon
as it has ended; none stops another. --keep packs all results after each step, into files of 15 MiB.
--small runs on the CPU, at a size for two cores. Exit code: 0 nothing failed, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import util
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FRAMEWORKS = {"pytorch": "torch", "jax": "jax"}
"""The kernels whose notebooks run here, each with the module that it needs."""
GRACE_SECONDS = 20
"""What a step that ran out of time gets to write down what it has."""
VERSIONS = """
import importlib, json, platform, sys
from helpers.frameworks import devices
found = {"python": platform.python_version(), "hardware": devices.hardware()}
for name in sys.argv[1:]:
    found |= importlib.import_module(f"helpers.frameworks.{name}").versions()
print(json.dumps({"machine": found}))
"""


class Step(NamedTuple):
    """Commands that are run one after the other, while each ends in 0."""

    name: str
    seconds: float
    """Its limit, in a command of 8.5 minutes. The script skips it if less than half is left."""
    commands: list[list[str]]
    skipped: str = ""
    """Why it cannot be run here."""


def steps(python: str, out: Path, small: bool) -> Iterator[Step]:
    """The most wanted first."""
    here = [name for name, module in FRAMEWORKS.items() if util.find_spec(module)]
    tools = [["nvidia-smi"]] if shutil.which("nvidia-smi") else []
    yield Step("versions", 40, [[python, "-c", VERSIONS, *here], *tools])
    count, made, size = (200, 76, 38) if small else (1536, 528, 264)
    source, images = str(out / "work" / "source"), str(out / "work" / "images")
    data_prep = [python, "-m", "data_prep"]
    generate = [*data_prep, "generate", source, "--num-images", str(count), "--size", str(made)]
    resize = [*data_prep, "resize", source, images, "--size", str(size)]
    yield Step("images", 40, [generate, resize])

    def run(notebook: str, kernel: str, precision: str, seconds: float) -> Step:
        name = f"{kernel}-{precision}"
        recipe = HERE / ("small.toml" if small else "random.toml")
        command = [python, "-m", "helpers", "run", "--name", name, "--notebooks", notebook]
        command += ["--data", images, "--recipe", str(recipe), "--devices", "1"]
        lacks = "" if kernel in here else f"{kernel} is not installed here"
        if small and precision == "bf16":
            lacks = "not at the small size: few CPUs compute in bf16"
        return Step(name, seconds, [[*command, "--precision", precision]], lacks)

    lacks = "" if "pytorch" in here else "pytorch is not installed here"
    yield run("PyTorch_MultiGPU", "pytorch", "bf16", 200)
    rivals = [python, "-W", "ignore", str(ROOT / "benchmarks" / "rivals.py")]
    rivals += ["--quick", "--steps", "1"] if small else ["--precision", "bf16", "--images", "384"]
    yield Step("rivals", 90, [rivals], lacks)
    yield run("PyTorch_MultiGPU", "pytorch", "fp32", 150)
    pytest = [python, "-m", "pytest", "-m", "gpu", "-rA", "-p", "no:cacheprovider", str(HERE)]
    checks = [[*pytest, "-k", f"nvml or {kernel}"] for kernel in here]
    yield Step("checks", 140, checks, "" if here else lacks)
    yield run("JAX_MultiGPU", "jax", "bf16", 300)


def make_python(folder: Path) -> None:
    """A Python in ``folder`` that sees what this one sees, then the wheels; writes nowhere else."""
    venv.EnvBuilder(symlinks=True, clear=True).create(folder)
    site = next(folder.glob("lib/python*/site-packages"))
    for wheel in (HERE / "wheels").glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
    seen = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in dict.fromkeys(seen)]
    numpy = util.find_spec("numpy")
    if numpy is None or not Path(numpy.cached or "").is_file():
        # Packages that came without bytecode are compiled once, for all steps.
        lines += [f"import sys; sys.pycache_prefix = {str(folder / 'bytecode')!r}\n"]
    (site / "machine.pth").write_text("".join(lines), encoding="utf-8")
    python = str(folder / "bin" / "python")
    for kernel in FRAMEWORKS:
        spec = folder / "share" / "jupyter" / "kernels" / kernel / "kernel.json"
        spec.parent.mkdir(parents=True)
        argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": argv, "display_name": kernel, "language": "python"}))


def environment(out: Path, small: bool) -> dict[str, str]:
    """For all steps: this checkout's packages, and all that is written in OUT."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept |= {
        "PYTHONPATH": str(ROOT),
        "ROSETTA_RUNS": str(out / "runs"),
        "ROSETTA_DATA": str(out / "work" / "data"),
        "JUPYTER_PATH": str(out / "work" / "python" / "share" / "jupyter"),
        "JAX_COMPILATION_CACHE_DIR": str(out / "work" / "jax"),
        "CUDA_CACHE_PATH": str(out / "work" / "cuda"),
    }
    if small:  # threads that wait by spinning bring a CPU that is shared to a stop
        kept |= {"CUDA_VISIBLE_DEVICES": "", "OMP_WAIT_POLICY": "passive"}
    return kept


def run(step: Step, seconds: float, log: Path, env: dict[str, str]) -> tuple[str, str]:
    """``ok`` or ``failed``, and the last line that the step said, or why it was ended."""
    end, code = time.monotonic() + seconds, 0
    with log.open("wb") as file:
        for command in step.commands:
            file.write(f"$ {shlex.join(command)}\n".encode())
            file.flush()
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=ROOT,
                start_new_session=True,
            )
            try:
                code = child.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return "failed", f"ran past its {seconds:.0f} s"
            finally:
                end_group(child)
            if code:
                break
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = [line for line in lines if not line.startswith("{")]  # those are rows
    return ("failed" if code else "ok"), said[-1][:300]


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, and what it has left in its process group."""
    if child.poll() is None:
        child.terminate()  # `rosetta run` stops its kernels and writes its records
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def said_by(step: str, out: Path, log: Path) -> dict[str, Any]:
    """What a step measured: the JSON that it printed, and the rows of its runs' records."""
    told: dict[str, Any] = {"results": []}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            found = json.loads(line) if line.startswith("{") else {}
            told |= {"machine": found["machine"]} if "machine" in found else {}
            told["results"] += [found] if "result" in found else []
    for path in sorted((out / "runs" / step).glob("*/record.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for kind in ("files", "synthetic"):
            if found := record.get(kind):
                rate = {"ours": found["images_per_second"], "unit": "images/s"}
                told["results"].append({"result": f"{step}, {kind}", **rate})
        told["comparable"] = record.get("fairness", {}).get("comparable")
    return told


def page(summary: dict[str, Any]) -> str:
    """The summary for people."""
    lines = [f"# What ran on {', '.join(summary['gpus']) or 'no GPU'}", ""]
    lines += [f"{summary['started']}, {summary['state']}; every result is of one run.", ""]
    lines += [f"- {name}: {value}" for name, value in summary["machine"].items()]
    lines += ["", "| step | outcome | s | |", "|---|---|---|---|"]
    rows = ["", "| result | here | beside | ratio |", "|---|---|---|---|"]
    for step in summary["steps"]:
        words = str(step["said"]).replace("|", "\\|")
        lines.append(f"| {step['step']} | {step['outcome']} | {step['seconds']:.0f} | {words} |")
        for one in step["results"]:
            ours = f"{one['ours']:,.4g} {one['unit']}"
            beside = f"{one['rival_name']}: {one['rival']:,.4g}" if "rival" in one else ""
            ratio = f"{one['ratio']:.3f}" if "ratio" in one else ""
            rows.append(f"| {one['result']} | {ours} | {beside} | {ratio} |")
    return "\n".join([*lines, *rows]) + "\n"


def write(summary: dict[str, Any], out: Path, keep: Path | None) -> None:
    """Both files, each whole at every moment; and all that there is, to be carried home."""
    texts = {"summary.json": json.dumps(summary, indent=1) + "\n", "summary.md": page(summary)}
    for name, text in texts.items():
        part = out / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(out / name)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        tar = ["tar", "-cz", "--exclude=./work", "--exclude=*.safetensors", "-C", str(out), "."]
        split = ["split", "-b", "15M", "-", str(keep / "results.")]
        subprocess.run(f"{shlex.join(tar)} | {shlex.join(split)}", shell=True, check=False)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="gpu_run.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="a folder for the results")
    parser.add_argument("--minutes", type=float, default=8.5, help="for all of it (default: 8.5)")
    parser.add_argument("--only", metavar="STEP,...", help="these steps, versions and images")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="results to carry home")
    parser.add_argument("--small", action="store_true", help="small, on the CPU")
    given = parser.parse_args(arguments)
    began, out = time.monotonic(), given.out.resolve()
    (out / "logs").mkdir(parents=True, exist_ok=True)
    longer = max(1.0, given.minutes / 8.5)  # who has more time gives each step more
    every = steps(str(out / "work/python/bin/python"), out, given.small)
    chosen = [step._replace(seconds=step.seconds * longer) for step in every]
    if given.only is not None:
        names = ["versions", "images", *given.only.split(",")]
        if unknown := set(names) - {step.name for step in chosen}:
            parser.error(f"no step {', '.join(unknown)}: {', '.join(s.name for s in chosen)}")
        chosen = [step for step in chosen if step.name in names]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a summary is written then too
    sys.path[:0] = [str(ROOT), str(ROOT / "environments")]
    import gpus

    found = gpus.found()
    summary: dict[str, Any] = {
        "state": "running",
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "gpus": [] if given.small else [f"{gpu.name}, driver {gpu.driver}" for gpu in found],
        "machine": {"command": shlex.join(["tests/gpu/gpu_run.py", *arguments])},
        "folders": [str(out), str(ROOT)],
        "steps": [],
    }
    try:
        make_python(out / "work" / "python")
        env = environment(out, given.small)
        for step in chosen:
            left = 60 * given.minutes - (time.monotonic() - began)
            log, since = out / "logs" / f"{step.name}.log", time.monotonic()
            outcome, said = "skipped", step.skipped
            told: dict[str, Any] = {"results": []}
            if not said and left < step.seconds / 2:
                said = f"{max(left, 0):.0f} s are left, it may take {step.seconds:.0f}"
            if not said:
                outcome, said = run(step, min(step.seconds, left), log, env)
                told = said_by(step.name, out, log)
                summary["machine"] |= told.pop("machine", {})
            line = {"step": step.name, "outcome": outcome, "said": said}
            summary["steps"].append(line | {"seconds": time.monotonic() - since} | told)
            print(
                f"{step.name:16} {outcome:8} {time.monotonic() - since:4.0f} s  {said}", flush=True
            )
            write(summary, out, given.keep)
        summary["state"] = "finished"
    except KeyboardInterrupt:
        summary["state"] = "stopped"
    finally:
        shutil.rmtree(out / "work", ignore_errors=True)
    write(summary, out, given.keep)
    outcomes = [line["outcome"] for line in summary["steps"]]
    counted = ", ".join(f"{outcomes.count(each)} {each}" for each in ("ok", "failed", "skipped"))
    print(f"{summary['state']}: {counted}: {out / 'summary.md'}", flush=True)
    return int("failed" in outcomes or summary["state"] != "finished")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
