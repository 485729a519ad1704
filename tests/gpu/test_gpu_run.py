"""The check for a machine with a GPU and no network: its steps, its limits, what it carries."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.append(str(HERE / "gpu"))

import gpu_place  # noqa: E402
import gpu_run  # noqa: E402
import gpu_steps  # noqa: E402
import gpu_summary  # noqa: E402
import pack  # noqa: E402
import publish_results  # noqa: E402
import records  # noqa: E402
import shared  # noqa: E402
from assumptions import ASSUMPTIONS  # noqa: E402
from gpu_place import ROOT  # noqa: E402
from gpu_steps import Step  # noqa: E402

from helpers import __main__ as helpers_main  # noqa: E402

NOTEBOOK = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
PYTORCH = ROOT / ".venvs" / "pytorch" / "bin" / "python"


def start(*words: str | Path, python: str | Path = sys.executable, **env: str) -> Any:
    """run.sh with a Python, as a user starts it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [HERE / "gpu" / "run.sh", *words],
        env=clean | {"PYTHON": str(python)} | env,
        capture_output=True,
        text=True,
        check=False,
    )


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture(name="out")
def out_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a check with steps of a test's own leaves what it finds."""
    monkeypatch.setattr(gpu_place, "make", lambda folder, wheels: Path(sys.executable))
    monkeypatch.setattr(gpu_place, "lacks", lambda kernel: None)
    monkeypatch.setenv(gpu_run.MARK, "")
    monkeypatch.setenv("OMP_WAIT_POLICY", "")
    yield tmp_path / "out"


def check(out: Path, steps: list[Step], monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    """The exit code, and each step's line by name."""
    monkeypatch.setattr(gpu_steps, "steps", lambda here: iter(steps))
    code = gpu_run.main([str(out), *words])
    summary = json.loads((out / "summary.json").read_text())
    assert not (out / "work").exists()
    return code, {line["step"]: line for line in summary["steps"]}


# --- What is asked for -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a folder for the results"),
        (["full"], "full: exists and is neither empty nor a check's; name another"),
        (["new", "--minutes", "0"], "--minutes 0: give more than 0"),
        (["new", "--minutes", "inf"], "--minutes inf: give more than 0"),
        (["new", "--minutes", "soon"], "invalid float value: 'soon'"),
        (["new", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").touch()
    done = start(*(str(tmp_path / w) if w in ("full", "new") else w for w in words))
    assert done.returncode == 2
    assert done.stderr.startswith("run.sh: ") and done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "new").exists() and (tmp_path / "full" / "kept").exists()


def test_without_a_framework_it_says_so(tmp_path: Path) -> None:
    done = start(tmp_path / "out")  # the lab, which has none
    assert done.returncode == 2
    assert re.fullmatch(r"run.sh: torch is not installed here \(.*\), nor .*\n", done.stderr)


def test_what_is_missing_is_said_before_anything_is_done(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    venv.EnvBuilder(symlinks=True).create(machine)
    site = next(machine.glob("lib/python*/site-packages"))
    for name in ("torch", "torchvision"):
        (site / f"{name}.py").touch()
    given = tmp_path / "out", "--wheels", tmp_path / "none"
    done = start(*given, python=machine / "bin" / "python")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "missing here: cloudpickle, " in done.stderr and "papermill" in done.stderr
    assert "tests/gpu/pack.py --python 3." in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_step_is_named(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for only, name in (("versions,benchmark", "benchmark"), ("", "")):
        with pytest.raises(SystemExit) as ended:
            gpu_run.main([str(out), "--only", only])
        assert ended.value.code == 2
        said = f"no step named '{name}': the steps are versions, assumptions, images"
        assert said in capsys.readouterr().err


# --- Publishing ------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like docs/results: a published batch and a folder of studies."""
    (tmp_path / "results" / "cpu" / "demo").mkdir(parents=True)
    (tmp_path / "results" / "cpu" / "demo" / "report.html").touch()
    (tmp_path / "results" / "cpu" / "Study_Loader.ipynb").touch()
    monkeypatch.setattr(publish_results, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.mark.parametrize("name", ["", ".", "..", "cpu", "cpu/..", "/", "cpu/", "cpu/../../x", "ü"])
def test_what_is_no_published_batch_is_not_replaced(name: str, results: Path) -> None:
    with pytest.raises(SystemExit, match="name "):
        publish_results.place(name)
    with pytest.raises(SystemExit, match="name "):
        publish_results.place(str(results))
    assert publish_results.place("cpu/demo") and publish_results.place("nvidia-h100")


def test_without_a_finished_run_the_published_one_stays(results: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no finished run in .*/mistyped"):
        publish_results.publish([tmp_path / "mistyped"], results / "cpu" / "demo")
    assert (results / "cpu" / "demo" / "report.html").exists()


def test_of_repeats_the_last_ones_notebook_and_traces_are_published(
    results: Path, tmp_path: Path
) -> None:
    """The report shows the last run's lanes, and says so."""
    batch = tmp_path / "batch"
    for number, name in enumerate(["seed10", "seed9"]):  # started in another order than named
        content = records.make()
        content["run"]["started"] = f"2026-11-21T01:00:0{number}+00:00"
        folder = records.save(batch, content).rename(batch / name)
        for file, text in (("trace.jsonl", ""), ("notebook.ipynb", NOTEBOOK)):
            (folder / file).write_text(text, encoding="utf-8")
    target = results / "cpu" / "sweep"
    assert publish_results.publish([batch], target) == ["seed10", "seed9"]
    assert [path.parent.name for path in target.glob("*/notebook.ipynb")] == ["seed9"]
    assert [path.parent.name for path in target.glob("*/trace.jsonl")] == ["seed9"]


def test_of_each_precision_a_notebook_is_published(results: Path, tmp_path: Path) -> None:
    batches = [tmp_path / "fp32", tmp_path / "bf16"]
    for batch in batches:
        content = records.make()
        content["recipe"]["precision"] = batch.name
        records.save(batch, content).joinpath("notebook.ipynb").write_text(NOTEBOOK)
    publish_results.publish(batches, target := results / "cpu" / "sweep")
    assert len([*target.glob("*/notebook.ipynb")]) == 2


# --- Its steps -------------------------------------------------------------------------------


def test_no_step_stops_another(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = {"figure": "ours, here", "unit": "images/s", "ours": 4.0, "rival": 2.0, "ratio": 2.0}
    figure |= {"rival_name": "the article's loop", "low": 1.5, "high": 2.5}
    steps = [
        Step("first", 20, [python("print('seen')"), python("raise ValueError('too dark')")]),
        Step("gone", 20, [[str(out / "no-such-program")]]),
        Step("second", 20, [python(f"print({json.dumps(json.dumps(figure))})")]),
        Step("third", 20, skipped="there is | no GPU"),
        Step("read", 20, [python("")], read=lambda code, last: ("skipped", f"exit code {code}")),
    ]
    code, lines = check(out, steps, monkeypatch)
    assert code == 1
    assert [(line["outcome"], line["said"]) for line in lines.values()] == [
        ("failed", "ValueError: too dark"),
        ("failed", f"[Errno 2] No such file or directory: '{out}/no-such-program'"),
        ("ok", ""),
        ("skipped", "there is | no GPU"),
        ("skipped", "exit code 0"),
    ]
    assert lines["second"]["figures"] == [figure | {"goal": 4}]
    assert "seen\n" in (out / lines["first"]["log"]).read_text() and lines["third"]["log"] is None
    page = (out / "summary.md").read_text()
    assert "| third | skipped | 0 | there is \\| no GPU |" in page
    row = "| ours, here | 4 images/s | the article's loop: 2 | 2.000 (1.500 to 2.500) | 4 |"
    assert row in page  # and nobody is held to it on a CPU


def test_a_check_in_which_nothing_fails_ends_in_0(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [Step("one", 20, [python("")]), Step("two", 20, skipped="why")]
    assert check(out, steps, monkeypatch)[0] == 0


def test_a_step_past_its_time_ends_with_all_it_started(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_run, "GRACE_SECONDS", 0.1)
    late = f"time.sleep(20); pathlib.Path({str(tmp_path / 'late')!r}).touch()"
    hangs = _orphan(tmp_path / "orphan").replace("signal.pause()", f"import time; {late}")
    steps = [Step("hangs", 4, [python(hangs)]), Step("next", 20, [["true"]])]
    code, lines = check(out, steps, monkeypatch)
    assert code == 1 and lines["next"]["outcome"] == "ok"
    assert (lines["hangs"]["outcome"], lines["hangs"]["said"]) == ("failed", "ran past its 4 s")
    assert not _lives(tmp_path / "orphan") and not (tmp_path / "late").exists()


def test_a_step_that_ends_leaves_nothing_running(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = _orphan(tmp_path / "orphan").replace("signal.pause()", "")
    seen: list[bool] = []

    def look(code: int, last: str) -> gpu_steps.Outcome:
        seen.append(_lives(tmp_path / "orphan"))
        return "ok", ""

    check(out, [Step("leaves", 20, [python(leaves)], read=look)], monkeypatch)
    assert seen == [False]


def test_what_does_not_fit_into_its_minutes_is_skipped(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [Step("long", 300, [["false"]]), Step("short", 10, [["true"]])]
    code, lines = check(out, steps, monkeypatch, "--minutes", "0.5")
    assert code == 0 and lines["short"]["outcome"] == "ok"
    assert re.fullmatch(r"\d\d s are left, it may take 300", lines["long"]["said"])


def test_the_same_command_continues(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended well is kept; what was not reached comes first, what failed comes last."""
    done = tmp_path / "done"

    def one(name: str, code: int = 0, seconds: int = 9, **how: Any) -> Step:
        count = f"open({str(done)!r}, 'a').write('{name} '); raise SystemExit({code})"
        return Step(name, seconds, [python(count)], **how)

    steps = [one("images", kept=False), one("bad", 1), one("good"), one("late", seconds=300)]
    steps.append(Step("never", 9, skipped="there is no GPU"))
    assert check(out, steps, monkeypatch, "--minutes", "0.5")[0] == 1
    steps[1] = one("bad")
    code, lines = check(out, steps, monkeypatch)
    assert done.read_text() == "images bad good images late bad "
    assert code == 0 and sorted(lines) == ["bad", "good", "images", "late", "never"]
    check(out, steps, monkeypatch)
    assert done.read_text() == "images bad good images late bad ", "nothing is left to do"
    assert f"`tests/gpu/run.sh {out} --minutes 0.5`" in (out / "summary.md").read_text()


def test_results_of_another_machine_are_not_continued(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [Step("one", 20, [python("")])]
    check(out, steps, monkeypatch)
    text = (out / "summary.json").read_text()
    summary = json.loads(text) | {"gpus": ["NVIDIA H200"]}
    for damaged, said in (
        (json.dumps(summary), "begun with gpus ['NVIDIA H200'], here it is []"),
        ("[]", "neither empty nor a check's"),
        (text[:20], "neither empty nor a check's"),
    ):
        (out / "summary.json").write_text(damaged)
        with pytest.raises(SystemExit) as ended:
            gpu_run.main([str(out)])
        error = capsys.readouterr().err
        assert ended.value.code == 2 and said in error and error.count("\n") == 1
        assert (out / "summary.json").read_text() == damaged


def test_a_rehearsal_says_so_and_is_not_published(
    out: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert check(out, [Step("one", 20, [python("")])], monkeypatch, "--cpu")[0] == 0
    assert (out / "summary.md").read_text().startswith("# Rehearsal for no GPU\n\n**A rehearsal:")
    with pytest.raises(SystemExit, match="a rehearsal's results, which are not published"):
        publish_results.publish_check(out, results / "nvidia-h100")


def test_what_we_assumed_is_on_the_page_and_published(
    out: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs is no failure."""
    found = {"assumption": "pixels", "outcome": "differs", "said": f"3 | levels in {out}/x"}
    said = f"print({json.dumps(json.dumps(found))}); print('1 differs')"
    steps = [Step("assumptions", 20, [python(said)], read=gpu_steps._last)]
    code, lines = check(out, steps, monkeypatch)
    assert code == 0 and lines["assumptions"]["assumptions"] == [found]
    assert (lines["assumptions"]["outcome"], lines["assumptions"]["said"]) == ("ok", "1 differs")
    records.save(out / "runs" / "one", records.make()).joinpath("notebook.ipynb").write_text(
        NOTEBOOK
    )
    target = results / "nvidia-h100"
    publish_results.publish_check(out, target)
    page = (target / "summary.md").read_text()
    assert "| pixels | differs | 3 \\| levels in x |" in page
    assert '"outcome": "differs"' in (target / "summary.json").read_text()


@pytest.mark.parametrize("comparable", [True, False])
def test_replicas_that_share_a_gpu_are_only_checked(
    comparable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [SimpleNamespace(verdict="pass" if comparable else "fail")]
    fairness_check = SimpleNamespace(comparable=comparable, checks=checks)
    run = SimpleNamespace(
        fairness_check=fairness_check, setup=SimpleNamespace(short="2 replicas on 1 GPU")
    )
    given: dict[str, Any] = {}

    def run_cells(notebook: str, **how: Any) -> dict[str, Any]:
        given.update(how)
        return {"this_run": run}

    monkeypatch.setattr(shared, "run_cells", run_cells)
    code = shared.main("run", "data", "chexnet", "2", "1")
    assert code == (0 if comparable else 1) and (given["devices"], given["gpus"]) == (2, 1)
    verdict = "comparable, 1 pass" if comparable else "NOT comparable, 1 fail"
    assert capsys.readouterr().out == f"2 replicas on 1 GPU: {verdict}\n"


def here(tmp_path: Path, gpus: int) -> gpu_steps.Here:
    return gpu_steps.Here(tmp_path, tmp_path, Path(sys.executable), gpus, not gpus, gpus)


@pytest.mark.parametrize("gpus", [0, 1])
def test_the_most_important_steps_come_first_and_their_commands_are_known(
    gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_steps, "lacks", lambda kernel: None)
    found = {step.name: step for step in gpu_steps.steps(here(tmp_path, gpus))}
    first = [f"{name}-{precision}" for precision in ("fp32", "bf16")[: 1 + gpus]
             for name in ("PyTorch_MultiGPU", "JAX_MultiGPU")]  # fmt: skip
    first = ["versions", "assumptions", "images", *first, "loaders", "monitor", "shared", "rivals"]
    assert list(found)[: len(first)] == first
    assert "PyTorch_MultiGPU-fp32-compiled" in found
    assert "JAX_MultiGPU-fp32-compiled" not in found, "it always is"
    assert ("PyTorch_MultiGPU-tf32" in found) == (gpus > 0)
    rosetta, _ = helpers_main.build()
    for command in (command for step in found.values() for command in step.commands):
        if "helpers" in command:
            rosetta.parse_args(command[command.index("helpers") + 1 :])


def test_versions_that_differ_from_a_lock_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        return {"torch": "2.11.0"}.get(package) or re.findall(
            rf"^{package}==(\S+)", (ROOT / "environments/pytorch.txt").read_text(), re.M
        )[0]

    monkeypatch.setattr(gpu_place, "is_installed", lambda package: package != "mpich")
    monkeypatch.setattr(gpu_place.metadata, "version", version)
    [mpich, torch] = gpu_place.differing("pytorch")
    assert mpich.startswith("mpich missing (locked: ") and torch.startswith("torch 2.11.0 (locked")


def test_sigterm_ends_the_step_and_writes_the_summary(tmp_path: Path) -> None:
    out, orphan = tmp_path / "out", tmp_path / "orphan"
    code = (
        f"import sys; sys.path[:0] = [{str(HERE / 'gpu')!r}]\n"
        "import gpu_place, gpu_run, gpu_steps\n"
        "from gpu_steps import Step\n"
        "gpu_place.make = lambda *given: None\n"
        "gpu_place.lacks = lambda kernel: None\n"
        "gpu_run.GRACE_SECONDS = 0.1\n"
        "import os, signal\n"
        "remove = gpu_run.shutil.rmtree\n"
        "def tidy(*given, **how):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)  # and again while it tidies up\n"
        "    remove(*given, **how)\n"
        "gpu_run.shutil.rmtree = tidy\n"
        f"hangs = Step('hangs', 60, [[sys.executable, '-c', {_orphan(orphan)!r}]])\n"
        "gpu_steps.steps = lambda here: [Step('one', 9, [['true']]), hangs, Step('two', 9)]\n"
        f"sys.exit(gpu_run.main([{str(out)!r}]))"
    )
    run = subprocess.Popen(python(code), stdout=subprocess.DEVNULL)
    _wait_for(orphan)
    run.send_signal(signal.SIGTERM)
    run.send_signal(signal.SIGTERM)
    assert run.wait(120) == 1
    summary = json.loads((out / "summary.json").read_text())
    assert summary["state"] == "stopped by SIGTERM"
    assert {line["step"]: line["outcome"] for line in summary["steps"]} == {
        "one": "ok",
        "hangs": "failed",
        "two": "skipped",
    }
    assert "stopped by SIGTERM" in (out / "summary.md").read_text()
    assert not _lives(orphan) and not (out / "work").exists()


def _orphan(told: Path) -> str:
    """A program that ignores SIGTERM, and starts one in a session of its own that outlives it."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(120)"]
    return (
        "import pathlib, signal, subprocess\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen({sleeper!r}, start_new_session=True)\n"
        f"pathlib.Path({str(told)!r}).write_text(str(child.pid))\n"
        "signal.pause()"
    )


def _wait_for(path: Path) -> None:
    while not (path.exists() and path.read_text()):
        time.sleep(0.05)


def _lives(told: Path) -> bool:
    """Whether the process whose id is in a file runs; one that nobody has waited for does not."""
    try:
        status = Path(f"/proc/{told.read_text()}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


# --- What its figures are held to ------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "rival", "goal"),
    [
        ("ours", "the article's loop", 4),
        ("ours on files", "the article's loop on files", None),
        ("ours on files", "ours", 0.97),
        ("ours", "timm's step as it comes", 1.2),
        ("ours", "timm's step, bf16, channels last", 1.2),
        ("training on png files, pytorch", "on noise", None),
        ("a mark", None, None),
    ],
)
def test_the_figures_that_were_asked_for(
    figure: str, rival: str | None, goal: float | None
) -> None:
    assert gpu_steps.goal({"figure": figure, "rival_name": rival}) == goal
    scripts = (ROOT / "benchmarks").glob("*.py")
    names = {name.split(",")[0] for name in (figure, rival) if name and "png" not in name}
    texts = "".join(script.read_text() for script in scripts)
    assert all(f'"{name}' in texts for name in names), "the benchmarks call it otherwise now"


def test_on_gpus_a_goal_is_reached_or_missed() -> None:
    figure = {"figure": "ours", "unit": "images/s", "ours": 8.0, "rival": 2.0, "ratio": 4.0}
    figure |= {"rival_name": "the article's loop", "goal": 4}
    assert gpu_summary._figure(figure, judged=True).endswith("| 4: reached |")
    figure["ratio"] = 3.99
    assert gpu_summary._figure(figure, judged=True).endswith("| 4: missed |")


# --- Its place, and what is carried there ----------------------------------------------------


def test_what_we_need_is_pinned() -> None:
    assert {"papermill", "pandas", "nvidia-ml-py", "ipykernel"} <= set(gpu_place.needs(bool))
    assert {"pip", "timm", "nvitop", *gpu_place.needs(bool)} <= set(gpu_place.pins())


def test_what_is_carried_is_what_we_need_and_what_that_needs() -> None:
    everything = set(pack.wanted(set()))
    assert {"papermill", "nbclient", "nbformat", "fonttools", "pip", "timm"} <= everything
    assert not {"jupyterlab", "ruff", "hypothesis", "pytest"} & everything
    assert "grain" not in everything and {"grain", "array-record"} <= set(pack.wanted({"jax"}))
    assert "pip" in pack.wanted({"pip"}), "its wheel installs the others"
    without = set(pack.wanted({"matplotlib", "ipython"}))
    assert not {"matplotlib", "fonttools", "ipython", "jedi"} & without and "papermill" in without


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--python", "3.10"], "give 3.11 or newer"),
        (["--python", "newest"], "give 3.11 or newer"),
        (["--python", "3.12", "--have", "torch"], "--have torch: not among the packages"),
        (["--python", "3.12", "--to", __file__], "test_gpu_run.py: not a folder"),
        (["--python", "3.12", "--to", "."], "holds other things than wheels"),
    ],
)
def test_a_mistake_in_packing_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack.main(words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_more_than_can_be_carried_is_refused_and_the_old_wheels_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = tmp_path / "wheels"
    size = 2**20 * pack.MOST_MIB

    def fetch(names: list[str], python: str, folder: Path) -> None:
        with (folder / "scipy-1-cp312.whl").open("wb") as file:
            file.truncate(size)
        (folder / "pip-1-py3-none-any.whl").touch()

    monkeypatch.setattr(pack, "fetch", fetch)
    given = ["--python", "3.12", "--to", str(wheels)]
    assert pack.main(given) == 0
    assert "2 wheels, 1 of them compiled, 60.0 MiB of 60" in capsys.readouterr().out
    size += 2**20
    assert pack.main(given) == 1
    assert "61 MiB, more than 60" in (error := capsys.readouterr().err) and error.count("\n") == 1
    assert (wheels / "scipy-1-cp312.whl").stat().st_size == 2**20 * pack.MOST_MIB
    assert list(tmp_path.iterdir()) == [wheels]


def test_a_wheel_that_is_not_the_locked_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [version] = re.findall(r"^comm==(\S+)", gpu_place.pins()["comm"])
    (tmp_path / f"comm-{version}-py3-none-any.whl").write_bytes(b"another")
    (folder := tmp_path / "to").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(OSError, match="HASHES"):
        pack.fetch(["comm"], "3.12", folder)


def test_its_python_sees_the_machines_packages_and_writes_only_into_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.setattr(gpu_place, "lacks", lambda kernel: None)
    made = gpu_place.make(tmp_path / "python", tmp_path / "no-wheels")
    code = "import papermill, sys; print(papermill.__file__, sys.prefix, sep='\\n')"
    said = subprocess.run([made, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [
        str(Path(sys.prefix) / said.split()[0].removeprefix(f"{sys.prefix}/")),
        str(tmp_path / "python"),
    ]
    spec = tmp_path / "python/share/jupyter/kernels/pytorch/kernel.json"
    assert json.loads(spec.read_text())["argv"][0] == str(made)


# --- As a whole ------------------------------------------------------------------------------


def borrowed() -> dict[str, str]:
    """PyTorch's Python has a framework; what it lacks it takes from the lab, as from wheels."""
    if not PYTORCH.exists():
        pytest.skip("no pytorch environment")
    return {"PYTHONPATH": str(next((ROOT / ".venvs/lab").glob("lib/python*/site-packages")))}


def test_some_steps_in_earnest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = "--small", "--minutes", "60", "--only", "versions,assumptions,monitor"
    done = start(out, *given, python=PYTORCH, **borrowed())
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["state"] == "finished" and "torch" in summary["machine"]
    assert {line["outcome"] for line in summary["steps"]} == {"ok"}
    found = {one["assumption"]: one["outcome"] for one in summary["steps"][1]["assumptions"]}
    assert list(found) == list(ASSUMPTIONS) and "differs" not in found.values()
    assert (out / "gpumon" / "load.jsonl").exists() and (out / "gpumon" / "load.png").exists()
