"""Download one large file over an unreliable connection and check its checksum."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.errors import DataError
from data_prep.files import DISK_FULL_ERRORS, open_regular, sync_file

CHUNK_BYTES = 1 << 20


class ConnectionLost(Exception):
    """The connection broke, or the server is overloaded or unreachable; another try may succeed."""


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its name, address, size and checksum."""

    name: str
    url: str
    bytes: int | None = None
    md5: str | None = None


class Cancelled(Exception):
    """Another part of the program has failed or was interrupted."""


def download(
    remote: RemoteFile,
    folder: Path,
    *,
    tries: int = 6,
    pause: float = 1.0,
    timeout: float = 60.0,
    on_progress: Callable[[int], None] = lambda count: None,
    stop: threading.Event | None = None,
) -> Path:
    """Download a file into a folder and return its path; a file that exists already is kept.

    Bytes are written to `NAME.part`. After an interruption, in this run or the last, the transfer
    resumes at the byte it had reached, or restarts if the server cannot resume. The file gets its
    name only when it is complete and the checksum (where known) is right; after a wrong checksum
    the download restarts once. `tries` limits the attempts in a row that bring no bytes, with
    `pause` seconds before the second, doubled each time. `on_progress` is called with each number
    of bytes that arrived (negative if bytes are discarded).
    """
    to = folder / remote.name
    part = folder / f"{remote.name}.part"
    if to.exists():
        return to
    if not remote.url.startswith(("http://", "https://")):
        raise DataError(f"{remote.url}: only http and https addresses are fetched")
    stop = stop or threading.Event()
    failures, wrong = 0, 0
    if part.exists():
        on_progress(part.stat().st_size)
    while True:
        had = part.stat().st_size if part.exists() else 0
        try:
            _transfer(remote, part, timeout, on_progress, stop)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise DataError(
                    f"{remote.url}: the server answers {error.code} {error.reason};"
                    f" {remote.name} may have moved: name a mirror or a folder that has it"
                ) from None
            problem = f"the server answers {error.code} {error.reason}"
        except ConnectionLost as error:
            problem = str(error)
        except (ValueError, OverflowError) as error:  # unclosed brackets, a port out of range
            raise DataError(f"{remote.url}: not an address to fetch from ({error})") from None
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                raise DataError(f"{part}: cannot be written ({error.strerror})") from None
            raise DataError(
                f"{folder}: the disk is full; the downloaded part of {remote.name} is kept:"
                " free some space and run the same command again to continue"
            ) from None
        else:
            if remote.md5 is None or md5_of(part) == remote.md5:
                sync_file(part)  # a power cut must not leave the name without the bytes
                part.replace(to)
                return to
            wrong += 1
            on_progress(-part.stat().st_size)
            part.unlink()
            if wrong == 2:
                raise DataError(
                    f"{remote.url}: {remote.name} arrived twice with a wrong checksum (expected"
                    f" MD5 {remote.md5}); it is not the NIH's file or is damaged on the server"
                )
            continue
        failures = failures + 1 if (part.stat().st_size if part.exists() else 0) <= had else 1
        if failures >= tries:
            raise DataError(
                f"{remote.url}: {problem}, {failures} times in a row; the downloaded part of"
                f" {remote.name} is kept: run the same command again to continue"
            )
        if stop.wait(pause * 2 ** (failures - 1)):
            raise Cancelled


def _transfer(
    remote: RemoteFile,
    part: Path,
    timeout: float,
    on_progress: Callable[[int], None],
    stop: threading.Event,
) -> None:
    """Make one request; return when the file is complete, raise if the connection breaks."""
    had = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": "data-prep"})
    if had:
        request.add_header("Range", f"bytes={had}-")
    try:
        answer = _receive(partial(urllib.request.urlopen, request, timeout=timeout))
    except urllib.error.HTTPError as error:
        if error.code == 416 and had:  # nothing after this byte: all is there, or too much is
            total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
            error.close()
            if total and int(total[1]) == had:
                return
            on_progress(-had)
            part.unlink()
            raise ConnectionLost("the part on disk was longer than the file") from None
        raise
    with answer:
        start = 0
        if answer.status == 206:
            span = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
            start = int(span[1]) if span else -1
            if start != had:
                raise ConnectionLost(f"asked for bytes from {had}, got them from {start}")
        elif had:
            on_progress(-had)  # a server without ranges sends the whole file again
        length = answer.headers.get("Content-Length")
        expected = start + int(length) if length and length.isdecimal() else None
        with part.open("ab" if start else "wb") as file:
            while chunk := _receive(partial(answer.read, CHUNK_BYTES)):
                file.write(chunk)
                on_progress(len(chunk))
                if stop.is_set():
                    raise Cancelled
            size = file.tell()
    if expected is not None and size < expected:
        raise ConnectionLost(f"the connection broke after {size:,} of {expected:,} bytes")
    if expected is None and remote.bytes is not None and size < remote.bytes:
        raise ConnectionLost(f"the connection broke after {size:,} of {remote.bytes:,} bytes")


def _receive(receive: Callable[[], Any]) -> Any:
    """Return the result of `receive`; raise `ConnectionLost` for every network error, also TLS.

    Errors of writing the received bytes have the same class (OSError) and another meaning, so they
    are handled elsewhere.
    """
    try:
        return receive()
    except urllib.error.HTTPError:  # an answer of the server, but not the file
        raise
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(str(getattr(error, "reason", error)) or type(error).__name__) from None


def md5_of(file: Path) -> str:
    """Return the MD5 of a file as hexadecimal digits."""
    digest = hashlib.md5(usedforsecurity=False)
    with open_regular(file) as data:
        while chunk := data.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def discard(folder: Path, name: str) -> None:
    """Remove a downloaded file and its unfinished `.part`, if they exist."""
    for path in (folder / name, folder / f"{name}.part"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
