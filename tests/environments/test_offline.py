"""The whole way without a network: `make wheels`, the folder and the checkout copied, `make envs`.

The real programs and the project's own packages; the frameworks' and all others are stand-ins of a
few bytes, so that nothing is downloaded. The second half runs with no network and in a shell that a
cluster's modules have filled with other packages and libraries.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "environments"))

import kernels  # noqa: E402
import python311  # noqa: E402

NEEDED = {
    *("cloudpickle", "filelock", "joblib", "jsonschema", "matplotlib", "msgspec", "numpy"),
    *("nvidia-ml-py", "pandas", "pillow", "psutil", "safetensors", "scikit-learn", "scipy", "tqdm"),
    *("jupyterlab", "papermill", "nbmake", "chainer"),
}
"""What the project depends on and the kernels import; the stand-ins need nothing themselves."""
MODULES = {"pillow": "PIL/Image.py"}
TAGS = {"psutil": "manylinux_2_25_x86_64", "scipy": "manylinux2014_x86_64"}
"""What a wheel needs of a machine; all others fit any."""
CHAINERCV = {
    "setup.py": "from setuptools import setup\n"
    "setup(name='chainercv', version='0.13.1', packages=['chainercv'], ext_modules=[])\n",
    "chainercv/__init__.py": "",
    "chainercv/transforms.py": "",
    "chainercv/utils/bbox/_nms_gpu_post.c": "",
}
POISON = "raise SystemExit('another Python was asked for packages')\n"


def write_wheel(path: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    about = f"{re.sub('[-.]', '_', name)}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = files | {
        f"{about}/METADATA": metadata.encode(),
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as packed:
        for file, content in (files | {f"{about}/RECORD": record.encode()}).items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = (0o100755 if "/scripts/" in file else 0o100644) << 16
            packed.writestr(entry, content)


def write_source(path: Path, files: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as packed:
        for file, text in files.items():
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{file}")
            entry.size = len(text.encode())
            packed.addfile(entry, io.BytesIO(text.encode()))


def repack(site: Path, name: str) -> dict[str, bytes]:
    """The files of an installed package, without its scripts."""
    (record,) = site.glob(f"{name}-*.dist-info/RECORD")
    rows = [row[0] for row in csv.reader(record.read_text().splitlines())]
    kept = [
        row for row in rows if not row.startswith("..") and not row.endswith((".pyc", "RECORD"))
    ]
    return {row: (site / row).read_bytes() for row in kept}


def stand_in(registry: Path, pin: str) -> Path:
    """Puts what a pin names into the registry; returns the file."""
    name, version = pin.split("==")
    module = name.replace("-", "_")
    file = registry / f"{module}-{version}-py3-none-{TAGS.get(name, 'any')}.whl"
    source = registry / f"{module}-{version}.tar.gz"
    setup = f"from setuptools import setup\nsetup(name={name!r}, version={version!r}, "
    sources = {
        "chainer": {"setup.py": f"{setup} py_modules=['chainer'])", "chainer.py": ""},
        "chainercv": CHAINERCV,
        # It does not compile, so Pillow stays.
        "pillow-simd": {"setup.py": f"import sys\n{setup})\n'bdist_wheel' in sys.argv and 1/0"},
    }
    if name in sources:
        write_source(source, sources[name])
        return source
    if name == "uv":
        uv = (kernels.VENVS / ".uv" / "bin" / "uv").read_bytes()
        files = {f"uv-{version}.data/scripts/uv": uv}
    elif name in ("pip", "setuptools", "wheel", "pybind11", "packaging"):
        (site,) = (kernels.VENVS / ".tools").glob("lib/python*/site-packages")
        files = repack(site, name)
    else:
        files = {MODULES.get(name, f"{module}.py"): b""}
    write_wheel(file, name, version, files)
    return file


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose locks name stand-ins, and beside it `registry`, which has them."""
    tools = (".tools", ".uv/bin/uv")
    if not all((kernels.VENVS / tool).exists() for tool in tools):
        pytest.skip("needs the tools of .venvs (make envs)")
    place = tmp_path_factory.mktemp("a space, and a comma") / "online"
    registry = place.parent / "registry"
    registry.mkdir()
    left_out = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "build", "*.c")
    for name in ("environments", "helpers", "data_prep", "gpumon"):
        shutil.copytree(ROOT / name, place / name, ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "Makefile"):
        shutil.copyfile(ROOT / name, place / name)
    settings = (place / "pyproject.toml").read_text()
    without_c = re.sub(r"\[\[tool.setuptools.ext-modules\]\].*?\n\n", "", settings, flags=re.S)
    (place / "pyproject.toml").write_text(without_c)
    for lock in ("uv", "tools", "pillow-simd", "chainercv", "lab", "chainer"):
        file = place / "environments" / f"{lock}.txt"
        pins = re.findall(r"^([a-z0-9][^ ;\\]*)", file.read_text(), re.M)
        pins = [re.sub(r"\[.*\]", "", pin) for pin in pins]
        alone = lock in ("uv", "tools", "pillow-simd", "chainercv")
        kept = [pin for pin in pins if alone or pin.split("==")[0] in NEEDED]
        files = {pin: stand_in(registry, pin).read_bytes() for pin in kept}
        digests = {pin: hashlib.sha256(data).hexdigest() for pin, data in files.items()}
        file.write_text("".join(f"{p} \\\n    --hash=sha256:{digests[p]}\n" for p in kept))
    return place


def run(place: Path, program: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program of environments/ as make starts it, with a cache of its own and no network."""
    python = python311.find_python(kernels.VENVS / ".uv" / "bin" / "uv")
    assert python
    quiet = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON"))}
    closed = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    env = {**quiet, **closed, "UV_CACHE_DIR": str(place / "cache"), "PIP_CONFIG_FILE": os.devnull}
    command = [python, str(place / "environments" / program), *words]
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0:
        command = ["unshare", "-rn", *command]
    return subprocess.run(
        command, cwd=place, env={**env, **more}, capture_output=True, text=True, check=False
    )


def from_registry(online: Path) -> dict[str, str]:
    address = (online.parent / "registry").as_uri()
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": address}
    return {**pip, "UV_OFFLINE": "1", "UV_FIND_LINKS": address}


WANTED = ("--environments", "lab,chainer", "--cpu")


@pytest.fixture(scope="module")
def filled(online: Path) -> Path:
    """The checkout with its wheels/, which a first try could not fill."""
    (lost,) = (online.parent / "registry").glob("numpy-1*")
    lost.rename(online / lost.name)
    done = run(online, "download.py", *WANTED, **from_registry(online))
    assert done.returncode == 2, done.stdout
    assert re.fullmatch(r"download.py: \S+.txt: ERROR: .*numpy==1.*\n", done.stderr)
    assert not (online / "wheels" / "wheels.json").exists()
    (online / lost.name).rename(lost)
    done = run(online, "download.py", *WANTED, **from_registry(online))
    assert done.returncode == 0, done.stderr
    assert 'make envs ARGS="--offline wheels"' in done.stdout
    return online


def test_the_folder_names_what_it_is_for(filled: Path) -> None:
    names = {path.name.split("-")[0] for path in (filled / "wheels").iterdir()}
    assert {"chainer", "chainercv", "uv", "setuptools", "pillow_simd", "wheels.json"} <= names
    index = json.loads((filled / "wheels" / "wheels.json").read_text())
    assert index == {"lab": "cpu", "chainer": "cpu"}


@pytest.fixture(scope="module")
def offline(filled: Path) -> Path:
    """Another machine: the checkout and the folder, and nothing else that the first one had."""
    place = filled.parent / "offline"
    there = shutil.ignore_patterns(".venvs", "cache", "*.egg-info", "build")
    shutil.copytree(filled, place, ignore=there)
    (filled.parent / "registry").rename(filled.parent / "gone")
    return place


def modules(place: Path) -> dict[str, str]:
    """The variables of a shell with a site's Python and CUDA loaded, both of them unusable here."""
    site, cuda = place.parent / "site", place.parent / "cuda"
    site.mkdir(exist_ok=True)
    cuda.mkdir(exist_ok=True)
    for name in ("sitecustomize", "numpy", "PIL", "chainer", "jupyterlab", "setuptools", "pip"):
        (site / f"{name}.py").write_text(POISON)
    for library in ("libcudart.so.12", "libcudnn.so.8", "libcublas.so.12", "libnccl.so.2"):
        (cuda / library).write_text("another CUDA")
    (site / "startup.py").write_text(POISON)
    python = {"PYTHONPATH": str(site), "PYTHONSTARTUP": str(site / "startup.py")}
    return {**python, "LD_LIBRARY_PATH": str(cuda), "CUDA_HOME": str(cuda)}


def make(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """build.py as make starts it, which takes PYTHONPATH away before Python reads it."""
    return run(place, "build.py", *words, **{**modules(place), "PYTHONPATH": str(place)})


def test_every_environment_is_made_without_a_network(offline: Path) -> None:
    done = make(offline, "--offline", "wheels")
    assert done.returncode == 0, done.stdout + done.stderr
    status = {k: json.loads((offline / f".venvs/{k}.json").read_text()) for k in ("lab", "chainer")}
    assert all(one["ok"] and one["form"] == "cpu" for one in status.values())
    again = make(offline, "--offline", "wheels")
    assert again.returncode == 0 and "All environments are complete: lab, chainer." in again.stdout
    plain = make(offline, *WANTED)
    assert "are complete: " in plain.stdout, "made from a folder or from the network is the same"


def test_what_does_not_go_with_a_folder(offline: Path) -> None:
    for words, said in {
        ("--gpu",): "leave out --lock, --gpu and --cpu",
        ("--environments", "mxnet"): "has no packages for mxnet, only for lab, chainer",
    }.items():
        done = make(offline, "--offline", "wheels", *words)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
