"""From archives on a server to small files: broken lines, bad servers, hostile archives, kills."""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path

import pytest
from data_prep_server import Server, fetch, no_pause_fixture, publish, server_fixture
from data_prep_tools import (
    command,
    digest,
    make_folder,
    start,
    table_of,
    the_line,
    wait_until,
)

import data_prep.nih_pipeline
from data_prep import DataError, read_grey, resize_folder
from data_prep.download import RemoteFile, download, nih_sources

__all__ = ["no_pause_fixture", "server_fixture"]


def test_the_list_of_the_nih() -> None:
    sources = nih_sources()
    assert [remote.name for remote in sources.archives] == [
        f"images_{number:03d}.tar.gz" for number in range(1, 13)
    ]
    assert all(remote.md5 and len(remote.md5) == 32 for remote in sources.archives)
    assert 45e9 < sum(remote.bytes or 0 for remote in sources.archives) < 46e9


def test_the_whole_way(tmp_path: Path, server: Server) -> None:
    source = make_folder(tmp_path / "set")
    listing = publish(server.folder, source)
    made = fetch(listing, server, tmp_path / "small")
    assert (made["images"], made["written"], made["rejected"], made["absent"]) == (24, 24, [], 0)
    resize_folder(source, tmp_path / "resized", size=8, progress=False)
    small, resized = digest(tmp_path / "small"), digest(tmp_path / "resized")
    images = [name for name in resized if name.startswith("images/")]
    assert {name: small[name] for name in images} == {name: resized[name] for name in images}
    beside = {"Data_Entry_2017_v2020.csv", "prepared.json", "manifest.csv"}
    assert set(small) == {*images, *beside}
    assert len(table_of(tmp_path / "small")) == 24
    asked = len(server.asked)
    assert fetch(listing, server, tmp_path / "small")["written"] == 0
    assert len(server.asked) == asked  # nothing is fetched again


def test_a_folder_of_archives_and_originals(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "set")
    (tmp_path / "archives").mkdir()
    listing = publish(tmp_path / "archives", source)
    before = digest(tmp_path / "archives")
    done = command(
        "nih", tmp_path / "small", "--archives", tmp_path / "archives", "--sources", listing,
        "--size", 8, "--keep-originals", tmp_path / "large",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert digest(tmp_path / "archives") == before
    assert digest(tmp_path / "large" / "images") == digest(source / "images")
    (tmp_path / "archives" / "images_002.tar.gz").write_bytes(b"something else")
    line = the_line(
        command("nih", tmp_path / "b", "--archives", tmp_path / "archives", "--sources", listing)
    )
    assert "images_002.tar.gz" in line and "wrong checksum" in line


def test_a_wrong_checksum(tmp_path: Path, server: Server) -> None:
    source = make_folder(tmp_path / "set")
    listing = publish(server.folder, source)
    good = (server.folder / "images_002.tar.gz").read_bytes()
    (server.folder / "images_002.tar.gz").write_bytes(good[:-1] + b"?")
    with pytest.raises(DataError, match=r"images_002.tar.gz arrived twice with a wrong checksum"):
        fetch(listing, server, tmp_path / "small")
    assert not list((tmp_path / "small").rglob("images_002*"))
    # One bad transfer only: the second try, from the start, completes.
    (server.folder / "images_002.tar.gz").write_bytes(good)
    part = tmp_path / "small" / ".fetching" / "images_002.tar.gz.part"
    part.write_bytes(b"?" + good[1:1000])
    assert fetch(listing, server, tmp_path / "small")["images"] == 24


@pytest.mark.parametrize(("code", "said"), [(404, "404"), (503, "in a row")])
def test_a_server_that_says_no(tmp_path: Path, server: Server, code: int, said: str) -> None:
    listing = publish(server.folder, make_folder(tmp_path / "set"))
    server.manners["code"] = code
    line = the_line(
        command("nih", tmp_path / "small", "--sources", listing, "--mirror", server.url)
    )
    assert said in line and server.url in line


def test_a_disk_too_small_is_refused_beforehand(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = publish(server.folder, make_folder(tmp_path / "set"))
    usage = type(data_prep.nih_pipeline.shutil.disk_usage(tmp_path))(10**6, 10**6 - 1000, 1000)
    monkeypatch.setattr(data_prep.nih_pipeline.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="GB are needed"):
        fetch(listing, server, tmp_path / "small")
    assert [path for path, _ in server.asked] == ["/Data_Entry_2017_v2020.csv"]


def test_images_in_no_archive_and_bad_images(tmp_path: Path, server: Server) -> None:
    source = make_folder(tmp_path / "set")
    (source / "images" / "00000002_000.png").write_bytes(b"no image")
    (source / "images" / "00000003_000.png").unlink()
    listing = publish(server.folder, source)
    made = fetch(listing, server, tmp_path / "small")
    assert (made["absent"], [name for name, _ in made["rejected"]]) == (1, ["00000002_000.png"])
    assert len(table_of(tmp_path / "small")) == 22


def test_a_kill_at_a_random_moment(tmp_path: Path, server: Server) -> None:
    source = make_folder(tmp_path / "set", patients=60, size=64)
    listing = publish(server.folder, source)
    fetch(listing, server, tmp_path / "undisturbed")
    server.manners["pause"] = 0.003
    target = tmp_path / "small"
    words = ("nih", target, "--sources", listing, "--mirror", server.url, "--size", 8)
    running = start(*words)
    wait_until((target / "prepared.json").exists, running)
    time.sleep(random.uniform(0, 0.6))
    running.kill()
    running.communicate()
    for path in target.glob("images/*.png"):
        assert read_grey(path).shape == (8, 8)  # never half a file under its name
    assert command(*words).returncode == 0
    assert digest(target) == digest(tmp_path / "undisturbed")


def test_cut_lines_are_taken_up_where_they_broke(tmp_path: Path, server: Server) -> None:
    data = random.Random(1).randbytes(100_000)
    (server.folder / "x").write_bytes(data)
    server.manners["cut after"] = 30_000
    heard: list[int] = []
    remote = RemoteFile("x", f"{server.url}/x", None, hashlib.md5(data).hexdigest())
    assert download(remote, tmp_path, on_progress=heard.append).read_bytes() == data
    assert [span for _, span in server.asked[1:]] == [f"bytes={n}0000-" for n in (3, 6, 9)]
    assert sum(heard) == len(data) and not (tmp_path / "x.part").exists()


def test_a_server_without_ranges(tmp_path: Path, server: Server) -> None:
    data = random.Random(2).randbytes(50_000)
    (server.folder / "x").write_bytes(data)
    (tmp_path / "x.part").write_bytes(data[:20_000])
    server.manners["no ranges"] = True
    heard: list[int] = []
    download(RemoteFile("x", f"{server.url}/x"), tmp_path, on_progress=heard.append)
    assert (tmp_path / "x").read_bytes() == data and sum(heard) == len(data)
    server.manners["cut after"] = 20_000  # it always breaks: tried, then given up with one line
    with pytest.raises(DataError, match="in a row"):
        download(RemoteFile("y", f"{server.url}/x"), tmp_path, tries=3)
    assert (tmp_path / "y.part").exists() and not (tmp_path / "y").exists()


@pytest.mark.parametrize("more", [0, 5000])
def test_a_part_that_is_whole_or_too_long(tmp_path: Path, server: Server, more: int) -> None:
    data = random.Random(3).randbytes(10_000)
    (server.folder / "x").write_bytes(data)
    (tmp_path / "x.part").write_bytes(data + bytes(more))
    download(RemoteFile("x", f"{server.url}/x"), tmp_path)
    assert (tmp_path / "x").read_bytes() == data


PORTAL = b"<!DOCTYPE html>\n<html><body>Welcome! Please log in.</body></html>\n"


def test_a_portals_page_is_not_kept_as_the_label_file(tmp_path: Path, server: Server) -> None:
    listing = publish(server.folder, make_folder(tmp_path / "set"))
    labels = server.folder / "Data_Entry_2017_v2020.csv"
    good = labels.read_bytes()
    fetched = tmp_path / "small" / ".fetching" / labels.name
    labels.write_bytes(PORTAL)
    with pytest.raises(DataError, match="the server sent no label file"):
        fetch(listing, server, tmp_path / "small")
    assert not fetched.exists()
    labels.write_bytes(good)
    assert fetch(listing, server, tmp_path / "small")["images"] == 24


def test_a_users_own_label_file_is_never_removed(tmp_path: Path, server: Server) -> None:
    listing = publish(server.folder, make_folder(tmp_path / "set"))
    own = tmp_path / "Data_Entry_2017.csv"
    own.write_bytes(PORTAL)
    with pytest.raises(DataError, match="no column 'Image Index'"):
        fetch(listing, server, tmp_path / "small", labels=own)
    assert own.read_bytes() == PORTAL
