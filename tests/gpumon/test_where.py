"""Where people look: Chrome traces, callbacks, cell magic, decorators."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpumon_tools import ROOT, Marks, python, write

import gpumon
from gpumon import callbacks, export, record
from gpumon.__main__ import main
from gpumon.phases import Marker
from gpumon.trace_files import marks_file, read_marks

MARKS: Marks = (("train", 1.0, 3.0, {"epoch": 1}), ("train/step", 1.0, 2.0, {}))


def test_chromes_trace_has_slices_counters_and_a_profile_beside(tmp_path: Path) -> None:
    marks: Marks = (*MARKS, ("crossing", 2.5, 4.0, {}))
    trace = gpumon.read(write(tmp_path / "t", {"gpu0": [10, 10, None, 40]}, marks=marks))
    content = json.loads(trace.export(tmp_path / "t.json").read_text())
    assert content[export.BASE] == 1_800_000_000_000_000_000
    slices = {e["name"]: e for e in content["traceEvents"] if e["ph"] == "X"}
    assert (slices["train"]["ts"], slices["train"]["dur"]) == (1e6, 2e6)
    assert slices["train"]["tid"] == slices["train/step"]["tid"] != slices["crossing"]["tid"]
    busy = [e for e in content["traceEvents"] if e["name"] == "utilisation (%)"]
    assert [(e["ts"], e["args"]["value"]) for e in busy] == [(0, 10), (3e6, 40)]

    profile = tmp_path / "profile.json"
    for base, at in ((1_799_999_990_000_000_000, 11e6), (None, (1.8e9 + 1) * 1e6)):
        event = {"ph": "X", "name": "aten::mm", "ts": at, "dur": 5, "pid": 7, "tid": 7}
        based = {export.BASE: base} if base else {}
        profile.write_text(json.dumps({**based, "traceEvents": [event]}))
        arguments = ["export", str(tmp_path / "t"), "-o", str(tmp_path / "both.json")]
        assert main([*arguments, "--profile", str(profile)]) == 0
        events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
        starts = {e["name"]: e["ts"] for e in events if e["ph"] == "X"}
        assert starts["train"] == pytest.approx(starts["aten::mm"], abs=1)
    for wrong in ("{", "[1", '{"traceEvents": 3}', "7"):
        profile.write_text(wrong)
        with pytest.raises(gpumon.MonitorError, match="not a profile in Chrome's format"):
            trace.export(tmp_path / "both.json", profile=profile)


PROFILED = """
import sys, time
import torch, gpumon
with gpumon.Monitor("t") as monitor, torch.profiler.profile() as profile:
    with monitor.phase("step"), torch.profiler.record_function("the step"):
        torch.ones(99, 99) @ torch.ones(99, 99)
        time.sleep(0.2)
profile.export_chrome_trace("profile.json")
gpumon.read("t").export("both.json", profile="profile.json")
"""


def in_kernel(kernel: str, code: str, folder: Path, package: str | None = None) -> None:
    """Run code in one of the frameworks' environments, or for a package in one that has it."""
    python = ROOT / ".venvs" / kernel / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment {kernel} here: make envs")
    if package is not None:
        python = Path(os.environ.get("CALLBACKS_PYTHON", python))
        find = f"import importlib.util as u, sys; sys.exit(not u.find_spec({package!r}))"
        if subprocess.run([python, "-c", find], cwd=folder).returncode:
            pytest.skip(f"no {package} in {kernel}; CALLBACKS_PYTHON names a Python that has it")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([python, "-c", code], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_it_lines_up_with_torchs_profiler(tmp_path: Path) -> None:
    in_kernel("pytorch", PROFILED, tmp_path)
    events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    spans = {e["name"]: e for e in events if e.get("ph") == "X" and "step" in e["name"]}
    ours, theirs = spans["step"], spans["the step"]
    assert abs(ours["ts"] - theirs["ts"]) < 20_000 and abs(ours["dur"] - theirs["dur"]) < 40_000


KERAS = """
import pickle, numpy as np, keras, gpumon
with gpumon.Monitor("t") as monitor:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    x, y = np.ones((8, 2)), np.ones((8, 1))
    callback = gpumon.callbacks.Keras(monitor)
    model.fit(x, y, epochs=2, validation_data=(x, y), callbacks=[callback], verbose=0)
    model.evaluate(x, y, callbacks=[callback], verbose=0)
    model.predict(x, callbacks=[callback], verbose=0)
print(list(gpumon.read("t").recording.marks))
assert [(m.name, m.attributes.get("epoch")) for m in gpumon.read("t").recording.marks] == [
    ("train", 1), ("train/validate", None), ("train", 2), ("train/validate", None),
    ("validate", None), ("predict", None)]
assert not any(m.open for m in gpumon.read("t").recording.marks)
"""


def test_keras_calls_its_callback(tmp_path: Path) -> None:
    in_kernel("tensorflow", KERAS, tmp_path)


LIGHTNING = """
import warnings, torch, lightning, gpumon
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore")
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, number):
        return self.layer(batch[0]).mean()
    def validation_step(self, batch, number):
        self.layer(batch[0])
    test_step = predict_step = validation_step
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = DataLoader(TensorDataset(torch.ones(8, 2)), 4)
class Stop(lightning.Callback):
    def on_train_batch_end(self, *rest):
        raise KeyError("stop")
with gpumon.Monitor("t") as monitor:
    def trainer(*more):
        callbacks = [gpumon.callbacks.Lightning(monitor), *more]
        return lightning.Trainer(max_epochs=2, callbacks=callbacks, accelerator="cpu",
                                 logger=False, enable_progress_bar=False)
    first = trainer()
    first.fit(Model(), data, data)
    first.test(Model(), data, verbose=False)
    first.predict(Model(), data, return_predictions=False)
    try:
        trainer(Stop()).fit(Model(), data)
    except KeyError:
        pass
marks = gpumon.read("t").recording.marks
print([(m.name, m.attributes.get("epoch"), m.open) for m in marks])
assert [(m.name, m.attributes.get("epoch")) for m in marks] == [
    ("validate", None), ("train", 1), ("train/validate", None), ("train", 2),
    ("train/validate", None), ("test", None), ("predict", None), ("train", 1)]
assert not any(m.open for m in marks)
"""


def test_lightning_calls_its_callback(tmp_path: Path) -> None:
    in_kernel("pytorch", LIGHTNING, tmp_path, "lightning")


HUGGING_FACE = """
import torch, transformers, gpumon
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x, labels=None):
        found = self.layer(x)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}
data = [{"x": torch.ones(2), "labels": torch.ones(1)}] * 8
with gpumon.Monitor("t") as monitor:
    def trainer(**more):
        options = transformers.TrainingArguments(
            "out", num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True,
            save_strategy="no", report_to=[], disable_tqdm=True, **more)
        callback = gpumon.callbacks.HuggingFace(monitor)
        return transformers.Trainer(
            Model(), options, train_dataset=data, eval_dataset=data, callbacks=[callback])
    first = trainer(eval_strategy="epoch")
    first.train()
    first.evaluate()
    first.predict(data)
    trainer(eval_strategy="steps", eval_steps=1).train()
marks = gpumon.read("t").recording.marks
names = [(m.name, m.attributes.get("epoch")) for m in marks]
print(names, [m.open for m in marks])
each, within = ("validate", None), ("train/validate", None)
assert names == [("train", 1), each, ("train", 2), each, each, each,
                 ("train", 1), within, within, ("train", 2), within, within]
assert not any(m.open for m in marks)
"""


def test_hugging_faces_trainer_calls_its_callback(tmp_path: Path) -> None:
    in_kernel("pytorch", HUGGING_FACE, tmp_path, "transformers")


def test_callbacks_by_the_calls_that_the_frameworks_make(tmp_path: Path) -> None:
    class State:
        epoch, current_epoch = 0.0, 0

    with gpumon.Monitor(tmp_path / "t") as monitor:
        hf = callbacks.HuggingFace(monitor)
        hf.on_init_end(None, State, None)
        for State.epoch in (0.0, 1.0):
            hf.on_epoch_begin(None, State, None, model=None)
            hf.on_step_begin(None, State, None)
            hf.on_prediction_step(None, State, None)
            hf.on_prediction_step(None, State, None)
            hf.on_evaluate(None, State, None, metrics={})
            hf.on_epoch_end(None, State, None)
        hf.on_train_end(None, State, None)
        hf.on_prediction_step(None, State, None)
        hf.on_predict(None, State, None, metrics={})
        lightning = callbacks.Lightning(monitor)
        lightning.setup(State, None, stage="fit")
        lightning.on_train_epoch_start(State, None)
        lightning.on_before_zero_grad(State, None, None)
        lightning.on_exception(State, None, KeyboardInterrupt())
        with pytest.raises(AttributeError, match="no attribute 'fit'"):
            lightning.fit()
    marks = gpumon.read(tmp_path / "t").recording.marks
    names = [(mark.name, mark.attributes.get("epoch")) for mark in marks]
    each = [[("train", n), ("train/validate", None)] for n in (1, 2)]
    assert names == [*each[0], *each[1], ("validate", None), ("train", 1)] and not any(
        m.open for m in marks
    )


def test_the_cell_magic_records_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell")
    import IPython.display

    monkeypatch.chdir(tmp_path)
    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    shell = shells.InteractiveShell()
    gpumon.load_ipython_extension(shell)
    shell.run_cell("%%gpumon mine --interval 0.05\nimport gpumon, time\ntime.sleep(0.2)\nfound = 5")
    assert shell.user_ns["found"] == 5 and len(shown) == 1
    assert gpumon.read("mine").header["interval (s)"] == 0.05
    for line in ("--interval soon", "--colour"):
        done = shell.run_cell(f"%%gpumon {line}\n1")
        assert isinstance(done.error_in_exec, gpumon.MonitorError)
    assert isinstance(shell.run_cell("%%gpumon\n1 / 0").error_in_exec, ZeroDivisionError)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("'my trace", "No closing quotation"),
        ("trace\\", "No escaped character"),
        ("a b c", "unrecognized arguments: b c"),
        ("a --interval", "argument --interval: expected one argument"),
        ("--what", "unrecognized arguments: --what"),
    ],
)
def test_what_the_cell_magic_cannot_take_is_one_line_with_its_usage(line: str, told: str) -> None:
    with pytest.raises(gpumon.MonitorError) as error:
        record.options(line)
    assert told in str(error.value) and record.USAGE in str(error.value)


def test_a_phase_decorates_functions_and_coroutines(tmp_path: Path) -> None:
    marker = gpumon.Marker(tmp_path / "marks")

    @marker.phase("load", kind="fast")
    def load(depth: int) -> int:
        return 1 + (load(depth - 1) if depth else 0)

    @marker.phase("fetch")
    async def fetch(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return marker.current

    async def both() -> list[str]:
        with marker.phase("run"):
            return list(await asyncio.gather(fetch(0.02), fetch(0.01)))

    assert load(1) == 2 and load.__name__ == "load"
    assert asyncio.run(both()) == ["run/fetch", "run/fetch"]
    with pytest.raises(gpumon.MonitorError, match="cannot decorate a generator"):

        @marker.phase("batches")
        def batches() -> Iterator[int]:
            yield 1

    lines = [json.loads(line) for line in (tmp_path / "marks").read_text().splitlines()]
    opened = [(line[4], line[5]) for line in lines if line[0] == "B"]
    assert opened[:2] == [("load", {"kind": "fast"}), ("load/load", {"kind": "fast"})]
    assert [name for name, _ in opened[2:]] == ["run", "run/fetch", "run/fetch"]
    assert len(lines) == 10


def test_without_a_recorder_a_phase_decorates_nothing() -> None:
    code = "import gpumon\n@gpumon.phase('x')\ndef f(): return 3\nprint(f())"
    done = python("-c", code, GPUMON_TRACE="")
    assert done.stdout == "3\n", done.stderr


def test_keras_after_a_fit_that_failed_begins_anew(tmp_path: Path) -> None:
    """Keras tells its callbacks nothing of an interrupt in a notebook."""
    file = marks_file(tmp_path / "t")
    file.write_text('{"gpumon marks": 1}\n')
    marker = Marker(file)
    callback = callbacks.Keras(marker)
    callback.on_epoch_begin(0)
    callback.on_test_begin()  # and here it failed
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_test_begin()
    callback.on_test_end()
    callback.on_epoch_begin(1)
    callback.on_test_begin()  # and again
    callback.on_epoch_begin(0)
    callback.on_train_end()
    marks, _, _ = read_marks(tmp_path / "t")
    names = [mark[4] for mark in marks if mark[0] == "B"]
    assert names == [*["train", "train/validate"] * 3, "train"]
    assert len(marks) == 2 * len(names), "each has ended"
