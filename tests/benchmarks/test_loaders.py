"""The loaders' benchmark: what is read, how it is timed, and what stands beside what."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from data_prep.readers import open_reader
from helpers import paths
from helpers.recipe import lookup

sys.path.append(str(paths.ROOT / "benchmarks"))

import loaders
import photos
import turns

SIZES = (photos.SMALL, photos.LARGE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    loaders.make_photos(folder, 20)
    return folder


def test_photos_are_what_imagenets_are(made: Path) -> None:
    small, large = SIZES
    files = {size: photos.images_in(made / size.train) for size in SIZES}
    assert len(files[small]) == len(files[large]) == 20
    for size, shape in ((small, (256, 256)), (large, (500, 375))):
        found = [Image.open(path) for path in files[size]]
        assert {(image.format, image.mode, image.size) for image in found} == {
            ("JPEG", "RGB", shape)
        }
    # 147.9 GB for 1,281,167 of them: what a decoder has to do goes by their bytes.
    mean = np.mean([path.stat().st_size for path in files[large]])
    assert 80_000 < mean < 150_000
    assert np.array_equal(photos.photo(3), photos.photo(3))
    assert not np.array_equal(photos.photo(3), photos.photo(4))


def test_grey_files_are_the_same_images_in_both_formats(tmp_path: Path) -> None:
    loaders.make_grey(tmp_path, 4)
    found = []
    for files, format in zip(loaders.GREY, ("JPEG", "PNG"), strict=True):
        images = [Image.open(path) for path in photos.images_in(tmp_path / files.train)]
        assert {(image.format, image.mode, image.size) for image in images} == {
            (format, "L", (264, 264))
        }
        recipe = lookup(str(tmp_path / f"{files.data}.toml"), demo=True)
        reader = open_reader(recipe.reader, tmp_path / files.data)
        found.append({Path(path).stem for path in map(reader.catalog.path, range(6))})
        assert len(images) == 4
    assert found[0] == found[1]


def test_ours_reads_the_same_photos_by_a_recipe_of_their_size(made: Path) -> None:
    for size in SIZES:
        recipe = lookup(str(made / f"{size.data}.toml"), demo=True)
        assert (recipe.crop, recipe.batch_size) == (photos.CROP, loaders.BATCH)
        assert recipe.image_size == size.shorter
        reader = open_reader(recipe.reader, made / size.data)
        parts = reader.parts()
        of_train = np.concatenate([parts["train"], parts["valid"]]).tolist()
        assert {Path(reader.catalog.path(i)) for i in of_train} == set(
            photos.images_in(made / size.train)
        )


def test_bare_decoding_decodes_every_file_and_nothing_twice_as_often() -> None:
    seen: list[int] = []
    before = threading.active_count()
    batches = photos.decoded(seen.append, range(20), workers=2, batch=8)
    assert list(islice(batches, 10)) == [8] * 10
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before, "no thread decodes on into the next load's turn"
    counts = [seen.count(image) for image in set(seen)]
    assert len(counts) == 20 and max(counts) - min(counts) <= 1


SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"


def test_processor_time_is_of_all_processes(tmp_path: Path) -> None:
    """Those that run, those that ended, and those that these have started."""
    import subprocess

    before = turns.processor_seconds()
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert turns.processor_seconds() - before > 0.4
        process.communicate(b"\n")
    assert turns.processor_seconds() - before > 0.4


def test_who_begins_changes_by_turns() -> None:
    order: list[str] = []

    def turn(name: str) -> Callable[[], tuple[float, float]]:
        def taken() -> tuple[float, float]:
            order.append(name)
            return len(order), -1.0

        return taken

    clock, processor = turns.by_turns({name: turn(name) for name in "abc"}, rounds=3)
    assert "".join(order) == "abcbcacab"
    assert clock == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}
    assert processor["b"] == [-1.0] * 3


def test_what_was_read_ahead_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each turn has a loader of its own, that is closed before the next begins."""
    asked: list[str] = []

    def loader(workers: int) -> Iterator[None]:
        asked.append(f"begun with {workers}")
        try:
            while True:
                asked.append("batch")
                yield
        finally:
            asked.append("closed")

    def timed(work: Any) -> tuple[float, float]:
        assert asked[-7:] == ["begun with 2", *["batch"] * 6]
        images = work()
        assert images == 5 * (len(asked) - asked.index("batch") - 6)
        asked.append("timed")
        return images, images

    monkeypatch.setattr(turns, "timed", timed)
    speeds, _ = turns.take_loaders_turns({"one": loader}, 2, 5, rounds=1, seconds=0.01)
    assert speeds["one"][0] > 0
    assert asked[-2:] == ["timed", "closed"]


def figures(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_every_rival_is_named_and_beside_the_same_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    examples = {"its example": print, "its other example": print}
    monkeypatch.setattr(loaders.inside, "require", lambda *_: None)
    documented = SimpleNamespace(import_module=lambda name: SimpleNamespace(EXAMPLES=examples))
    monkeypatch.setattr(loaders, "importlib", documented)
    images = SimpleNamespace(train=pd.DataFrame({"row": [0]}), read=print)
    monkeypatch.setattr(loaders, "notebook", lambda *_: (print, images))
    speed: dict[str, float] = {}

    def take(loads: dict[str, Any], *_: Any) -> Any:
        speed.update({name: float(at) for at, name in enumerate(loads, 2)})
        both = {name: [value] * 9 for name, value in speed.items()}
        return both, both

    monkeypatch.setattr(turns, "take_loaders_turns", take)
    given = argparse.Namespace(workers=2, rounds=9, seconds=1.0)
    for kind, files in (("resized", photos.SMALL), ("photos", photos.LARGE)):
        loaders.KINDS[kind]("chainer", tmp_path, given)
        found = figures(capsys.readouterr().out)
        of = f"chainer, {files.name}, 2 workers"
        for figure in (f"loader, {of}", f"loader, of processor time, {of}"):
            lines = [line for line in found if line["figure"] == figure]
            rivals = {line["rival_name"]: line["rival"] for line in lines}
            assert rivals == {name: speed[name] for name in (*examples, photos.BARE)}
            assert {line["ours"] for line in lines} == {speed[loaders.OURS]}
    # What people do: resize once, or read the photos again and again.
    figure = f"loader, chainer, {photos.SMALL.name}, 2 workers"
    lines = [line for line in found if line["figure"] == figure]
    assert {line["rival_name"]: line["rival"] for line in lines} == {
        f"{name}, {photos.LARGE.name}": speed[name] for name in examples
    }
    assert {line["ours"] for line in lines} == {speed[f"ours, {photos.SMALL.name}"]}
