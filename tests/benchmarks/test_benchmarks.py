"""Benchmarks: what `--quick` means, and that a framework that fails is an error."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from helpers import paths
from helpers.frameworks import NOTEBOOKS
from helpers.runner import plans

FOLDER = paths.ROOT / "benchmarks"
sys.path.append(str(FOLDER))

import inside  # noqa: E402

SCRIPTS = sorted(
    file.stem
    for file in FOLDER.glob("*.py")
    if '__name__ == "__main__"' in file.read_text() and file.stem != "hosts"  # it measures nothing
)
OF_FRAMEWORKS = [
    name
    for name in SCRIPTS
    if re.search("^import (inside|notebook_loops)$", (FOLDER / f"{name}.py").read_text(), re.M)
]


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("step", ["--pixels", "5"], "--pixels 5: give 32 or more"),
        ("step", ["--pixels", "225"], "--pixels 225: give 224 or less"),
        ("resize", ["--workers", "0"], "--workers 0: give 1 or more"),
        ("large_catalog", ["--files", "0"], "--files 0: give 1 or more"),
        ("catalog", ["/nowhere"], "/nowhere: there is no such folder"),
        ("rivals", ["--recipe", "resnet44-cifar10"], "invalid choice: 'resnet44-cifar10'"),
        ("step", ["--quick", "--steps", "0"], "--steps 0: give 1 or more"),
        ("step", ["--rounds", "-1"], "--rounds -1: give 1 or more"),
        *[("loaders", [f"--seconds={s}"], "give a number above 0") for s in (0, -1, "nan", "inf")],
        (
            "loaders",
            ["--of", "photos,drawings"],
            "drawings: it is one of xrays, grey, resized, photos",
        ),
        ("loaders", ["--of", "resized", "--images", "39"], "--images 39: that does not fill"),
        ("loaders", ["--of", "xrays", "--images", "127"], "give 128 or more"),
        ("loaders", ["--of", "photos,xrays", "--images", "127"], "give 128 or more"),
    ],
)
def test_a_bad_option_is_one_line_and_nothing_begins(
    script: str,
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Some ended in a traceback from the images they generate, or took no steps for ever."""
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *words])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(script).main()
    *_, line = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_benchmark_has_the_one_quick(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{script}.py", "--help"])
    with pytest.raises(SystemExit):
        importlib.import_module(script).main()
    said = " ".join(capsys.readouterr().out.split())
    assert "--quick small, to see that it works: --" in said
    assert ("--frameworks" in said) == (script in OF_FRAMEWORKS)


@pytest.mark.parametrize("script", OF_FRAMEWORKS)
def test_a_framework_that_fails_is_exit_code_1(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all others had their turn."""
    module = importlib.import_module(script)
    asked: list[str] = []

    def run(script: str, framework: str, inside: str) -> bool:
        asked.append(framework)
        return len(asked) > 1

    monkeypatch.setattr(inside, "run", run)
    frameworks = ["pytorch"] if script == "rivals" else list(NOTEBOOKS)
    words = ["--quick", "--frameworks", ",".join(frameworks)]
    few = ["--images", "8"]
    few = ["--of", "resized", "--images", "40"] if script == "loaders" else few  # whole batches
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *words, *few])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 1 and asked == frameworks


def test_a_process_that_fails_is_told_by_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each framework's environment is this one here, and one is not made."""
    monkeypatch.setattr(inside, "ROOT", tmp_path)
    monkeypatch.setattr(inside.importlib.util, "find_spec", lambda name: None)
    notebooks = plans.framework_notebooks()
    first, second, missing = ("pytorch", "mxnet", "chainer")
    for name in (first, second):
        python = tmp_path / ".venvs" / notebooks[NOTEBOOKS[name]][1] / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
    script = tmp_path / "benchmark.py"
    script.write_text(
        "import sys\n"
        f"if '{second}' in sys.argv: raise SystemExit('noise\\nno kernel for this device')\n"
        "print('measured')\n"
    )
    monkeypatch.setattr(sys, "argv", ["benchmark.py"])
    found = [inside.run(str(script), name, "here") for name in (second, first, first, missing)]
    assert found == [False, True, True, False]
    said = capfd.readouterr().out
    assert said.count("measured") == 2 and "failed: no kernel for this device" in said
    assert (
        f"failed: no {missing} environment: make envs ARGS='--environments lab,{missing}'" in said
    )
