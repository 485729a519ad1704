"""Fetching one large file over a line that may break, and knowing that it is the right one."""

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
    """The line broke, the server is tired or out of reach: worth another try."""


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch: what it is called, where it is, and what is known of it."""

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
    told: Callable[[int], None] = lambda count: None,
    stop: threading.Event | None = None,
) -> Path:
    """Fetch a file into a folder and return its path; a file that is there already is kept.

    What arrives goes into `NAME.part`; after a cut, in this run or the last, the transfer goes on
    at the byte it had reached, or from the start where the server cannot do that. Only when all is
    there and the checksum (where known) is right does the file get its name. A wrong checksum gets
    one more try from the start. `tries` counts attempts in a row that brought nothing, with `pause`
    seconds before the second, doubled each time. `told` hears of each number of bytes that arrived
    (negative when some are thrown away).

    Raises `DataError`: not found, out of reach, a wrong checksum twice, a full disk.
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
        told(part.stat().st_size)
    while True:
        had = part.stat().st_size if part.exists() else 0
        try:
            _transfer(remote, part, timeout, told, stop)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise DataError(
                    f"{remote.url}: the server answers {error.code} {error.reason};"
                    f" {remote.name} may have moved: name a mirror or a folder that has it"
                ) from None
            problem = f"the server answers {error.code} {error.reason}"
        except ConnectionLost as error:
            problem = str(error)
        except (ValueError, OverflowError) as error:  # brackets left open, a port beyond all
            raise DataError(f"{remote.url}: not an address to fetch from ({error})") from None
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                raise DataError(f"{part}: cannot be written ({error.strerror})") from None
            raise DataError(
                f"{folder}: the disk is full; what has arrived of {remote.name} is kept:"
                " free some space and run the same command again to continue"
            ) from None
        else:
            if remote.md5 is None or md5_of(part) == remote.md5:
                sync_file(part)  # a power cut must not leave the name without the bytes
                part.replace(to)
                return to
            wrong += 1
            told(-part.stat().st_size)
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
                f"{remote.url}: {problem}, {failures} times in a row; what has arrived of"
                f" {remote.name} is kept: run the same command again to continue"
            )
        if stop.wait(pause * 2 ** (failures - 1)):
            raise Cancelled


def _transfer(
    remote: RemoteFile,
    part: Path,
    timeout: float,
    told: Callable[[int], None],
    stop: threading.Event,
) -> None:
    """One request; returns when the file is complete, raises when the line breaks."""
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
            told(-had)
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
            told(-had)  # a server without ranges sends the whole file again
        length = answer.headers.get("Content-Length")
        expected = start + int(length) if length and length.isdecimal() else None
        with part.open("ab" if start else "wb") as file:
            while chunk := _receive(partial(answer.read, CHUNK_BYTES)):
                file.write(chunk)
                told(len(chunk))
                if stop.is_set():
                    raise Cancelled
            size = file.tell()
    if expected is not None and size < expected:
        raise ConnectionLost(f"the connection broke after {size:,} of {expected:,} bytes")
    if expected is None and remote.bytes is not None and size < remote.bytes:
        raise ConnectionLost(f"the connection broke after {size:,} of {remote.bytes:,} bytes")


def _receive(receive: Callable[[], Any]) -> Any:
    """What `receive` gives; every error of the line, also one of TLS, as `ConnectionLost`.

    Kept apart from writing what came, whose errors are of the same class (OSError) and mean
    something else.
    """
    try:
        return receive()
    except urllib.error.HTTPError:  # an answer, though not the file
        raise
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(str(getattr(error, "reason", error)) or type(error).__name__) from None


def md5_of(file: Path) -> str:
    """The MD5 of a file, as hexadecimal digits."""
    digest = hashlib.md5(usedforsecurity=False)
    with open_regular(file) as data:
        while chunk := data.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def discard(folder: Path, name: str) -> None:
    """Remove a fetched file and what may be left of an unfinished one."""
    for path in (folder / name, folder / f"{name}.part"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
