"""One file over a line that may break: taken up where it broke, and known to be the right one."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from data_prep_server import Server, fetch, no_pause_fixture, publish, server_fixture
from data_prep_tools import make_folder

from data_prep import DataError
from data_prep.download import RemoteFile, download

__all__ = ["no_pause_fixture", "server_fixture"]


def test_cut_lines_are_taken_up_where_they_broke(tmp_path: Path, server: Server) -> None:
    data = random.Random(1).randbytes(100_000)
    (server.folder / "x").write_bytes(data)
    server.manners["cut after"] = 30_000
    heard: list[int] = []
    remote = RemoteFile("x", f"{server.url}/x", None, hashlib.md5(data).hexdigest())
    assert download(remote, tmp_path, on_progress=heard.append).read_bytes() == data
    assert [span for _, span in server.asked] == [
        "", "bytes=30000-", "bytes=60000-", "bytes=90000-",
    ]  # fmt: skip
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
    with pytest.raises(
        DataError, match=r"the server sent no label file .*, and the file is removed"
    ):
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
