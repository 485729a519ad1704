"""Know the addresses of the NIH's files, download one, and read an archive."""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import requests
import urllib3

from data_prep.errors import DataError
from data_prep.files import DISK_FULL_ERRORS, open_regular, read_json, sync_file

try:
    from isal import igzip as gzip
except ImportError:  # the standard library gives the same bytes, more slowly
    import gzip  # type: ignore[no-redef]

#: The NIH's largest image has about 1.2 MB.
MAX_MEMBER_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as broken."""


class ConnectionLost(Exception):
    """The connection broke, or the server is overloaded; another try may succeed."""


class Cancelled(Exception):
    """Another part of the program has failed or was interrupted."""


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its name, address, size and checksum."""

    name: str
    url: str
    bytes: int | None = None
    md5: str | None = None


@dataclass
class ArchiveSources:
    """The files to download; `folder` is set if the archives are on this machine."""

    label_file: RemoteFile
    archives: Annotated[list[RemoteFile], msgspec.Meta(min_length=1)]
    folder: Path | None = None


def nih_sources(
    *,
    listing: str | os.PathLike[str] | None = None,
    mirror: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> ArchiveSources:
    """Return the addresses, sizes and checksums of the NIH's files.

    `listing` is a file in the format of `data_prep/sources.json`, `mirror` the address of a server
    folder that has files of the same names, `folder` a local one that contains the archives.
    """
    content = read_json(listing or Path(__file__).with_name("sources.json"))
    if content is None:
        raise DataError(f"{listing}: the list of sources is missing; check the path")
    try:
        found = msgspec.convert(content, ArchiveSources)
        for remote in (found.label_file, *found.archives):
            if not re.fullmatch(r"[^./][^/]*", remote.name) or not remote.name.isprintable():
                raise ValueError(f"{remote.name!r} is not a bare file name")
        if any(remote.md5 is None for remote in found.archives):
            raise ValueError("an archive without its md5")
    except ValueError as error:  # also msgspec's
        raise DataError(f"{listing}: not a list as sources.json ({error})") from None
    if mirror is not None:
        base = mirror.rstrip("/")
        found.label_file = replace(found.label_file, url=f"{base}/{found.label_file.name}")
        found.archives = [replace(one, url=f"{base}/{one.name}") for one in found.archives]
    if folder is not None:
        found.folder = Path(folder)
        here = any((found.folder / remote.name).is_file() for remote in found.archives)
        if not here and (zips := sorted(found.folder.glob("*.zip"))):
            raise DataError(
                f"{zips[0]}: a zip archive, as Kaggle has, instead of the NIH's"
                f" {found.archives[0].name}; unzip it, then run 'data-prep resize FOLDER TARGET'"
            )
    return found


def download(
    remote: RemoteFile,
    folder: Path,
    *,
    tries: int = 6,
    pause: float = 1.0,
    on_progress: Callable[[int], object] = lambda count: None,
    stop: threading.Event | None = None,
) -> Path:
    """Download a file into a folder and return its path; a file that exists already is kept.

    Bytes are written to `NAME.part`, and an interrupted transfer continues there. The file gets its
    name when it is complete and its checksum is right; after a wrong one it is fetched once more.
    `tries` limits the attempts in a row that bring no bytes, with `pause` seconds before the
    second, doubled each time. `on_progress` gets numbers of bytes (negative: discarded).
    """
    to, part = folder / remote.name, folder / f"{remote.name}.part"
    if to.exists():
        return to
    stop = stop or threading.Event()
    failures, wrong = 0, 0
    on_progress(_size(part))
    while True:
        had = _size(part)
        try:
            _transfer(remote, part, on_progress, stop)
        except ValueError as error:  # requests' errors about an address
            raise DataError(f"{remote.url}: not an http or https address ({error})") from None
        except (ConnectionLost, requests.RequestException, urllib3.exceptions.HTTPError) as error:
            problem = " ".join(str(error).split())
        except OSError as error:
            what = f"{part}: cannot be written ({error.strerror})"
            if error.errno in DISK_FULL_ERRORS:
                what = f"{folder}: the disk is full; free some space"
            raise DataError(f"{what}; run the same command again to continue") from None
        else:
            if remote.md5 is None or md5_of(part) == remote.md5:
                sync_file(part)  # a power cut must not leave the name without the bytes
                part.replace(to)
                return to
            wrong += 1
            _discard(part, on_progress)
            if wrong == 2:
                raise DataError(
                    f"{remote.url}: {remote.name} arrived twice with a wrong checksum (expected"
                    f" MD5 {remote.md5}); it is damaged or another file"
                )
            continue
        failures = failures + 1 if _size(part) <= had else 1
        if failures >= tries:
            raise DataError(
                f"{remote.url}: {problem}, {failures} times in a row; the downloaded part of"
                f" {remote.name} is kept: run the same command again to continue"
            )
        if stop.wait(pause * 2 ** (failures - 1)):
            raise Cancelled


def _transfer(
    remote: RemoteFile, part: Path, on_progress: Callable[[int], object], stop: threading.Event
) -> None:
    """Make one request; return when the file is complete, raise if the connection breaks."""
    had = _size(part)
    headers = {"User-Agent": "data-prep", "Accept-Encoding": "identity"}
    if had:
        headers["Range"] = f"bytes={had}-"
    certificates = ssl.get_default_verify_paths().cafile or True  # the machine's, with a proxy's
    with requests.get(
        remote.url, headers=headers, stream=True, timeout=TIMEOUT, verify=certificates
    ) as answer:
        said = f"the server answers {answer.status_code} {answer.reason}"
        span = answer.headers.get("Content-Range", "")
        if answer.status_code == 416 and had:  # nothing after this byte
            if span == f"bytes */{had}":
                return
            _discard(part, on_progress)
            raise ConnectionLost("the part on disk was longer than the file")
        if answer.status_code in (408, 429) or answer.status_code >= 500:
            raise ConnectionLost(said)
        if answer.status_code >= 400:
            raise DataError(f"{remote.url}: {said}; name a mirror or a folder with {remote.name}")
        if resumes := answer.status_code == 206:
            if not re.match(f"bytes {had}-", span):
                raise ConnectionLost(f"asked for bytes from {had}, got {span or 'others'}")
        elif had:
            _discard(part, on_progress)  # a server without ranges sends the whole file again
        with part.open("ab" if resumes else "wb") as file:
            while chunk := answer.raw.read1(CHUNK_BYTES):
                file.write(chunk)
                on_progress(len(chunk))
                if stop.is_set():
                    raise Cancelled
            size = file.tell()
    if remote.bytes is not None and size < remote.bytes:
        raise ConnectionLost(f"the connection broke after {size:,} of {remote.bytes:,} bytes")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _discard(part: Path, on_progress: Callable[[int], object]) -> None:
    on_progress(-_size(part))
    part.unlink()


def md5_of(file: Path) -> str:
    """Return the MD5 of a file as hexadecimal digits."""
    with open_regular(file) as data:
        found = hashlib.file_digest(data, "md5")  # type: ignore[arg-type]
    return found.hexdigest()


def iterate_members(
    archive: str | os.PathLike[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Yield bare name and bytes of each file of a .tar or .tar.gz whose bare name is `wanted`.

    Memory holds one file at a time. Links, devices and all other members are skipped.
    """
    archive = Path(archive)
    try:
        with open_regular(archive) as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream: Any = gzip.open(file) if packed else file  # noqa: SIM115
            with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as members:
                for member in members:
                    members.members = []  # type: ignore[attr-defined]  # tarfile keeps every header otherwise
                    name = member.name.rpartition("/")[2]
                    if not member.isreg() or not wanted(name):
                        continue
                    if not 0 <= member.size <= MAX_MEMBER_BYTES:
                        raise DataError(f"{archive}: {name} has {member.size:,} bytes, too many")
                    data = members.extractfile(member)
                    assert data is not None  # a regular file
                    yield name, data.read()
            while packed and stream.read(1 << 20):  # to gzip's checksum at the end
                pass
    except FileNotFoundError:
        raise DataError(f"{archive}: missing; check the path or download it") from None
    except DataError:
        raise
    except Exception as error:
        # On damaged headers tarfile raises ValueError, KeyError, RecursionError and more.
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{archive}: damaged or cut short ({text}); fetch it again") from None
