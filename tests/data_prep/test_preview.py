"""The page that shows a data set before training: its numbers, and that it stays small and safe."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path

import pytest
from data_prep_tools import command, lay, make_folder, picture
from PIL import Image

FOLDER = ("--reader", "imagefolder")


class Page:
    """The rows of the tables, what is read, and the images."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        rows = re.findall("<tr>(.*?)</tr>", self.text, re.DOTALL)
        self.rows = [[*map(html.unescape, re.findall("<t[dh]>(.*?)</t[dh]>", row))] for row in rows]
        self.shown = html.unescape(re.sub("<[^>]*>", "", self.text))
        self.images = re.findall('src="([^"]*)"', self.text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three published splits: a patient in two splits, a copy, a damaged image and a text file."""
    for at, split in enumerate(("train", "val", "test")):
        for name in ("dog", "<b>cat&"):
            for number in range(4):
                place = tmp_path / "in" / split / name / f"p{at}{number}.png"
                picture(place, (20, 30 + at, 3), seed=100 * at + 10 * len(name) + number)
    (tmp_path / "in" / "test" / "dog" / "p00-again.png").write_bytes(
        (tmp_path / "in" / "train" / "dog" / "p00.png").read_bytes()
    )
    (tmp_path / "in" / "val" / "dog" / "p13.png").write_bytes(b"no image")
    (tmp_path / "in" / "val" / "dog" / "notes.txt").write_text("")
    return tmp_path / "in"


def test_the_page_shows_what_is_in_the_folder(folder: Path) -> None:
    done = command("preview", folder, *FOLDER, "--group", r"p\d+")
    assert done.returncode == 0, done.stderr
    output = folder.parent / "in-preview.html"
    assert done.stdout == f"{output}: 25 of 25 images sampled, 1 unreadable\n"
    page = Page(output)
    assert ["images", "25", "8", "8", "9"] in page.rows
    assert ["dog", "13", "4", "4", "5"] in page.rows
    assert ["<b>cat&", "12", "4", "4", "4"] in page.rows
    assert ["31 x 20", "7"] in page.rows and ["30 x 20", "9"] in page.rows
    assert "passed over: 1 .txt" in page.shown
    assert "the group p00 is in both train and test" in page.shown
    assert "val/dog/p13.png: cannot be read" in page.shown
    assert len(page.images) == 24
    data = base64.b64decode(page.images[0].removeprefix("data:image/jpeg;base64,"))
    assert Image.open(io.BytesIO(data)).size[1] == 20
    # Labels are text, and nothing is loaded from elsewhere.
    assert "<b>cat&" in page.shown and "<b>cat&" not in page.text
    assert not re.search(r"<(script|link|iframe)|https?://", page.text)


def test_the_sample_is_bounded_and_repeats(tmp_path: Path) -> None:
    folder = lay(tmp_path / "in", *(f"{'ab'[at % 2]}/{at}.png" for at in range(90)))
    words = ("preview", folder, *FOLDER, "--num-images", 24, "--seed", 3)
    for name in ("1.html", "2.html"):
        assert "24 of 90 images sampled" in command(*words, "--output", tmp_path / name).stdout
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()
    page = Page(tmp_path / "1.html")
    assert ["images", "90", "63", "9", "18"] in page.rows and ["4 x 4", "24"] in page.rows


def test_prepared_and_packed_folders(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set", patients=20)
    assert command("resize", source, tmp_path / "small", "--size", 8).returncode == 0
    assert command("pack", tmp_path / "small", tmp_path / "packed").returncode == 0
    for name in ("small", "packed"):
        words = ("preview", tmp_path / name, "--num-images", 3)
        assert "3 of 40 images sampled" in command(*words).stdout
        page = Page(tmp_path / f"{name}-preview.html")
        assert ["8 x 8", "3"] in page.rows
