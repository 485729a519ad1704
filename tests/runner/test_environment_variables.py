"""What a shell has set may change neither what a kernel imports nor what it runs first."""

import json
import sys

import pytest
from runner_tools import Suite, images_fixture, suite_fixture

from helpers import paths
from helpers.runner import environment_variables, ranks

__all__ = ["images_fixture", "suite_fixture"]

PLANTED = "from pathlib import Path; Path({!r}).open('a').write('{} ')"
LOOK = """
import json, os, sys
import helpers
from pathlib import Path
seen = {"environment": dict(os.environ), "path": sys.path, "helpers": helpers.__file__}
Path(run, "seen.json").write_text(json.dumps(seen))
"""


def test_nothing_of_the_shells_runs_in_a_kernel_or_replaces_a_package(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, folder = suite.folder / "ran", suite.folder / "shell"
    for name, file in {
        "PYTHONPATH": "sitecustomize.py",
        "PYTHONSTARTUP": "startup.py",
        "PYTHONUSERBASE": f"lib/python3.{sys.version_info.minor}/site-packages/usercustomize.py",
        "IPYTHONDIR": "profile_default/startup/00.py",
    }.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLANTED.format(str(ran), name))
        monkeypatch.setenv(name, str(path if name == "PYTHONSTARTUP" else folder))
    (folder / "helpers").mkdir()
    (folder / "helpers" / "__init__.py").write_text("")
    config = folder / "profile_default" / "ipython_kernel_config.py"
    config.write_text(PLANTED.format(str(ran), "profile"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    suite.notebook("PyTorch_MultiGPU", LOOK)
    ranks.execute(
        paths.NOTEBOOKS / "PyTorch_MultiGPU.ipynb",
        suite.folder / "executed.ipynb",
        {"run": str(suite.folder)},
        kernel="tiny",
        environment={"ROSETTA_TEST": "here"},
    )
    seen = json.loads((suite.folder / "seen.json").read_text())
    assert not ran.exists(), ran.read_text()
    assert seen["helpers"] == str(paths.ROOT / "helpers" / "__init__.py")
    assert not [path for path in seen["path"] if path.startswith(str(folder))]
    assert seen["environment"]["OMP_NUM_THREADS"] == "2"
    assert seen["environment"]["ROSETTA_TEST"] == "here"


def test_every_variable_of_pythons_is_left_out() -> None:
    shell = {"PYTHONHOME": "/x", "PYTHONOPTIMIZE": "2", "HOME": "/home/x", "LD_LIBRARY_PATH": "/y"}
    found = environment_variables.for_a_kernel(shell)
    assert {"HOME", "LD_LIBRARY_PATH"} <= found.keys()
    assert {n for n in found if n.startswith("PYTHON")} == {"PYTHONPATH", "PYTHONNOUSERSITE"}
    assert found["PYTHONPATH"] == str(paths.ROOT)
