"""Find the images and archives of an earlier run of `data-prep nih` that can be reused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from data_prep import manifest
from data_prep.files import in_batches, map_in_processes, read_json, sync_filesystem, write_json
from data_prep.manifest import Row
from data_prep.nih_archives import ArchiveSources
from data_prep.prepared_folder import PreviousState, target_file

#: Images checked in one batch.
BATCH = 256


def reusable_rows(
    target: Path, before: PreviousState, ending: str, num_workers: int | None
) -> dict[str, Row]:
    """Return the rows, by image, of reusable and of unreadable images.

    In an incomplete folder every byte is checked, because a power cut may have lost some.
    """
    rows = [
        row
        for row in before.rows.values()
        if row.problem or row.file == target_file(row.image, ending)
    ]
    work = partial(_reusable_of_batch, target=target, thorough=not before.complete)
    good = map_in_processes(work, in_batches(rows, BATCH), num_workers)
    return {row.image: row for some in good for row in some}


def _reusable_of_batch(rows: Sequence[Row], *, target: Path, thorough: bool) -> list[Row]:
    return [
        row for row in rows if row.problem or manifest.file_matches(target, row, thorough=thorough)
    ]


def finished_archives(
    sources: ArchiveSources,
    before: PreviousState,
    rows: dict[str, Row],
    staging: Path,
    labels_sha256: str,
) -> set[str]:
    """Return the archives that need not be read again: all of their images are reusable.

    `labels_sha256` is the digest of the label file, which selects the images; `rows` are the
    reusable rows.
    """
    have = Counter(row.source for row in rows.values())
    gave = Counter(row.source for row in before.rows.values())
    done = set()
    for remote in sources.archives:
        mark = _mark_file(staging, remote.name)
        wanted = {"images": have[remote.name], "labels": labels_sha256}
        if before.complete and gave[remote.name] == have[remote.name]:
            write_json(mark, wanted)
        if read_json(mark) == wanted:
            done.add(remote.name)
        else:
            mark.unlink(missing_ok=True)
    return done


def mark_archive_finished(
    name: str,
    rows: dict[str, Row],
    staging: Path,
    labels_sha256: str,
    folders: Iterable[Path | None],
) -> None:
    """Record that an archive is no longer needed, once all of its images are on the disk."""
    for folder in folders:
        if folder is not None:
            sync_filesystem(folder)
    images = sum(row.source == name for row in rows.values())
    write_json(_mark_file(staging, name), {"images": images, "labels": labels_sha256})


def _mark_file(staging: Path, name: str) -> Path:
    return staging / f"{name}.done"
