"""How a batch is stopped: signals that come twice, terminals that go, cells that hang."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from runner_tools import BEGIN, FINISH, REAL, WAIT, Suite, wait_for

from helpers import paths, record
from helpers.__main__ import main
from helpers.record import processes
from helpers.runner import experiments, hangs, plans, progress_board
from helpers.training import epoch_lines, step_clock
from helpers.training.step_clock import StepClock

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
SLOW = "PyTorch_MultiGPU_DataParallel"


def waiting(suite: Suite, batch: str) -> list[int]:
    """The processes that the slow notebook started, once it waits for them."""
    pids = suite.run(batch, SLOW) / "pids"
    wait_for(lambda: pids.exists() and len(pids.read_text("utf-8").split()) == 2)
    return [int(pid) for pid in pids.read_text("utf-8").split()]


def alive(family: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in family if processes.lives(process.pid)]


def test_a_signal_that_comes_twice_stops_in_order(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    suite.notebook(SLOW, REAL, WAIT)
    command = suite.start("--name", "cut", errors=subprocess.PIPE)
    started = waiting(suite, "cut")
    family = psutil.Process(command.pid).children(recursive=True)
    assert set(started) <= {process.pid for process in family}
    command.send_signal(signal.SIGINT)
    time.sleep(0.05)  # while the kernel is being asked
    for other in SIGNALS:
        command.send_signal(other)
    shown, errors = command.communicate(timeout=300)
    assert command.returncode == 130, shown + errors
    assert not alive(family)
    assert suite.states("cut") == {"PyTorch_MultiGPU": "finished", SLOW: "interrupted"}
    (line,) = errors.splitlines()
    assert line.startswith("stopped by Ctrl-C") and "Traceback" not in shown
    kept = f"{paths.RUNS / 'cut'} is kept, and the same command continues it"
    assert line.endswith(kept) and kept not in shown
    content: Any = record.read(suite.run("cut", SLOW))
    assert content["state"] == "interrupted" and content["reason"].startswith("stopped by Ctrl-C")
    assert suite.runs("cut")[1]["reason"] == content["reason"]


def test_signals_that_come_at_any_moment_leave_no_process(suite: Suite) -> None:
    """One of each, twice, while the batch starts, runs, ends: whole runs stay, nothing lives on."""
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    for number, moment in zip(SIGNALS, (0.2, 0.7, 1.2), strict=True):
        batch = f"at-{moment}"
        command = suite.start("--name", batch, errors=subprocess.PIPE)
        wait_for(lambda b=batch: (paths.RUNS / b / "experiment.json").exists())  # type: ignore[misc]
        time.sleep(moment)
        family = []
        for _ in range(2):
            if command.poll() is None:
                family += psutil.Process(command.pid).children(recursive=True)
                command.send_signal(number)
        _, errors = command.communicate(timeout=300)
        assert "Traceback" not in errors and len(errors.splitlines()) <= 1, errors
        assert not alive(family)
        (run,) = suite.runs(batch)
        if command.returncode == -number:  # it came when all was done and the process about to go
            assert run["state"] == "finished"
        else:
            assert command.returncode in (0, 130), errors
        if run["state"] == "interrupted":
            assert run["reason"].startswith("stopped by ")
        else:
            assert run["state"] in ("waiting", "finished")


def test_a_process_of_which_only_the_main_thread_ended_lives() -> None:
    """It looks as dead as one that is, but a GPU that it used is not free yet."""
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=[600]).start();"
        " print(flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as half:
        try:
            wait_for(lambda: psutil.Process(half.pid).status() == psutil.STATUS_ZOMBIE)
            assert processes.lives(half.pid)
        finally:
            half.kill()
    assert not processes.lives(half.pid)


def test_nohup_outlives_the_terminal(suite: Suite) -> None:
    """What was to be ignored from the start stays ignored."""
    suite.notebook("PyTorch_MultiGPU", BEGIN, "import time; time.sleep(2)", FINISH)
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    command = suite.start("--name", "night", first=ignored)
    wait_for((paths.RUNS / "night" / "experiment.json").exists)
    for _ in range(3):
        command.send_signal(signal.SIGHUP)
        time.sleep(0.2)
    shown, _ = command.communicate(timeout=300)
    assert command.returncode == 0, shown
    assert suite.states("night") == {"PyTorch_MultiGPU": "finished"}


def test_a_run_that_hangs_is_ended_and_says_so(suite: Suite) -> None:
    monitor = "import gpumon; monitor = gpumon.Monitor(Path(run) / 'trace'); monitor.start()"
    suite.notebook(SLOW, REAL, monitor, WAIT)  # which goes on writing
    assert suite.compare("--name", "hung", "--hang-timeout", "0.1") == 1
    content: Any = record.read(suite.run("hung", SLOW))
    assert content["state"] == "failed"
    assert content["reason"].startswith("stopped as hung: for 0.1 minutes no step, no output")
    assert suite.runs("hung")[0]["reason"] == content["reason"]


def test_steps_are_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "EVERY_SECONDS", 0.05)
    monkeypatch.setenv(epoch_lines.VARIABLE, str(tmp_path / epoch_lines.FILE))
    monkeypatch.setattr(step_clock, "TELL_SECONDS", 0.05)
    watch = hangs.Watch(tmp_path, 0.01)
    with StepClock(lambda result: None) as clock:
        for _ in range(20):
            clock.queued(None)
            time.sleep(0.06)
            watch.look()
    assert (tmp_path / epoch_lines.FILE).exists()
    with pytest.raises(hangs.Stalled, match=r"stopped as hung: for 0\.01 minutes"):
        while True:
            watch.look()
    watch.close()
    assert not list(tmp_path.iterdir())


def test_where_a_run_is_in_an_epoch_is_no_sign_of_life_and_in_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is written on a clock: a collective that waits for ever would look like progress."""
    monkeypatch.setattr(hangs, "EVERY_SECONDS", 0.05)
    monkeypatch.setenv(epoch_lines.VARIABLE, str(tmp_path / epoch_lines.FILE))
    heard: list[tuple[str, bool]] = []
    lines = progress_board.Board(experiments.Experiment(tmp_path, plans.make_plan(devices=[1])))

    def hear(line: str, moving: bool) -> None:
        heard.append((line, moving))
        lines.tell(line, moving)

    watch = hangs.Watch(tmp_path, 0.01, hear)
    epoch_lines.say("Epoch 1 of 2: loss 1")
    with pytest.raises(hangs.Stalled):
        for number in range(400):
            line = f"Epoch 2 of 2: in the first step, for {number} s"
            epoch_lines.say(line, epoch_lines.MOVING)
            watch.look()
            time.sleep(0.02)
    assert ("Epoch 1 of 2: loss 1", False) in heard and any(moving for _, moving in heard)
    assert capsys.readouterr().out.count("Epoch") == 1


def test_a_closed_pipe_is_one_line_and_the_true_reason(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    suite.notebook(SLOW, REAL, WAIT)
    ours, theirs = os.pipe()
    command = suite.start("--name", "piped", output=theirs, errors=subprocess.PIPE)
    os.close(theirs)
    wait_for((paths.RUNS / "piped" / "experiment.json").exists)
    os.close(ours)
    _, errors = command.communicate(timeout=300)
    assert command.returncode == 2
    assert len(errors.splitlines()) == 1 and "standard output: Broken pipe" in errors
    first, second = suite.runs("piped")
    assert first["state"] in ("waiting", "interrupted", "finished") and second["state"] == "waiting"
    assert "killed" not in str(first["reason"])


def test_a_notebooks_escapes_do_not_reach_the_terminal(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook(
        "PyTorch_MultiGPU", BEGIN, "raise ValueError('\\x1b]0;owned\\x07\\x1b[2Jgone\\x08')"
    )
    assert suite.compare("--name", "loud") == 1
    assert main(["run", "--data", "no\x1b[2J\u202esuch"]) == 2
    shown = capsys.readouterr()
    assert all(line.isprintable() for line in (shown.out + shown.err).splitlines())
    told = r"ValueError: \x1b]0;owned\x07\x1b[2Jgone\x08"
    assert told in shown.out and r"no\x1b[2J\u202esuch" in shown.err
    assert suite.runs("loud")[0]["reason"] == told
