"""The runner with real kernels on tiny notebooks: batches, failures, resuming, Ctrl-C."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image

pytest.importorskip("papermill")

import records

from helpers import batches, paths, plans, progress, record, runner
from helpers.__main__ import main
from helpers.errors import UserError

ROOT = Path(__file__).resolve().parent.parent

PARAMETERS = "\n".join(f'{name} = "auto"' for name in ("recipe", "data", "devices", "run"))
PARAMETERS += "\nseed = 0"
# The real thing: a record as a framework notebook writes it.
REAL = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
from helpers import record
from helpers.devices import Devices
from helpers.recipe import lookup
this_run = record.start(
    Path(run), notebook=NAME, framework="PyTorch", kernel="tiny", versions={{}},
    devices=Devices("cpu", ("virtual CPU device",) * devices), recipe=lookup(recipe).on(devices),
)"""
# The same bytes without the imports, which cost seconds in each kernel.
BEGIN = """
import json, os
from pathlib import Path
MADE = json.loads((Path(run).parents[2] / "made.json").read_text())
MADE["run"] |= {"notebook": NAME, "process": os.getpid()}
def write(state):
    (Path(run) / "record.json").write_text(json.dumps(MADE | {"state": state}))
write("running")"""
FINISH = "write('finished')"
WAIT = """
import subprocess, sys, time
from pathlib import Path
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep)
own = subprocess.Popen(sleep, start_new_session=True)
(Path(run) / "pids").write_text(f"{child.pid} {own.pid}")
time.sleep(600)"""


class Suite:
    """A checkout in small: notebooks, kernels, data and runs in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data-given"
        kernel = folder / "jupyter" / "kernels" / "tiny"
        kernel.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "Tiny", "language": "python"}
        (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
        whole = records.make(devices=1)
        whole["run"]["host"] = socket.gethostname()
        (folder / "made.json").write_text(json.dumps(whole), encoding="utf-8")
        self.notebook("Compare", "print(batch)", parameters='batch = "latest"', framework=None)

    def notebook(
        self,
        name: str,
        *cells: str,
        kernel: str = "tiny",
        parameters: str = PARAMETERS,
        framework: str | None = "PyTorch",
    ) -> None:
        first = new_code_cell(parameters, metadata={"tags": ["parameters"]})
        head = [new_code_cell(f"NAME = {name!r}"), first, new_markdown_cell("## 9. Train")]
        metadata: dict[str, Any] = {"kernelspec": {"name": kernel, "display_name": kernel}}
        if framework:
            metadata["compare"] = {"framework": framework}
        content = new_notebook(cells=[*head, *map(new_code_cell, cells)], metadata=metadata)
        (self.folder / "notebooks").mkdir(exist_ok=True)
        nbformat.write(content, self.folder / "notebooks" / f"{name}.ipynb")

    def compare(self, *arguments: str) -> int:
        """The command in this process, on one device and the small data folder."""
        given = list(arguments)
        if "--resume" not in given:
            given += ["--recipe", "demo"]
            given += [] if "--data" in given else ["--data", str(self.data)]
            given += [] if "--devices" in given else ["--devices", "1"]
        return main(given)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The command in a process of its own, as in a terminal."""
        code = (
            "import sys; from pathlib import Path; from helpers import paths\n"
            f"paths.NOTEBOOKS, paths.RUNS, paths.VENVS = (Path({str(self.folder)!r}) / n "
            "for n in ('notebooks', 'runs', 'venvs'))\n"
            "from helpers.__main__ import main; sys.exit(main())"
        )
        command = [sys.executable, "-c", code, *arguments, "--devices", "1", "--recipe", "demo"]
        command += ["--data", str(self.data)]
        pipe = subprocess.PIPE
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=env)

    def run(self, batch: str, name: str) -> Path:
        return self.folder / "runs" / batch / f"{name}-1x"

    def states(self, batch: str = "latest") -> dict[str, str]:
        content = json.loads((self.folder / "runs" / batch / "batch.json").read_text("utf-8"))
        return {run["notebook"]: run["state"] for run in content["runs"]}


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 120 small images of 40 patients."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "images").mkdir()
    lines = [
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,"
        "View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
    ]
    for patient in range(1, 41):
        for followup in range(3):
            name = f"{patient:08}_{followup:03}.png"
            finding = "Mass" if patient % 3 else "No Finding"
            lines.append(f"{name},{finding},{followup},{patient},50,M,PA,38,38,0.1,0.1")
            Image.fromarray(np.full((38, 38), patient, np.uint8)).save(folder / "images" / name)
    (folder / "Data_Entry_2017.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def suite(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(paths, "VENVS", tmp_path / "venvs")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made = Suite(tmp_path)
    made.data = images
    yield made


def wait_for(condition: Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def test_a_batch_from_start_to_end(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    assert suite.compare("--batch", "first") == 0
    folder = suite.run("first", "PyTorch_MultiGPU")
    assert record.read(folder)["state"] == "finished"
    assert (folder / "notebook.ipynb").exists()
    assert (paths.RUNS / "latest").resolve() == paths.RUNS / "first"
    assert str(paths.RUNS / "first") in (paths.RUNS / "first" / "Compare.ipynb").read_text("utf-8")
    shown = capsys.readouterr().out
    assert "9. Train" in shown and "finished" in shown and "0.750" in shown
    assert "Compare.ipynb" in shown.splitlines()[-2]
    assert "report.html" in shown.splitlines()[-3]
    assert "trained fastest" in (paths.RUNS / "first" / "report.html").read_text("utf-8")


def test_a_failing_notebook_and_a_missing_kernel_do_not_lose_the_others(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, "raise ValueError('a bad day')")
    suite.notebook("Keras_MultiGPU", "1 / 0", framework="Keras")
    suite.notebook("MXNet_Gluon_MultiGPU", kernel="not-there", framework="MXNet Gluon")
    suite.notebook("Chainer_MultiGPU", kernel="chainer", framework="Chainer")
    suite.notebook("PyTorch_MultiGPU_Quits", BEGIN)
    suite.notebook("Zoo_MultiGPU", BEGIN, FINISH, framework="Zoo")
    paths.VENVS.mkdir()
    status = {"kernel": "chainer", "ok": False, "form": "cpu", "reason": "no compiler"}
    (paths.VENVS / "chainer.json").write_text(json.dumps(status), encoding="utf-8")
    assert suite.compare("--batch", "mixed") == 1
    found = {name: record.read(suite.run("mixed", name)) for name in suite.states()}
    assert {name: content["state"] for name, content in found.items()} == suite.states()
    assert suite.states() == {
        "PyTorch_MultiGPU": "failed",
        "PyTorch_MultiGPU_Quits": "failed",
        "Keras_MultiGPU": "failed",
        "MXNet_Gluon_MultiGPU": "skipped",
        "Chainer_MultiGPU": "skipped",
        "Zoo_MultiGPU": "finished",
    }
    assert found["PyTorch_MultiGPU"]["reason"] == "ValueError: a bad day"
    assert found["Keras_MultiGPU"]["reason"].startswith("ZeroDivisionError")
    assert "without finishing" in found["PyTorch_MultiGPU_Quits"]["reason"]
    assert "no compiler" in found["Chainer_MultiGPU"]["reason"]
    assert "not installed" in found["MXNet_Gluon_MultiGPU"]["reason"]
    captured = capsys.readouterr()
    assert "no compiler" in captured.out and "a bad day" in captured.out
    assert "5 of 6 runs did not finish" in captured.err


def test_a_report_that_cannot_be_made_is_an_error_and_loses_nothing(
    suite: Suite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(batch: Path) -> Path:
        raise OSError("the disk is full")

    monkeypatch.setattr("helpers.report.write", broken)
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    assert suite.compare("--batch", "full") == 1
    shown = capsys.readouterr()
    assert "error: the report failed: OSError: the disk is full" in shown.err
    assert "report.html" not in shown.out
    assert "error: 1 of" not in shown.err


def test_a_kernel_that_dies_is_a_failed_run(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, "import os, signal; os.kill(os.getpid(), 9)")
    assert suite.compare("--batch", "dead") == 1
    content = record.read(suite.run("dead", "PyTorch_MultiGPU"))
    assert content["state"] == "failed" and "kernel died" in content["reason"]


def test_resuming_keeps_what_finished_and_redoes_the_rest(suite: Suite) -> None:
    broken = "from pathlib import Path\nassert (Path(run).parents[2] / 'repaired').exists()"
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    suite.notebook("Keras_MultiGPU", broken, BEGIN, FINISH, framework="Keras")
    assert suite.compare("--batch", "again") == 1
    before = (suite.run("again", "PyTorch_MultiGPU") / "record.json").stat().st_mtime_ns
    (suite.folder / "repaired").touch()
    assert suite.compare("--resume") == 0
    assert (suite.run("again", "PyTorch_MultiGPU") / "record.json").stat().st_mtime_ns == before
    assert set(suite.states().values()) == {"finished"}
    # A notebook that was changed since is run again.
    suite.notebook("PyTorch_MultiGPU", BEGIN, "print('changed')", FINISH)
    assert suite.compare("--resume", "again") == 0
    assert (suite.run("again", "PyTorch_MultiGPU") / "record.json").stat().st_mtime_ns > before


def test_interrupted_runs_say_so_and_leave_no_process(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    suite.notebook("PyTorch_MultiGPU_Slow", REAL, WAIT)
    command = suite.start("--batch", "cut")
    pids = suite.run("cut", "PyTorch_MultiGPU_Slow") / "pids"
    wait_for(pids.exists)
    wait_for(lambda: len(pids.read_text("utf-8").split()) == 2)
    family = psutil.Process(command.pid).children(recursive=True)
    assert {int(pid) for pid in pids.read_text("utf-8").split()} <= {p.pid for p in family}
    command.send_signal(signal.SIGINT)
    shown, _ = command.communicate(timeout=120)
    assert command.returncode == 130, shown
    assert "Traceback" not in shown
    assert not [process for process in family if process.is_running()]
    assert suite.states("cut") == {
        "PyTorch_MultiGPU": "finished",
        "PyTorch_MultiGPU_Slow": "interrupted",
    }
    content = record.read(suite.run("cut", "PyTorch_MultiGPU_Slow"))
    assert content["state"] == "interrupted" and content["reason"] == "KeyboardInterrupt"
    assert (suite.run("cut", "PyTorch_MultiGPU_Slow") / "notebook.ipynb").exists()
    assert record.read(suite.run("cut", "PyTorch_MultiGPU"))["state"] == "finished"


def test_the_same_command_goes_on_after_the_runner_was_killed(suite: Suite) -> None:
    wait = f"if not (Path(run).parents[2] / 'second').exists():{WAIT}".replace("\n", "\n    ")
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    suite.notebook("PyTorch_MultiGPU_Slow", BEGIN, wait, FINISH)
    command = suite.start()
    wait_for(lambda: any((suite.folder / "runs").glob("*/PyTorch_MultiGPU_Slow-1x/pids")))
    family = psutil.Process(command.pid).children(recursive=True)
    command.kill()
    command.communicate()
    (suite.folder / "second").touch()
    batch = (paths.RUNS / "latest").resolve()
    assert suite.compare() == 0
    assert (paths.RUNS / "latest").resolve() == batch
    assert set(suite.states().values()) == {"finished"}
    kernel = family[0]
    assert not kernel.is_running()
    # The batch has come to its end, so the same command begins a new one.
    assert suite.compare("--dry-run") == 0
    plan = plans.make_plan(devices=["1"], recipe="demo", data=str(suite.data))
    assert not batches.choose(plan, name=None, resume=None).resumed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--notebooks", "Torch"], "unknown notebook 'Torch': the notebooks are PyTorch_MultiGPU"),
        (["--recipe", "huge"], "unknown recipe 'huge'"),
        (["--devices", "many"], "devices 'many'"),
        (["--devices", "0"], "at least one"),
        (["--data", "nowhere"], "data folder 'nowhere' does not exist"),
        (["--batch", "../out"], "batch name '../out'"),
        (["--batch", "latest"], "batch name 'latest'"),
        (["--resume", "gone"], "no batch 'gone'"),
        (["--resume", "--devices", "2"], "leave out --devices"),
        (["--seed", "x"], "argument --seed"),
        (["--colour"], "unrecognized arguments"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(
    suite: Suite, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err and len(captured.err.splitlines()) == 1
    assert not list(paths.RUNS.glob("[!.]*"))


def test_bad_data_is_found_before_anything_starts(
    suite: Suite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    assert suite.compare("--data", str(tmp_path)) == 2
    assert suite.compare("--devices", "8") == 2  # 84 training images do not fill 8 x 64
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 2
    assert not list(paths.RUNS.glob("*/*"))


def test_dry_run_writes_nothing(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.notebook("PyTorch_MultiGPU", kernel="missing")
    assert suite.compare("--dry-run", "--devices", "1,2") == 0
    shown = capsys.readouterr().out
    assert "PyTorch_MultiGPU on 2 devices, will be skipped" in shown
    assert not paths.RUNS.exists()


def test_two_batches_at_once_are_refused(suite: Suite) -> None:
    with (
        batches.only_one(),
        pytest.raises(UserError, match=f"process {os.getpid()}"),
        batches.only_one(),
    ):
        pass
    with batches.only_one():
        pass


def test_a_name_that_is_taken_is_refused(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    (paths.RUNS / "taken").mkdir(parents=True)
    plan = plans.make_plan(devices=["1"])
    with pytest.raises(UserError, match="exists"):
        batches.choose(plan, name="taken", resume=None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_ways_to_end_a_program_are_like_ctrl_c(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), runner.terminated_is_interrupted():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signal.getsignal(number) is before


def test_clock() -> None:
    assert [progress.clock(s) for s in (0.4, 65.2, 3665)] == ["0:00", "1:05", "1:01:05"]
