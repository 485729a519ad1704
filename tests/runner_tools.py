"""What tests of the runner share: a checkout in small, with real kernels and tiny notebooks."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nbformat
import pytest
import records
from data_prep_tools import make_folder
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers import paths
from helpers.__main__ import main
from helpers.frameworks import cpu_cores
from helpers.launch.failures import RankError
from helpers.runner import experiments, ranks, run_experiment

ROOT = Path(__file__).resolve().parent.parent

PARAMETERS = """\
recipe = data = devices = run = launcher = cores_per_device = "auto"
num_workers = batch_size = epochs = "default"
warmup_epochs = "default"
seed = 0
precision = "fp32"
nodes = 1
resume = False"""
# The real thing: a record as a framework notebook writes it.
REAL = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
from helpers import record
from helpers.frameworks.devices import Devices
from helpers.recipe import lookup
this_run = record.start(
    Path(run), notebook=Path(NAME), framework="PyTorch", kernel="tiny", versions={{}},
    devices=Devices("cpu", ("CPU device",) * devices), recipe=lookup(recipe).on(devices),
)"""
# The same bytes without the imports, which cost seconds in each kernel.
BEGIN = """
import json, os
from pathlib import Path
MADE = json.loads((Path(run).parents[2] / "made.json").read_text())
MADE["run"] |= {"notebook": NAME, "process": os.getpid()}
def write(state):  # whole, as tests read it while it is written
    part = Path(run) / "record.part"
    part.write_text(json.dumps(MADE | {"state": state}))
    part.rename(Path(run) / "record.json")
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

# How a batch ends here, for speed: without Compare.ipynb's kernel, and with a report of one word.
# Tests of the whole end ask for it (``Suite.to_the_end``).
PLAIN_END = """
from helpers import paths
from helpers.runner import run_experiment
def report(experiment):
    paths.write_atomically(experiment.folder / "report.html", "<html>")
run_experiment._compare, run_experiment._report = lambda *_: None, report
"""
WHOLE_END = {name: getattr(run_experiment, name) for name in ("_compare", "_report")}


class Suite:
    """A checkout in small: notebooks, kernels, data and runs in a temporary folder."""

    patch: pytest.MonkeyPatch
    """The test's, where it has the fixture."""

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
        del whole["test"]["resamples"][40:]  # each reading and writing looks at every one
        (folder / "made.json").write_text(json.dumps(whole), encoding="utf-8")
        self.notebook("Compare", "print(runs)", parameters='runs = "latest"', framework=None)

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
            metadata["rosetta"] = {"framework": framework}
        rest = [(new_markdown_cell if c.startswith("## ") else new_code_cell)(c) for c in cells]
        content = new_notebook(cells=[*head, *rest], metadata=metadata)
        (self.folder / "notebooks").mkdir(exist_ok=True)
        nbformat.write(content, self.folder / "notebooks" / f"{name}.ipynb")

    def compare(self, *arguments: str) -> int:
        """The command in this process, on one device and the small data folder."""
        return main(["run", *arguments] if "--resume" in arguments else self._words(*arguments))

    def to_the_end(self) -> None:
        """From now on a batch ends as it does for users, but for the charts in its report."""
        for name, function in WHOLE_END.items():
            self.patch.setattr(run_experiment, name, function)
        nothing = {"wide": "", "narrow": ""}
        self.patch.setattr("helpers.results.report.page._drawn", lambda chart: nothing)

    def without_kernels(self) -> None:
        """From now on notebooks run in this process: for what the runner makes of their runs."""

        def execute(source: Path, target: Path, given: dict[str, Any], *_: Any, **__: Any) -> None:
            content, known = nbformat.read(source, 4), dict[str, Any]()
            for cell in content.cells:
                try:
                    exec(cell.source if cell.cell_type == "code" else "", known)
                except Exception as error:
                    kind = type(error).__name__
                    raise RankError(f"{kind}: {error}", kind) from None
                known |= given if "parameters" in cell.metadata.get("tags", []) else {}
            nbformat.write(content, target)

        self.patch.setattr(ranks, "execute", execute)

    def start(
        self,
        *arguments: str,
        output: int = subprocess.PIPE,
        errors: int = subprocess.STDOUT,
        env: Mapping[str, str] | None = None,
        first: str = "",
    ) -> subprocess.Popen[str]:
        """The command in a process of its own, as in a terminal; ``env`` is added to ours."""
        command = self.command(*arguments, first=first)
        whole = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        return subprocess.Popen(command, stdout=output, stderr=errors, text=True, env=whole)

    def command(self, *arguments: str, first: str = "") -> list[str]:
        """The words that start the command, after the statements ``first``."""
        code = (
            "import sys; from pathlib import Path; from helpers import paths\n"
            f"paths.NOTEBOOKS, paths.RUNS, paths.VENVS = (Path({str(self.folder)!r}) / n "
            "for n in ('notebooks', 'runs', 'venvs'))\n"
            f"{PLAIN_END}{first}\nfrom helpers.__main__ import main; sys.exit(main())"
        )
        return [sys.executable, "-c", code, *self._words(*arguments)]

    def _words(self, *arguments: str) -> list[str]:
        given = ["run", *arguments, "--recipe", "demo"]
        others = {"--data": str(self.data), "--devices": "1", "--cores-per-device": "1"}
        for option, value in others.items():
            given += [] if option in given else [option, value]
        return given

    def run(self, batch: str, name: str) -> Path:
        return self.folder / "runs" / batch / f"{name}-1x"

    def runs(self, batch: str = "latest") -> list[dict[str, Any]]:
        """What was planned, each run with its state and the reason."""
        found, runs = experiments.load(batch), []
        for run in found.runs:
            content = found.record_of(run)
            said = {"state": content["state"], "reason": content.get("reason") or ""}
            runs.append(asdict(run) | said)
        return runs

    def states(self, batch: str = "latest") -> dict[str, str]:
        return {run["notebook"]: run["state"] for run in self.runs(batch)}


@pytest.fixture(name="images", scope="session")
def images_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 120 small images of 40 patients."""
    return make_folder(tmp_path_factory.mktemp("data"), patients=40, images=3, size=38)


@pytest.fixture(name="suite")
def suite_fixture(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suite]:
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(paths, "VENVS", tmp_path / "venvs")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cores = [(number,) for number in range(16)]
    monkeypatch.setattr(cpu_cores, "machine", lambda: cores)
    for name in WHOLE_END:  # which the statements below replace
        monkeypatch.setattr(run_experiment, name, None)
    exec(PLAIN_END, {})
    made = Suite(tmp_path)
    made.data, made.patch = images, monkeypatch
    yield made


def wait_for(condition: Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
