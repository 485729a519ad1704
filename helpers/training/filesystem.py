"""Find the filesystem of a path, and whether other machines share it."""

import os
from pathlib import Path

from helpers.record.types import Filesystem

SHARED = (
    *("afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4"),
    *("ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "wekafs"),
)
"""Kinds that other machines read too, as all of FUSE's (``fuse.sshfs``) may."""
MOUNTS = Path("/proc/self/mountinfo")
"""A line a mount, of which the last one of a place counts."""


def of(path: str | os.PathLike[str]) -> Filesystem | None:
    """The filesystem of a file or folder; None where it is unknown, as on other systems."""
    place, found, longest = Path(os.path.realpath(path)), None, 0
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        about, _, mounted = line.partition(" - ")
        point = about.split(" ")[4]
        for escaped, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            point = point.replace(escaped, sign)
        if len(point) >= longest and place.is_relative_to(point):
            longest, found = len(point), mounted.split(" ")[0]
    if found is None:
        return None
    return {"kind": found, "shared": found in SHARED or found.startswith("fuse.")}
