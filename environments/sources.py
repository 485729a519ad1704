"""What is built from source here: pillow-simd, chainercv and, where it is asked for, Horovod.

All are source archives, pinned by hash, built with the tools pinned in `tools.txt`, and kept as
wheels under `.venvs/.wheels`, so that each is built once and installed many times.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
Run = Callable[..., None]  # run(command, env=None): logs the output, raises BuildError

PILLOW_SIMD = "pillow-simd 12.1.1.post0"
PILLOW = "pillow 12.1.1"

NMS_MISSING = '''\
"""In the place of an extension that this build of chainercv leaves out (see environments/)."""


def _nms_gpu_post(*arguments):
    raise NotImplementedError(
        "chainercv was built without its GPU non-maximum suppression, whose C code does not "
        "compile on Python 3.11; move the boxes to the CPU first (chainer.backends.cuda.to_cpu)"
    )
'''


def instruction_set() -> str:
    """The widest of pillow-simd's two instruction sets that this CPU has: "AVX2" or "SSE4"."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "SSE4"
    return "AVX2" if " avx2 " in flags else "SSE4"


def compiler() -> str | None:
    """The C compiler's path, or None."""
    return shutil.which("cc") or shutil.which("gcc")


def pillow_simd(python: Path, wheels: Path, run: Run) -> Path:
    """Compiles pillow-simd for this CPU (about 40 s), unless its wheel is there; the wheel."""
    folder = wheels / instruction_set().lower()
    if (found := pillow_simd_there(wheels)) is None:
        # SSE4 is what pillow-simd builds for unless told otherwise.
        flag = " -mavx2" if instruction_set() == "AVX2" else ""
        wheel(python, folder, run, "-r", HERE / "pillow-simd.txt", CC=f"{compiler()}{flag}")
        (found,) = folder.glob("pillow_simd-*.whl")
    return found


def pillow_simd_there(wheels: Path) -> Path | None:
    """The wheel that was compiled for this CPU before."""
    return next((wheels / instruction_set().lower()).glob("pillow_simd-*.whl"), None)


def chainercv(python: Path, wheels: Path, run: Run) -> Path:
    """Builds chainercv 0.13.1, unless its wheel is there.

    A module that reports it replaces its C extension, which does not compile on Python 3.11.
    """
    if not (found := sorted(wheels.glob("chainercv-*.whl"))):
        with tempfile.TemporaryDirectory(dir=wheels) as scratch:
            source = _source(python, "chainercv", Path(scratch), run)
            setup = (source / "setup.py").read_text()
            (source / "setup.py").write_text(setup.replace("=extensions,", "=[],"))
            bbox = source / "chainercv" / "utils" / "bbox"
            (bbox / "_nms_gpu_post.c").unlink()
            (bbox / "_nms_gpu_post.py").write_text(NMS_MISSING)
            wheel(python, wheels, run, source)
        found = sorted(wheels.glob("chainercv-*.whl"))
    return found[0]


def why_no_horovod() -> str:
    """One clause on what this machine lacks to compile Horovod; empty if it has all."""
    missing = [tool for tool in ("c++", "make") if shutil.which(tool) is None]
    if not missing:
        return ""
    return f"Horovod is compiled here, and {' and '.join(missing)} is missing (Debian: g++ make)"


def horovod(python: Path, wheels: Path, run: Run) -> Path:
    """Compiles Horovod 0.28.1 for the kernel whose interpreter `python` is, unless it has been.

    Against that kernel's TensorFlow and MPI, whose places go into it, with its CMake. Left out are
    its operations inside XLA: they include a header that TensorFlow's package no longer has.
    """
    lock = (HERE / "horovod.txt").read_bytes() + (HERE / "horovod-source.txt").read_bytes()
    folder = wheels / f"horovod-{hashlib.sha256(lock + bytes(python)).hexdigest()[:12]}"
    if not (found := sorted(folder.glob("horovod-*.whl"))):
        chosen = {
            "PATH": f"{python.parent}:{os.environ.get('PATH', os.defpath)}",  # cmake, mpicxx
            "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
            **dict.fromkeys(("HOROVOD_WITH_TENSORFLOW", "HOROVOD_WITH_MPI"), "1"),
            **{f"HOROVOD_WITHOUT_{other}": "1" for other in ("GLOO", "PYTORCH", "MXNET")},
        }
        with tempfile.TemporaryDirectory(dir=wheels) as scratch:
            source = _source(python, "horovod", Path(scratch), run, chosen)
            (source / "horovod" / "tensorflow" / "xla_mpi_ops.cc").write_text("")
            setup = (source / "setup.py").read_text()
            # Without what a debugger reads, which is most of its size.
            (source / "setup.py").write_text(setup.replace("'RelWithDebInfo'", "'Release'"))
            wheel(python, folder, run, source, **chosen)
        found = sorted(folder.glob("horovod-*.whl"))
    return found[0]


def _source(
    python: Path, package: str, scratch: Path, run: Run, env: dict[str, str] | None = None
) -> Path:
    """The folder of a published archive, unpacked in `scratch`; its hash has been checked."""
    lock = {"horovod": "horovod-source.txt"}.get(package, f"{package}.txt")
    run(
        [python, "-m", "pip", "download", "--no-deps", "--no-build-isolation",
         "--require-hashes", "--dest", scratch, "-r", HERE / lock], env
    )  # fmt: skip
    (archive,) = scratch.glob(f"{package}-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(scratch)  # a known archive: its hash was checked
    return archive.with_name(archive.name[: -len(".tar.gz")])


def wheel(python: Path, folder: Path, run: Run, *what: str | Path, **env: str) -> None:
    """Builds one wheel with the tools' own packages and puts it, whole, into `folder`."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        run(
            [python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
             "--no-cache-dir",  # its cache does not tell AVX2 from SSE4
             "--wheel-dir", scratch, *what],
            env,
        )  # fmt: skip
        folder.mkdir(exist_ok=True)
        for wheel in Path(scratch).glob("*.whl"):
            wheel.replace(folder / wheel.name)
