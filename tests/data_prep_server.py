"""What the tests of fetching share: a server with manners, and a data folder as archives on it."""

from __future__ import annotations

import hashlib
import http.server
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import data_prep.download
from data_prep.download import nih_sources
from data_prep.nih_pipeline import prepare_nih


class Server:
    """Serves a folder as the NIH's server does, or worse, as `manners` say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manners: dict[str, Any] = {}
        self.asked: list[tuple[str, str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, to: http.server.BaseHTTPRequestHandler) -> None:
        span = to.headers.get("Range", "")
        self.asked.append((to.path, span))
        file = self.folder / to.path.lstrip("/")
        to.close_connection = True
        if code := self.manners.get("code", 0 if file.is_file() else 404):
            to.send_error(code)
            return
        data, start = file.read_bytes(), 0
        if span and not self.manners.get("no ranges"):
            start = int(span.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                to.send_response(416)
                to.send_header("Content-Range", f"bytes */{len(data)}")
                to.send_header("Content-Length", "0")
                to.end_headers()
                return
            to.send_response(206)
            to.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            to.send_response(200)
        to.send_header("Content-Length", str(len(data) - start))
        to.end_headers()
        sent = data[start:][: self.manners.get("cut after")]
        for at in range(0, len(sent), 4096):
            to.wfile.write(sent[at : at + 4096])
            time.sleep(self.manners.get("pause", 0))


@pytest.fixture(name="server")
def server_fixture(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "server")
    made.folder.mkdir()
    yield made
    made.http.shutdown()


@pytest.fixture(name="no_pause", autouse=True)
def no_pause_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        data_prep.download.download, "__kwdefaults__",
        {**(data_prep.download.download.__kwdefaults__ or {}), "pause": 0.01},
    )  # fmt: skip


def publish(place: Path, source: Path, archives: int = 3) -> Path:
    """A data folder as `archives` archives, a label file and a list of sources; the list's path."""
    files = sorted((source / "images").iterdir())
    entries = []
    for at in range(archives):
        name = f"images_{at + 1:03d}.tar.gz"
        with tarfile.open(place / name, "w:gz", compresslevel=1) as archive:
            for file in files[at::archives]:
                archive.add(file, f"images/{file.name}")
        data = (place / name).read_bytes()
        md5 = hashlib.md5(data).hexdigest()
        entries.append({"name": name, "url": "-", "bytes": len(data), "md5": md5})
    labels = "Data_Entry_2017_v2020.csv"
    (place / labels).write_bytes((source / "Data_Entry_2017.csv").read_bytes())
    listing = place / "list.json"
    label_file = {"name": labels, "url": "-", "bytes": None, "md5": None}
    listing.write_text(json.dumps({"label_file": label_file, "archives": entries}))
    return listing


def fetch(listing: Path, server: Server, target: Path, **options: Any) -> dict[str, Any]:
    sources = nih_sources(listing=listing, mirror=server.url)
    return prepare_nih(target, sources=sources, size=8, progress=False, **options)
