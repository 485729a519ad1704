"""`make wheels` and `make envs ARGS="--offline wheels"`: a folder that is whole, or one line."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "environments"
sys.path.insert(0, str(ENVIRONMENTS))

import build  # noqa: E402
import download  # noqa: E402
import environment  # noqa: E402
import kernels  # noqa: E402
import python311  # noqa: E402
import wheel_folder  # noqa: E402


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fill(path: Path, forms: dict[str, str]) -> download.Files:
    """A folder with a file for every pin; what is in the files is of no matter here."""
    files = {}
    for pin in wheel_folder.pins_of(wheel_folder.locks_of(forms)):
        name = f"{pin.replace('==', '-')}-py3-none-any.whl"
        put(path / name, f"this is {pin}")
        files[name] = download.entry_of(path / name, pin)
    download.write_index(path, forms, files)
    return files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path / "wheels", {"lab": "cpu", "mxnet": "gpu"})
    return tmp_path / "wheels"


@pytest.fixture
def venvs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty .venvs, where nothing is really built."""

    def build_all(todo: list[str], maker: environment.Maker) -> list[dict[str, Any]]:
        kernels.write_json(
            place / "built.json", {k: kernels.variant(k, maker.machine) for k in todo}
        )
        return []

    place = tmp_path / ".venvs"
    for module in (build, environment, kernels):
        monkeypatch.setattr(module, "VENVS", place)
    monkeypatch.setattr(build, "build_all", build_all)
    monkeypatch.setattr(python311, "find_uv", lambda *_: Path("uv"))
    monkeypatch.setattr(python311, "set_up_uv", lambda _: None)
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "UV_FIND_LINKS", "UV_OFFLINE"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "before")
    return place


def test_a_folder_decides_kernels_and_forms(
    folder: Path, venvs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build.main(["--offline", str(folder)]) == 0
    assert kernels.read_json(venvs / "built.json") == {"lab": "cpu", "mxnet": "gpu"}
    assert build.main(["--offline", str(folder), "--environments", "lab"]) == 0
    assert kernels.read_json(venvs / "built.json") == {"lab": "cpu"}


def change_index(**fields: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        index = kernels.read_json(folder / "wheels.json")
        kernels.write_json(folder / "wheels.json", index | fields)

    return change


def wheel(folder: Path) -> Path:
    (found,) = folder.glob("jupyterlab-[0-9]*.whl")
    return found


def without_numpy(folder: Path) -> None:
    index = kernels.read_json(folder / "wheels.json")
    files = {n: about for n, about in index["files"].items() if not n.startswith("numpy-")}
    kernels.write_json(folder / "wheels.json", index | {"files": files})


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a wheel has changed": (
        lambda f: wheel(f).write_text(wheel(f).read_text()[::-1]),
        "jupyterlab-.*: is not the file that make wheels put there",
    ),
    "a package was never fetched": (without_numpy, r"lacks numpy==\S+: run make wheels again"),
    "no index": (lambda f: (f / "wheels.json").unlink(), "wheels.json: missing or damaged"),
    "another lock": (
        change_index(locks={"lab.txt": "0"}),
        "belongs to a checkout with another uv.txt",
    ),
    "another Python": (change_index(python="3.12"), "wheels for Python 3.12, not 3.11"),
    "a newer system": (change_index(glibc="9.1"), r"glibc 9.1 or newer, and this machine is \w+"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_serve_is_one_line_and_nothing_is_touched(
    folder: Path, venvs: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    fault, said = FAULTS[name]
    fault(folder)
    put(venvs / "lab" / "stamp.json", "{}")
    assert build.main(["--offline", str(folder), "--rebuild"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and line.startswith(f"build.py: {folder}")
    assert re.search(said, line), line
    found = {str(path.relative_to(venvs)) for path in venvs.rglob("*")}
    assert found <= {".lock", "lab", "lab/stamp.json"} and "lab/stamp.json" in found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu"], "leave out --lock, --gpu and --cpu"),
        (["--environments", "chainer"], "has no packages for chainer, only for lab, mxnet"),
    ],
)
def test_what_does_not_go_with_a_folder(
    folder: Path,
    venvs: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    assert build.main(["--offline", str(folder), *arguments]) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1
    assert not (venvs / "built.json").exists()


# --- make wheels -----------------------------------------------------------------------------


def test_what_is_there_is_known_by_its_hash_and_not_by_its_name(tmp_path: Path) -> None:
    put(tmp_path / "a-1-py3-none-any.whl", "a")
    put(tmp_path / "b-1-py3-none-any.whl", "half of b")
    put(tmp_path / "c-1-py3-none-any.whl", "built of c's source")
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in "abc"}
    pins = {f"{name}==1": f"{name}==1 \\\n    --hash=sha256:{h}\n" for name, h in hashes.items()}
    assert list(download.there(tmp_path, pins)) == ["a-1-py3-none-any.whl"]
    about = download.entry_of(tmp_path / "c-1-py3-none-any.whl", "c==1", built=True)
    kernels.write_json(tmp_path / "wheels.json", {"files": {"c-1-py3-none-any.whl": about}})
    found = download.there(tmp_path, pins)
    assert list(found) == ["a-1-py3-none-any.whl", "c-1-py3-none-any.whl"]
    assert found["c-1-py3-none-any.whl"] == about, "known by the index of before"


def test_what_another_lock_needed_is_removed_and_the_users_own_is_not(tmp_path: Path) -> None:
    forms = {"lab": "cpu"}
    files = fill(tmp_path, forms)
    put(tmp_path / "mine.txt", "mine")
    gone = next(name for name in files if name.startswith("numpy-"))
    download.write_index(tmp_path, forms, {n: a for n, a in files.items() if n != gone})
    assert not (tmp_path / gone).exists() and (tmp_path / "mine.txt").exists()
    assert "1 other files in it are not needed" in download.what_next(tmp_path, forms, files)


def test_a_lock_takes_what_was_built_of_its_source(tmp_path: Path) -> None:
    pin = next(p for p in wheel_folder.pins_of([ENVIRONMENTS / "chainer.txt"]) if "chainer==" in p)
    about = {"for": pin, "bytes": 1, "sha256": "f00d", "built": True}
    folder = wheel_folder.Folder(tmp_path, {}, {}, {"chainer.whl": about})
    made = wheel_folder.lock_with_built(ENVIRONMENTS / "chainer.txt", folder, tmp_path / "to")
    old, new = (ENVIRONMENTS / "chainer.txt").read_text(), made.read_text()
    assert new.replace("    --hash=sha256:f00d \\\n", "") == old
    assert new.count(f"\n{pin} \\\n    --hash=sha256:f00d \\\n") == 1
