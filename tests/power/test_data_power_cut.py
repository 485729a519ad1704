"""A power cut at any moment: nothing that was called complete is damaged, and the rest is made."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from data_prep_server import Server, publish
from data_prep_tools import ROOT, SHARED, digest, make_folder
from power_cut import cut, disk, mounted, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be done")

SAMPLE = SHARED / "nih-sample"

#: Words after `data-prep` that fill a folder of this name; the same every time.
Command = Callable[[Path], list[str]]


@pytest.fixture
def resize(tmp_path: Path) -> Command:
    source = SAMPLE if SAMPLE.is_dir() else make_folder(tmp_path / "set", patients=300, size=64)
    return lambda target: ["resize", str(source), str(target), "--size", "48"]


@pytest.fixture
def nih(tmp_path: Path) -> Iterator[Command]:
    """Archives come slowly, from a server; each is removed when its images are done."""
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    server.manners["pause"] = 0.001
    listing = publish(server.folder, make_folder(tmp_path / "set", patients=200, size=48), 6)
    words = ["--sources", str(listing), "--mirror", server.url, "--size", "32"]
    yield lambda target: ["nih", str(target), *words]
    server.http.shutdown()


def start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "data_prep", *words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def finish(words: list[str]) -> None:
    running = start(words)
    assert running.wait(timeout=300) == 0


def called_complete(target: Path) -> set[str]:
    """The files of a folder that have been promised to be there: all, or those of done archives."""
    note = target / "prepared.json"
    if note.exists() and json.loads(note.read_text())["complete"]:
        return {name for name in digest(target) if not name.startswith(".fetching")}
    archives = json.loads(note.read_text()).get("archives", {}) if note.exists() else {}
    manifest = (target / "manifest.csv").read_text().splitlines() if archives else []
    rows = [line.split(",") for line in manifest[1:]]
    promised = {row[1] for row in rows if len(row) == 8 and row[4] in archives}
    assert len(promised) == sum(archives.values())
    return promised


def images_in(target: Path) -> int:
    return sum(1 for _ in target.glob("images/*.png"))


@pytest.mark.parametrize("kind", ["resize", "nih"])
def test_a_cut_at_a_random_moment(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    command: Command = request.getfixturevalue(kind)
    finish(command(tmp_path / "undisturbed"))
    expected = digest(tmp_path / "undisturbed")
    total = images_in(tmp_path / "undisturbed")
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    moment, image = rng.randint(0, total + 1), tmp_path / "cut.img"
    with disk(tmp_path) as before:
        target = before.folder / "small"
        running = start(command(target))
        while running.poll() is None and images_in(target) < moment:
            time.sleep(0.001)
        cut(before, image, running, names_first=rng.random() < 0.7)
    with mounted(image, tmp_path / "after") as after:
        target = after.folder / "small"
        found, where = digest(target), f"seed {seed}, cut at {moment} images"
        for name in called_complete(target):
            assert found[name] == expected[name], f"{name} is damaged: {where}"
        finish(command(target))
        assert digest(target) == expected, where


@pytest.mark.parametrize("kind", ["resize", "nih"])
def test_a_cut_right_after_the_end(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    command: Command = request.getfixturevalue(kind)
    with disk(tmp_path) as before:
        finish(command(before.folder / "small"))
        expected = digest(before.folder / "small")
        image = cut(before, tmp_path / "after.img")
    with mounted(image, tmp_path / "after") as after:
        assert digest(after.folder / "small") == expected
