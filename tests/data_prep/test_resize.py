"""Resizing: right pixels, whole files, and going on after anything that stops it."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_prep_tools import (
    ROOT,
    command,
    digest,
    make_folder,
    quiet,
    start,
    table_of,
    the_line,
    wait_until,
)
from PIL import Image

from data_prep import DataError, read_grey, resize_folder
from data_prep.nih_pipeline import prepare_nih
from data_prep.packed import pack_folder
from data_prep.verify import verify_folder


def test_a_data_folder_becomes_a_smaller_one(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set", size=40)
    before = digest(source)
    made = quiet(source, tmp_path / "small", size=24)
    assert (made["images"], made["written"], made["skipped"]) == (24, 24, 0)
    assert digest(source) == before
    small = table_of(tmp_path / "small")
    assert small.drop(columns="path").equals(table_of(source).drop(columns="path"))
    for path, original in zip(small["path"], table_of(source)["path"], strict=True):
        with Image.open(path) as image, Image.open(original) as large:
            assert (image.mode, image.size, image.format) == ("L", (24, 24), "PNG")
            expected = np.asarray(large.resize((24, 24), Image.Resampling.BILINEAR), dtype=int)
            assert np.abs(np.asarray(image, dtype=int) - expected).max() <= 1
    note = json.loads((tmp_path / "small" / "prepared.json").read_text())
    assert note["complete"] is True and note["size"] == 24 and note["images"] == 24
    assert note["format"] == "png" and note["source"] == str(source.resolve()) and note["tool"]


def test_a_plain_folder_with_subfolders(tmp_path: Path) -> None:
    source = tmp_path / "pictures"
    (source / "deep").mkdir(parents=True)
    grey = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    grey.save(source / "a.png")
    grey.convert("RGB").save(source / "a.jpg")
    grey.save(source / "deep" / "b.BMP")
    (source / "notes.txt").write_text("not an image")
    made = quiet(source, tmp_path / "small", size=8)
    assert made["images"] == 3
    names = set(digest(tmp_path / "small"))
    assert names == {"a.png", "a.png.png", "deep/b.png", "prepared.json", "manifest.csv"}


KINDS = ["L", "RGB", "RGBA", "LA", "P", "1", "I;16"]


@pytest.mark.parametrize("mode", KINDS)
def test_every_kind_of_png_is_read_as_grey(tmp_path: Path, mode: str) -> None:
    ramp = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (8, 1))
    if mode == "I;16":
        image = Image.fromarray(ramp.astype(np.uint16) * 257)
    elif mode == "1":
        ramp = np.where(ramp > 127, 255, 0).astype(np.uint8)
        image = Image.fromarray(ramp).convert("1")
    elif mode == "P":
        image = Image.fromarray(255 - ramp)
        image.putpalette([255 - at // 3 for at in range(3 * 256)])
    else:
        image = Image.fromarray(ramp).convert(mode)
        if mode in ("RGBA", "LA"):
            image.putalpha(Image.fromarray(np.full_like(ramp, 7)))
    image.save(tmp_path / "x.png")
    read = read_grey(tmp_path / "x.png")
    assert read.dtype == np.uint8 and read.shape == (8, 64)
    assert np.array_equal(read, ramp)


def test_jpeg(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set", size=40)
    made = quiet(source, tmp_path / "small", size=24, format="jpeg", quality=95)
    assert made["format"] == "jpeg" and made["quality"] == 95
    small = table_of(tmp_path / "small")
    assert small["image"].tolist() == table_of(source)["image"].tolist()
    assert all(path.endswith(".jpg") for path in small["path"])
    quiet(source, tmp_path / "png", size=24)
    for lossy, exact in zip(small["path"], table_of(tmp_path / "png")["path"], strict=True):
        with Image.open(lossy) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "L", (24, 24))
        difference = read_grey(lossy).astype(int) - read_grey(exact).astype(int)
        assert np.abs(difference).mean() < 6
    with pytest.raises(DataError, match="another format"):
        quiet(source, tmp_path / "small", size=24)
    with pytest.raises(DataError, match="quality is 0"):
        quiet(source, tmp_path / "x", format="jpeg", quality=0)
    with pytest.raises(DataError, match="format is 'gif'; use"):
        quiet(source, tmp_path / "x", format="gif")


def test_refusals_exit_2(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set")
    small = tmp_path / "small"
    (tmp_path / "link").symlink_to(source)
    for same in (source, tmp_path / "link"):
        assert "the source itself" in the_line(command("resize", source, same))
    quiet(source, small, size=8)
    with pytest.raises(DataError, match="another size"):
        quiet(source, small, size=9)
    with pytest.raises(DataError, match="inside the other"):
        quiet(source, source / "small")
    with pytest.raises(DataError, match="does not exist"):
        quiet(tmp_path / "nowhere", tmp_path / "x")
    with pytest.raises(DataError, match="contains other files"):
        quiet(small, source)
    with pytest.raises(DataError, match="size is 0"):
        quiet(source, tmp_path / "x", size=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no label file and no image"):
        quiet(tmp_path / "empty", tmp_path / "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="lies under a file"):
        quiet(source, tmp_path / "file")
    assert not (tmp_path / "x").exists()


def test_ctrl_c_is_tidy(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set", patients=150, size=300)
    target = tmp_path / "small"
    running = start("resize", source, target, "--size", 200)
    wait_until(lambda: sum(1 for _ in target.glob("images/*.png")) >= 30, running)
    os.killpg(running.pid, signal.SIGINT)  # a terminal sends it to every process of the command
    _, errors = running.communicate(timeout=300)
    assert running.returncode == 130, errors
    assert b"interrupted; finished images are kept" in errors and b"Traceback" not in errors
    assert not list(target.rglob(".*"))
    assert command("resize", source, target, "--size", 200).returncode == 0
    assert len(table_of(target)) == 300


def test_workers_that_cannot_be_started_are_one_line(tmp_path: Path) -> None:
    """The pool launches all at once; those it had started waited for work for ever."""
    make_folder(tmp_path / "mine")
    words = ("resize", tmp_path / "mine", tmp_path / "small", "--size", "8")
    done = subprocess.run(
        [sys.executable, "-m", "data_prep", *words, "--num-workers", "100"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    line = the_line(done)
    assert "100 worker processes cannot be started (Too many open files)" in line
    assert "fewer --num-workers" in line
    assert command(*words).returncode == 0


def test_a_folder_whose_name_is_not_text_is_a_folder(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff \n"))
    make_folder(odd / "mine")
    resize_folder(odd / "mine", odd / "small", size=8, progress=False)
    pack_folder(odd / "small", odd / "packed", progress=False)
    assert not verify_folder(odd / "small", progress=False).problems
    assert not verify_folder(odd / "packed", progress=False).problems


@pytest.mark.parametrize("where", ["small/in", "."])
def test_originals_do_not_lie_among_the_small_ones(tmp_path: Path, where: str) -> None:
    """In the same folder each original was overwritten by its own small image."""
    with pytest.raises(DataError, match="the originals would be inside"):
        prepare_nih(tmp_path / "small", keep_originals=tmp_path / where, progress=False)
