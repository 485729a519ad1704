"""The environments: what is promised is locked, the locks are sound, and build.py finds its way."""

from __future__ import annotations

import os
import re
import sys
import tomllib
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
import sources  # noqa: E402

LOCKS = sorted(p.name for p in ENVIRONMENTS.glob("*.txt"))
KERNEL_LOCKS = [n for n in LOCKS if re.sub(r"(-gpu.*)?\.txt$", "", n) in kernels.KERNELS]


def name_of(requirement: str) -> str:
    """The normalised project name at the head of a requirement."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def locked(file: str) -> dict[str, str]:
    """Versions by name in a lock."""
    lines = (ENVIRONMENTS / file).read_text().splitlines()
    pins = [line.removesuffix(" \\") for line in lines if re.match(r"[a-z0-9]", line)]
    return {name_of(pin): pin.split(";")[0].split("==")[1].strip() for pin in pins}


def test_keras_is_the_same_in_every_environment() -> None:
    """Else Horovod's row would show another Keras, and not Horovod."""
    found = {lock: locked(lock).get("keras") for lock in LOCKS}
    assert len({version for version in found.values() if version}) == 1, found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    text = re.sub(r"\\\n\s*", "", (ENVIRONMENTS / lock).read_text())  # one line a requirement
    pins = [line for line in text.splitlines() if line and line.lstrip()[0] != "#"]
    assert pins
    for pin in pins:
        assert re.match(r"[a-z0-9._-]+(\[[a-z0-9,_-]+\])?==\S+( ;.*?)? *--hash=sha256:", pin), pin


@pytest.mark.parametrize("file", [p.name for p in sorted(ENVIRONMENTS.glob("*.[it][nx]*"))])
def test_no_index_address_and_no_path_of_one_machine(file: str) -> None:
    text = (ENVIRONMENTS / file).read_text()
    assert "://" not in text
    assert not re.search(r"(^|\s)(-i|-f|--\w*index\S*|--find-links)\b", text, re.M)
    assert not re.search(r"(^|[\s=])/\w", text, re.M)


def test_every_in_file_has_a_lock_and_every_kernel_has_one() -> None:
    ins = {p.stem for p in ENVIRONMENTS.glob("*.in")} - {"common"}
    assert ins == {p.stem for p in ENVIRONMENTS.glob("*.txt")}, "make lock"
    assert set(kernels.KERNELS) <= ins


@pytest.mark.parametrize("lock", KERNEL_LOCKS)
def test_every_kernel_has_what_the_project_needs(lock: str) -> None:
    gpumon = tomllib.loads((ROOT / "gpumon" / "pyproject.toml").read_text())["project"]
    extras = gpumon["optional-dependencies"]
    # As setup.py lists it, without the folder that gpumon is in.
    _, _, listed = (ROOT / "setup.py").read_text().partition("install_requires=[")
    ours = re.findall(r'^ *f?"(.+)",$', listed.partition("],\n")[0], re.M)
    asked_for = [*gpumon["dependencies"], *extras["plot"], *ours]
    assert {name_of(d) for d in asked_for} - set(locked(lock)) == {name_of(gpumon["name"])}
    assert {"ipykernel", "pytest"} <= set(locked(lock))


@pytest.mark.parametrize("lock", KERNEL_LOCKS)
def test_pillow_is_the_one_that_pillow_simd_can_replace(lock: str) -> None:
    stand_in = tomllib.loads((ENVIRONMENTS / "pillow-stand-in" / "pyproject.toml").read_text())
    simd = locked("pillow-simd.txt")["pillow-simd"]
    assert stand_in["project"]["dependencies"] == [f"pillow-simd=={simd}"]
    assert locked(lock)["pillow"] == stand_in["project"]["version"] == simd.split(".post")[0]
    assert sources.PILLOW_SIMD.endswith(simd)


@pytest.mark.parametrize("gpu_lock", [n for n in KERNEL_LOCKS if "-gpu" in n])
def test_cpu_and_gpu_forms_differ_only_where_they_must(gpu_lock: str) -> None:
    """Both forms run the same framework, Keras and NumPy, or their results would not compare."""
    cpu, gpu = locked(re.sub("-gpu.*", ".txt", gpu_lock)), locked(gpu_lock)
    renamed = {"tensorflow": "tensorflow-cpu", "mxnet-cu117": "mxnet"}
    for name in ("numpy", "keras", "chainer", "tensorflow", "mxnet-cu117", "pandas", "ipykernel"):
        if name in gpu:
            assert gpu[name] == cpu[renamed.get(name, name)], name


def test_conda_gets_the_labs_lock_on_the_same_python() -> None:
    text = (ROOT / "environment.yml").read_text()
    assert f"- python={python311.VERSION}\n" in text
    assert re.findall(r"-r (\S+)", text) == ["environments/lab.txt"]


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        (build, ["--environments", "lab,caffe"], "no environment named caffe: choose from lab"),
        (download, ["--environments", "caffe"], "no environment named caffe: choose from lab"),
        (build, ["caffe"], "unknown arguments: caffe"),
        (build, ["--offline", "nowhere"], "nowhere: no such folder (make wheels creates one"),
        (build, ["--gpu", "90:580"], "--gpu 90:580: give a compute capability"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    script: Any,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(build, "alone", lambda *_: pytest.fail("it begins to build"))
    assert script.main(arguments) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"{script.__name__}.py: {said}") and line.count("\n") == 1


def program(path: Path, prints: str, code: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\nexit {code}\n")
    path.chmod(0o755)


def test_no_python_and_no_uv_is_one_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "uv", "nothing found", 1)
    with pytest.raises(python311.NoPython, match=r"install it .*apt install python3\.11"):
        python311.fetch_python(tmp_path / "uv")
    program(tmp_path / "python3", "No module named pip", 1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(python311.NoPython, match="No module named pip"):
        python311.find_uv(tmp_path / "venvs")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A .venvs with a mxnet that counts as built."""
    for module in (build, environment, kernels):
        monkeypatch.setattr(module, "VENVS", tmp_path)
    (tmp_path / "mxnet" / "bin").mkdir(parents=True)
    (tmp_path / "mxnet" / "bin" / "python").symlink_to(sys.executable)
    kernels.write_json(tmp_path / "mxnet" / "stamp.json", environment.stamp("mxnet", CPU))
    kernels.write_json(kernels.status_file("mxnet"), {"ok": True})
    return tmp_path


def machine(*capabilities: tuple[int, int], driver: str = "580.65.06") -> kernels.Machine:
    """A machine with GPUs of these compute capabilities."""
    return kernels.Machine(True, tuple(kernels.Gpu("a GPU", c, driver) for c in capabilities))


CPU, GPU = kernels.Machine(gpu=False), machine((8, 0))


def test_a_whole_environment_is_made_anew_when_told_to(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, dict[str, str]] = {}  # and the stamp that each had by then

    def build_all(todo: list[str], maker: Any) -> list[dict[str, Any]]:
        made.update({kernel: environment.stamped(kernel) for kernel in todo})
        return []

    monkeypatch.setattr(build, "build_all", build_all)
    monkeypatch.setattr(python311, "find_uv", lambda *_: Path("uv"))
    monkeypatch.setattr(python311, "set_up_uv", lambda _: None)
    assert build.main(["--cpu", "--environments", "mxnet"]) == 0 and not made
    assert build.main(["--cpu", "--environments", "mxnet", "--rebuild"]) == 0
    assert made == {"mxnet": {}}


@pytest.mark.parametrize("changed", ["mxnet.txt", "tools.txt"])
def test_another_lock_is_another_build(
    built: Path, changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "environments"
    copy.mkdir()
    for file in [*ENVIRONMENTS.glob("*.txt"), *ENVIRONMENTS.glob("pillow-stand-in/pyproject.toml")]:
        target = copy / file.relative_to(ENVIRONMENTS)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
    for module in (environment, kernels):
        monkeypatch.setattr(module, "HERE", copy)
    assert environment.whole("mxnet", CPU)
    assert not environment.whole("mxnet", GPU), "the other form has another lock"
    (copy / changed).write_text((copy / changed).read_text() + "# changed\n")
    assert not environment.whole("mxnet", CPU)


@pytest.mark.parametrize(
    ("kernel", "machine", "expected"),
    [
        ("mxnet", CPU, "cpu"),
        ("mxnet", machine((8, 6)), "gpu"),
        ("mxnet", machine((9, 0)), "cpu"),  # no code for Hopper in it
        ("mxnet", machine((9, 0), (7, 0)), "gpu"),  # for the other one
        ("pytorch", machine((10, 0)), "gpu"),
        ("pytorch", machine((7, 0), (9, 0)), "gpu-cuda12"),  # serves both
        ("pytorch", machine((8, 0), driver="535.129.03"), "gpu-cuda12"),
        ("pytorch", machine((3, 7)), "cpu"),  # Kepler
    ],
)
def test_form(kernel: str, machine: kernels.Machine, expected: str) -> None:
    assert kernels.variant(kernel, machine) == expected


def test_a_kernel_is_registered_with_its_own_path_and_no_unset_variable(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = built / "mxnet" / "lib" / "python3.11" / "site-packages" / "nvidia" / "cudnn" / "lib"
    library.mkdir(parents=True)
    headers = library.parents[1] / "cuda_runtime"
    headers.mkdir()
    driver, module = built / "driver", built / "cuda"
    for folder, name in ((driver, "libcuda.so.1"), (module, "libcudnn.so.8")):
        folder.mkdir()
        (folder / name).write_text("")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{module}:{driver}:")
    kernels.register("mxnet", "gpu")
    spec = kernels.read_json(built / "lab/share/jupyter/kernels/mxnet/kernel.json")
    assert spec["argv"][0] == str(built / "mxnet" / "bin" / "python")
    assert spec["env"]["PATH"] == f"{built / 'mxnet' / 'bin'}:${{PATH}}"
    assert spec["env"]["LD_LIBRARY_PATH"] == f"{library}:{driver}", "without the site's CUDA"
    assert spec["env"]["CUDA_PATH"] == str(headers), "CuPy's headers are not the site's"
    assert spec["env"]["CUDA_CACHE_PATH"].startswith(str(built))
    kernels.register("mxnet", "cpu")
    spec = kernels.read_json(built / "lab/share/jupyter/kernels/mxnet/kernel.json")
    assert "LD_LIBRARY_PATH" not in spec["env"]
    assert spec["env"]["OPENBLAS_THREAD_TIMEOUT"] == "18", "Jupyter's kernels have it too"
    kernels.unregister("mxnet")
    assert not (built / "lab/share/jupyter/kernels/mxnet").exists()


def test_a_failed_environment_says_why_and_the_others_go_on(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(kernel: str, *_: Any) -> tuple[str, str]:
        if kernel == "chainer":
            raise environment.BuildError("no wheel for this machine")
        return "pillow 12.1.1 (no C compiler)", ""

    monkeypatch.setattr(environment, "make", make)
    monkeypatch.setattr(build, "make_small", lambda venv, maker: None)
    monkeypatch.setattr(build, "instead_of_pillow", lambda: None)
    monkeypatch.setattr(environment, "editable_wheels", lambda: None)
    monkeypatch.setattr(environment, "stamp", lambda *_: {"recipe": "1", "project": "1"})
    maker = environment.Maker(Path("uv"), "python", CPU)
    by_name = {s["kernel"]: s for s in build.build_all(["chainer", "pytorch"], maker)}
    assert by_name["pytorch"]["ok"] and not by_name["chainer"]["ok"]
    assert kernels.status("chainer")["reason"] == "no wheel for this machine"
    assert kernels.status("pytorch")["pillow"].startswith("pillow 12.1.1")
    lines = capsys.readouterr().out.splitlines()
    assert any("chainer" in line and "no wheel for this machine" in line for line in lines)
    assert kernels.status("lab")["reason"] == "not built yet: run make envs"


def test_a_command_that_fails_gives_its_reason_not_its_log(tmp_path: Path) -> None:
    run = environment.runner(tmp_path / "log")
    run(["true"])
    with pytest.raises(environment.BuildError, match=r"^error: no such wheel$"):
        run(["sh", "-c", "echo working; echo 'error: no such wheel' >&2; exit 1"])
    assert "working" in (tmp_path / "log").read_text()


def test_pips_index_is_handed_on_to_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_here = {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_FIND_LINKS"}
    for name in {name for name in os.environ if name.startswith(("UV_", "PIP_"))} | set_here:
        monkeypatch.setenv(name, "")  # so that it is as before at the end
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example/simple\nextra-index-url = https://b.example/simple\n"
        "  https://c.example/simple\ntrusted-host = a.example\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("UV_INSECURE_HOST", "mine.example")
    python311.set_up_uv(tmp_path)
    assert os.environ["UV_DEFAULT_INDEX"] == "https://a.example/simple"
    assert os.environ["UV_INDEX"] == "https://b.example/simple https://c.example/simple"
    assert os.environ["UV_INSECURE_HOST"] == "mine.example"


def test_an_index_that_does_not_answer_is_named() -> None:
    log = (
        "error: Failed to fetch: `https://a.example/simple/numpy/`\nCaused by: Connection refused\n"
    )
    said = environment.reason_in(log)
    assert said.startswith("https://a.example/simple/numpy/: Caused by: Connection refused")
    assert "UV_DEFAULT_INDEX" in said
