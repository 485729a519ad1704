"""Sweeps: plans from lists and files, the bars, kills, shared GPUs."""

import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import fake_nvml
import gpumon_tools
import psutil
import pytest
import records
from runner_tools import BEGIN, FINISH, Suite

from gpumon import gpu as gpu_module
from gpumon.series import Unavailable
from helpers import paths, record
from helpers.__main__ import main
from helpers.record import processes
from helpers.results import caveats, comparison
from helpers.runner import experiments, kernel_processes, messages, other_gpu_processes, plans

# As a run with this seed would have it: the report goes by it.
OWN = "MADE['recipe']['seed'] = seed"
# What was begun, where no new attempt can wipe it out.
LOGGED = """
with open(Path(run).parents[2] / "log", "a") as file:
    file.write(f"{Path(run).name}\\n")"""


def two_frameworks(suite: Suite, *cells: str) -> None:
    for framework in ("PyTorch", "Keras"):
        named = f"MADE['framework'] |= {{'name': {framework!r}}}"
        notebook = f"{framework}_MultiGPU"
        suite.notebook(notebook, BEGIN, OWN, named, *cells, FINISH, framework=framework)


def sweep_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "sweep.toml"
    path.write_text(f'recipe = "demo"\n[sweep]\n{text}', encoding="utf-8")
    return str(path)


def test_only_runs_whose_records_say_so_are_done(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    """A runner that was killed leaves records that are running, cut off or just finished."""
    suite.without_kernels()
    two_frameworks(suite, LOGGED)
    assert suite.compare("--name", "near", "--repeats", "2") == 0
    batch = experiments.load("near")
    first, second, third, _ = (batch.folder_of(run) for run in batch.runs)
    whole = json.loads((first / "record.json").read_text("utf-8"))
    del whole["run"]["variant"]  # the runner adds it after the notebook's end
    (first / "record.json").write_text(json.dumps(whole), "utf-8")
    os.truncate(second / "record.json", 500)
    unfinished = json.loads((third / "record.json").read_text("utf-8")) | {"state": "running"}
    (third / "record.json").write_text(json.dumps(unfinished), "utf-8")
    capsys.readouterr()
    assert suite.compare("--resume", "near") == 0
    shown = capsys.readouterr().out
    assert "4 runs, 2 of them finished before" in shown
    assert shown.count("again, earlier attempt: running") == 1
    assert shown.count("again, earlier attempt: unreadable: ") == 1
    began = Counter((suite.folder / "log").read_text("utf-8").splitlines())
    assert [began[run.name] for run in (first, second, third)] == [1, 2, 2]
    assert record.read(first)["run"]["variant"] == "repeat1"


def test_what_a_killed_runner_left_in_a_runs_folder_is_ended(suite: Suite) -> None:
    suite.without_kernels()
    suite.notebook("PyTorch_MultiGPU", BEGIN, "raise ValueError")
    assert suite.compare("--name", "b") == 1
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    left = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
    try:
        assert left.stdout and left.stdout.readline()
        kernel_processes.note_leader(suite.run("b", "PyTorch_MultiGPU"), left.pid)
        assert suite.compare("--name", "b") == 1
        assert not processes.lives(left.pid)
    finally:
        left.kill()
        left.communicate()


def test_the_file_says_what_the_options_say(
    suite: Suite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_frameworks(suite)
    suite.notebook("MXNet_Gluon_MultiGPU", BEGIN, FINISH, framework="MXNet Gluon")
    file = sweep_file(
        tmp_path,
        'frameworks = ["mxnet", "PyTorch"]\ndevices = [1, 2]\nseeds = "0, 7"\nrepeats = 2\n'
        f'precision = "fp32"\ndata = \'{suite.data}\'\nname = "overnight"\n'
        "epochs = 3\nbatch_size = 4\nnum_workers = 0\nwarmup_epochs = 0.5\n",
    )
    assert main(["run", "--dry-run", "--recipe", file]) == 0
    from_file = capsys.readouterr().out
    assert "Experiment overnight: 16 runs" in from_file
    assert "every run with epochs 3, batch size 4, workers 0, warm-up epochs 0.5\n" in from_file
    assert "MXNet_Gluon_MultiGPU on 2 devices, seed7 repeat2" in from_file
    # Options beside the file replace what it says; a notebook replaces its frameworks too.
    options = ["--notebooks", "Keras_MultiGPU", "--seeds", "3", "--repeats", "1", "--devices", "1"]
    options += ["--epochs", "default", "--batch-size", "default", "--num-workers", "default"]
    assert main(["run", "--dry-run", "--recipe", file, *options]) == 0
    shown = capsys.readouterr().out
    assert "Experiment overnight: 1 run\n" in shown
    assert "Keras_MultiGPU on 1 device, environment" in shown
    assert "every run with warm-up epochs 0.5\n" in shown
    assert not paths.RUNS.exists()


def test_other_epochs_batch_sizes_and_workers_are_another_plan(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch that was cut short is gone on with where all of them are the same, and only there."""
    suite.without_kernels()
    told = "(epochs, batch_size, num_workers, warmup_epochs)"
    suite.notebook("A", BEGIN, f"Path(run, 'given').write_text(repr({told}))", FINISH)
    words = ["--epochs", "2", "--batch-size", "16", "--num-workers", "0", "--warmup-epochs", "1.5"]
    assert suite.compare("--name", "cut", *words) == 0
    assert (suite.run("cut", "A") / "given").read_text() == "(2, 16, 0, 1.5)"
    plan = paths.RUNS / "cut" / "experiment.json"
    plan.write_text(json.dumps(json.loads(plan.read_text("utf-8")) | {"ended": ""}), "utf-8")
    capsys.readouterr()
    assert suite.compare("--dry-run", "--name", "cut", *words) == 0
    assert "Resuming experiment cut" in capsys.readouterr().out
    for option in words[::2]:  # of two the last counts
        assert suite.compare("--dry-run", "--name", "cut", *words, option, "3") == 2
        said = "exists with another plan, or has finished; choose another --name"
        assert said in capsys.readouterr().err
    assert suite.compare("--dry-run", "--resume", "cut") == 0
    said = "every run with epochs 2, batch size 16, workers 0, warm-up epochs 1.5\n"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device = [1]", "unknown field `device`"),
        ("seeds = [1]\nseeds = [\n  1,\n  2,\n]", "Cannot overwrite a value"),
        ("seeds = [-1]", "seed is -1: give a whole number from 0"),
        ("#\nepochs = 0", "epochs is 0: give a whole number from 1"),
        ("epochs = [1, 2]", "epochs: Expected `int | str`, got `array`"),
        ("repeats = 99999", "runs; plan 10000 or fewer"),
        ("devices = [0]", ": devices 0: must be 1 or more"),
        ("frameworks = ['zoo']", "unknown framework 'zoo': the frameworks are pytorch"),
        ("frameworks = ['keras']\nnotebooks = ['x']", "give only one of them"),
        ("precision = ['fp32', 'int8']", "precision: Invalid enum value 'int8'"),
        ("data = 'nowhere'", "data folder 'nowhere' does not exist"),
        ("recipe = 'demo'", "this file is the recipe: leave the key out"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_its_name(
    suite: Suite, tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    two_frameworks(suite)
    file = sweep_file(tmp_path, text)
    assert main(["run", "--dry-run", "--recipe", file]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and file in captured.err
    assert len(captured.err.splitlines()) == 1 and not captured.out


def test_a_run_beside_other_programs_says_so(tmp_path: Path) -> None:
    run = plans.PlannedRun("N00_MultiGPU", "PyTorch", "tiny", 1, variant="seed1")
    plan = plans.Plan(recipe="demo", data=str(tmp_path), runs=[run])
    batch = experiments.Experiment(tmp_path, plan)
    others = {"cores": 2, "used": 1.4, "reason": None}
    content = records.make(cores=2, devices=1, speed=169.4, other_programs=others)
    batch.write_record(run, content)
    said = "169.4 images/s, test AUC 0.750 ± 0.030; other programs used 1.4 of 2 cores"
    assert messages.outcome(batch, run, 88.0) == f"finished after 1:28: {said}"


def test_a_terminal_gets_bars(suite: Suite) -> None:
    suite.notebook("Keras_MultiGPU", "raise ValueError('[red]\\x1b[2J')", framework="Keras")
    suite.notebook("PyTorch_MultiGPU", BEGIN, OWN, "import time; time.sleep(2.5)", FINISH)
    ours, theirs = pty.openpty()
    size = {"TERM": "xterm", "COLUMNS": "110", "LINES": "30"}
    command = suite.start("--name", "seen", output=theirs, env=size)
    os.close(theirs)
    shown = ""
    with suppress(OSError):  # the other end is closed
        while True:
            shown += os.read(ours, 65536).decode(errors="replace")
    os.close(ours)
    assert command.wait(timeout=300) == 1
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "[1/2] PyTorch" in plain
    assert re.search(r"All runs [^\n]* 1/2", plain) and re.search(r"9\. Train [^\n]* \d/\d", plain)
    assert "[red]" in plain and "\x1b[2J" not in shown


def test_a_run_sees_only_its_gpus_and_says_who_else_is_on_them(suite: Suite) -> None:
    seen = "import os; (Path(run) / 'seen').write_text(os.environ['CUDA_VISIBLE_DEVICES'])"
    suite.notebook("PyTorch_MultiGPU", BEGIN, OWN, seen, FINISH)
    script = suite.folder / "script"
    me = os.getpid()
    text = "".join(gpumon_tools.gpu(number, f"processes {me} {100 + number}") for number in (0, 1))
    script.write_text(text + "\n", encoding="utf-8")
    fake = fake_nvml.environment(script)
    command = suite.start("--name", "shared", env=fake | {"CUDA_VISIBLE_DEVICES": "1,0"})
    shown, _ = command.communicate(timeout=900)
    assert command.returncode == 0, shown
    folder = suite.run("shared", "PyTorch_MultiGPU")
    uuid = "GPU-10000000-aaaa-bbbb-cccc-dddddddddddd"
    assert (folder / "seen").read_text("utf-8") == uuid
    content = record.read(folder)
    name = psutil.Process(me).name()
    only = {"name": name, "seen": "before"}
    assert content["other_processes"] == {"processes": [only], "reason": None}
    assert f"warning: {name} ({me}, 101 MiB) on GPU-10000000" in shown
    remarks = caveats.remarks(comparison.load(paths.RUNS / "shared")).frame["remark"]
    assert any("its GPU was in use by" in remark for remark in remarks)


def test_neighbours_that_are_there_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_gpu_processes, "SETTLE_SECONDS", 0.0)
    me, gone = os.getpid(), 2**22 + 1  # above what Linux numbers processes with
    now: list[tuple[str, int, float | None]] = [("GPU-a", gone, None)]
    monkeypatch.setattr(gpu_module, "compute_processes", lambda uuids: list(now))
    warned: list[str] = []
    with other_gpu_processes.watched(["GPU-a"], warned.append) as found:
        now += [("GPU-a", me, 7.0), ("GPU-a", gone + 1, 9.0)]
    named = {row["seen"]: row["name"] for row in found["processes"]}
    assert len(found["processes"]) == 2 and named["during"] == psutil.Process(me).name()
    assert "before" in named
    assert len(warned) == 2


def test_a_driver_that_does_not_tell_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    unsupported = Mock(side_effect=Unavailable("Not Supported"))
    monkeypatch.setattr(gpu_module, "compute_processes", unsupported)
    warned: list[str] = []
    with other_gpu_processes.watched(["GPU-a"], warned.append) as said:
        pass
    assert said["processes"] == [] and "does not list" in said["reason"] and len(warned) == 1
