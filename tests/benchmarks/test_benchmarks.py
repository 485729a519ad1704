"""Benchmarks: bad options, a framework that fails, and how loads are interleaved."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from helpers import paths
from helpers.frameworks import NOTEBOOKS

FOLDER = paths.ROOT / "benchmarks"
sys.path.append(str(FOLDER))

import common  # noqa: E402
import interleaved  # noqa: E402
import loaders  # noqa: E402


def run(script: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The exit code of a benchmark's ``main``."""
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *words])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(script).main()
    return ended.value.code


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("resize", ["--workers", "0"], "--workers 0"),
        ("step", ["--quick", "--steps", "0"], "--steps 0"),
        ("loaders", ["--of", "photos,drawings"], "drawings"),
        ("loaders", ["--images", "39"], "--images 39"),
        ("loaders", ["--frameworks", "theano"], "theano"),
        ("rivals", ["--recipe", "resnet44-cifar10"], "resnet44-cifar10"),
    ],
)
def test_a_bad_option_is_one_line_and_nothing_begins(
    script: str,
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(script, words, monkeypatch) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("script", "options"), [("step", []), ("loaders", ["--of", "resized"])])
def test_a_framework_that_fails_is_exit_code_1(
    script: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all others have run."""
    asked: list[str] = []

    def fails_once(script: str, framework: str, inside: str) -> bool:
        asked.append(framework)
        return len(asked) > 1

    monkeypatch.setattr(common, "run", fails_once)
    words = ["--quick", "--frameworks", ",".join(NOTEBOOKS), *options]
    assert run(script, words, monkeypatch) == 1 and asked == list(NOTEBOOKS)


def test_a_process_that_fails_is_told_by_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """PyTorch's and MXNet's environments are this one here, and Chainer's is not made."""
    monkeypatch.setattr(common, "VENVS", tmp_path)
    monkeypatch.setattr(common.importlib.util, "find_spec", lambda name: None)
    for name in ("pytorch", "mxnet"):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
    script = tmp_path / "benchmark.py"
    script.write_text("import sys\nif 'mxnet' in sys.argv: raise SystemExit('noise\\nno kernel')\n")
    monkeypatch.setattr(sys, "argv", ["benchmark.py"])
    found = [common.run(str(script), name, "here") for name in ("mxnet", "pytorch", "chainer")]
    assert found == [False, True, False]
    said = capfd.readouterr().out
    assert "failed: no kernel\n" in said and "make envs ARGS='--environments lab,chainer'" in said


def test_bare_decoding_decodes_every_file_and_nothing_twice_as_often() -> None:
    seen: list[int] = []
    before = threading.active_count()
    batches = loaders.decoded(seen.append, range(20), workers=2)
    assert list(islice(batches, 10)) == [loaders.BATCH] * 10
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before, "no thread decodes on into the next load's time"
    counts = [seen.count(image) for image in set(seen)]
    assert len(counts) == 20 and max(counts) - min(counts) <= 1


def test_the_first_load_changes_from_round_to_round() -> None:
    order: list[str] = []

    def load(name: str) -> Callable[[], tuple[float, float]]:
        def taken() -> tuple[float, float]:
            order.append(name)
            return len(order), -1.0

        return taken

    clock, processor = interleaved.interleave({name: load(name) for name in "abc"}, rounds=3)
    assert "".join(order) == "abcbcacab"
    assert clock == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}
    assert processor["b"] == [-1.0] * 3


def test_what_was_read_ahead_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each round has a new loader, which is closed before the next begins."""
    asked: list[str] = []

    def loader(workers: int) -> Iterator[None]:
        try:
            while True:
                asked.append("batch")
                yield
        finally:
            asked.append("closed")

    def timed(work: Callable[[], int]) -> tuple[float, float]:
        assert asked == ["batch"] * 6
        images = work()
        assert images == 5 * (len(asked) - 6)
        return images, images

    monkeypatch.setattr(interleaved, "timed", timed)
    speeds, _ = interleaved.measure_loaders({"one": loader}, 2, 5, rounds=1, seconds=0.01)
    assert speeds["one"][0] > 0 and asked[-1] == "closed"
