"""The runner with real kernels on tiny notebooks: batches, failures, resuming, Ctrl-C."""

import json
from collections import Counter
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from processes import own_temporary_folder
from runner_tools import BEGIN, FINISH, PARAMETERS, WAIT, Suite, wait_for

from helpers import paths, record
from helpers.__main__ import main
from helpers.errors import UserError
from helpers.record import processes
from helpers.runner import experiments, plans
from helpers.training import checkpoint


def test_a_batch_from_start_to_end(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.to_the_end()
    left = [line for line in PARAMETERS.splitlines() if not line.startswith(("seed", "warmup"))]
    keep = "Path(run, 'seed').write_text(str(seed))"
    suite.notebook("PyTorch_MultiGPU", BEGIN, keep, FINISH, parameters="\n".join(left))
    assert suite.compare("--name", "first", "--seeds", "3") == 0
    folder = suite.run("first", "PyTorch_MultiGPU")
    assert record.read(folder)["state"] == "finished"
    assert (folder / "notebook.ipynb").exists()
    assert (paths.RUNS / "latest").resolve() == paths.RUNS / "first"
    compared = json.loads((paths.RUNS / "first" / "Compare.ipynb").read_text("utf-8"))
    (printed,) = compared["cells"][-1]["outputs"]
    assert "".join(printed["text"]).strip() == str(paths.RUNS / "first")
    shown = capsys.readouterr().out
    assert "9. Train" in shown and "finished" in shown
    assert "speed is not ranked here" in shown  # the report's headline
    assert "test AUC 0.750 ± 0.030" in shown
    assert "speed is not ranked here" in (paths.RUNS / "first" / "report.html").read_text("utf-8")
    assert (folder / "seed").read_text() == "3"


def test_a_failing_notebook_and_a_missing_kernel_do_not_lose_the_others(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.without_kernels()
    suite.notebook("PyTorch_MultiGPU", BEGIN, "raise ValueError('a bad day')")
    suite.notebook("Keras_MultiGPU", "1 / 0", framework="Keras")
    suite.notebook("MXNet_Gluon_MultiGPU", kernel="not-there", framework="MXNet Gluon")
    suite.notebook("Chainer_MultiGPU", kernel="chainer", framework="Chainer")
    suite.notebook("Quits_MultiGPU", BEGIN, framework="Quits")
    refuses = "from helpers.errors import UnsupportedError; raise UnsupportedError('no fp16')"
    suite.notebook("JAX_MultiGPU", refuses, framework="JAX")
    suite.notebook("Zoo_MultiGPU", BEGIN, FINISH, framework="Zoo")
    paths.VENVS.mkdir()
    status = {"kernel": "chainer", "ok": False, "form": "cpu", "reason": "no compiler"}
    (paths.VENVS / "chainer.json").write_text(json.dumps(status), encoding="utf-8")
    assert suite.compare("--name", "mixed") == 1
    found: dict[str, Any] = {name: record.read(suite.run("mixed", name)) for name in suite.states()}
    assert {name: content["state"] for name, content in found.items()} == suite.states()
    assert Counter(suite.states().values()) == {"failed": 3, "skipped": 3, "finished": 1}
    assert found["PyTorch_MultiGPU"]["reason"] == "ValueError: a bad day"
    assert found["Keras_MultiGPU"]["reason"].startswith("ZeroDivisionError")
    assert "without finishing" in found["Quits_MultiGPU"]["reason"]
    assert "no compiler" in found["Chainer_MultiGPU"]["reason"]
    assert found["JAX_MultiGPU"]["reason"].endswith("no fp16")
    assert "not installed" in found["MXNet_Gluon_MultiGPU"]["reason"]
    captured = capsys.readouterr()
    assert "no compiler" in captured.out and "a bad day" in captured.out
    assert "6 of 7 runs did not finish" in captured.err


def test_a_report_that_cannot_be_made_is_an_error_and_loses_nothing(
    suite: Suite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.without_kernels()
    suite.to_the_end()

    full = Mock(side_effect=OSError("the disk is full"))
    monkeypatch.setattr("helpers.results.report.save", full)
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    assert suite.compare("--name", "full") == 1
    shown = capsys.readouterr()
    assert "error: the report failed: OSError: the disk is full" in shown.err
    assert "report.html" not in shown.out
    assert "error: 1 of" not in shown.err


GOES_ON = f"""
kept = Path(run) / {checkpoint.FILE!r}
if not kept.exists():
    kept.write_text("epoch 1")
    raise ValueError("cut short")
assert resume and kept.read_text() == "epoch 1"
"""


def test_resuming_keeps_what_finished_and_goes_on_from_a_checkpoint(suite: Suite) -> None:
    suite.without_kernels()
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    suite.notebook("Keras_MultiGPU", BEGIN, GOES_ON, FINISH, framework="Keras")
    assert suite.compare("--name", "again") == 1
    before = (suite.run("again", "PyTorch_MultiGPU") / "record.json").stat().st_mtime_ns
    assert suite.compare("--resume") == 0
    assert (suite.run("again", "PyTorch_MultiGPU") / "record.json").stat().st_mtime_ns == before
    assert set(suite.states().values()) == {"finished"}


def test_each_execution_is_a_run_that_is_told_it_and_only_what_a_framework_lacks_is_skipped(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.without_kernels()
    told = "assert execution == ('compiled' if 'compiled' in str(run) else 'eager'), execution"
    suite.notebook("JAX_MultiGPU", BEGIN, told, FINISH, framework="JAX")
    suite.notebook("PyTorch_MultiGPU", BEGIN, told, FINISH)
    assert suite.compare("--name", "both", "--execution", "eager,compiled") == 1
    runs = {f"{run['framework']} {run['variant']}": run for run in suite.runs("both")}
    names = ("JAX compiled", "JAX eager", "PyTorch compiled", "PyTorch eager")
    assert tuple(sorted(runs)) == names
    assert [name for name in names if runs[name]["state"] == "skipped"] == ["JAX eager"]
    assert runs["JAX eager"]["reason"].startswith("execution eager: ")
    assert capsys.readouterr().out.count("will be skipped") == 1


def test_the_same_command_goes_on_after_the_runner_was_killed(suite: Suite) -> None:
    wait = f"if not (Path(run).parents[2] / 'second').exists():{WAIT}".replace("\n", "\n    ")
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    suite.notebook("PyTorch_MultiGPU_DataParallel", BEGIN, wait, FINISH)
    command = suite.start(env={"TMPDIR": own_temporary_folder()})
    wait_for(lambda: any((suite.folder / "runs").glob("*/PyTorch_MultiGPU_DataParallel-1x/pids")))
    family = psutil.Process(command.pid).children(recursive=True)
    command.kill()
    command.communicate()
    (suite.folder / "second").touch()
    batch = (paths.RUNS / "latest").resolve()
    assert suite.compare() == 0
    assert (paths.RUNS / "latest").resolve() == batch
    assert set(suite.states().values()) == {"finished"}
    assert not processes.lives(family[0].pid)
    # The batch has come to its end, so the same command begins a new one.
    assert suite.compare("--dry-run") == 0
    plan = plans.make_plan(devices=["1"], recipe="demo", data=str(suite.data))
    assert not experiments.choose(plan, name=None, resume=None).resumed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--notebooks", "Torch"], "unknown notebook 'Torch': the notebooks are PyTorch_MultiGPU"),
        (["--recipe", "huge"], "unknown recipe 'huge'"),
        (["--devices", "many"], "devices 'many'"),
        (["--name", "../out"], "experiment name '../out'"),
        (["--name", "latest"], "experiment name 'latest'"),
        (["--resume", "gone"], "no experiment 'gone'"),
        (["--resume", "--devices", "2"], "leave out --devices"),
        (["--num-workers", "two"], "num_workers is 'two': give a whole number from 0 to 1024"),
        (["--warmup-epochs", "x"], "warmup_epochs is 'x'"),
        (["--batch-s", "16"], "unrecognized arguments: --batch-s"),
        (["--colour"], "--colour (rosetta run --help shows all options)"),
        (["--epochs", "9" * 5000], "epochs is '9999"),
        # An empty one, as of a shell's variable that is not set, is no name and not none either.
        (["--name", ""], "experiment name '': use letters"),
        (["--resume", "b", "--name", ""], "leave out --name"),
        (["--launcher", "ssh"], "launcher is 'ssh': give auto, or mpiexec:HOST"),
        (["--launcher", "mpiexec:a", "--nnodes", "2"], "1 hosts for 2 nodes; name 2"),
        (["--launcher", "torchrun", "--nnodes", "2"], "for torchrun convert the notebook"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(
    suite: Suite, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    assert main(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and len(captured.err.splitlines()) == 1
    assert not list(paths.RUNS.glob("[!.]*"))


def test_a_name_that_is_taken_is_refused(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    (paths.RUNS / "taken").mkdir(parents=True)
    plan = plans.make_plan(devices=["1"])
    assert not experiments.choose(plan, name="taken", resume=None).resumed  # nothing is in it
    (paths.RUNS / "taken" / "notes").touch()
    with pytest.raises(UserError, match="exists"):
        experiments.choose(plan, name="taken", resume=None)


@pytest.mark.parametrize("second", ["raise ValueError('bad')", FINISH])
def test_by_its_name_a_batch_is_gone_on_with_where_a_run_failed_and_else_never(
    second: str, suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.without_kernels()
    suite.notebook("A", BEGIN, FINISH)
    suite.notebook("B", BEGIN, second)
    failed = int(second != FINISH)
    assert suite.compare("--name", "b") == failed
    assert suite.compare("--dry-run") == 0
    assert "Resuming" not in capsys.readouterr().out
    assert suite.compare("--dry-run", "--name", "b") == 2 * (1 - failed)
    shown = capsys.readouterr()
    assert "Resuming experiment b" in shown.out if failed else "has finished" in shown.err
