"""The filesystem that images are read from, as the system's list of mounts tells it."""

from pathlib import Path

import pytest

from helpers.training import filesystem

LINES = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:41 / {here}/home rw shared:2 - autofs systemd-1 rw
41 40 0:42 / {here}/home rw shared:3 - nfs4 server:/home rw
42 22 0:43 / {here}/a\\040lake rw - lustre server:/lake rw
43 22 0:44 / {here}/ssh rw - fuse.sshfs me@there: rw
44 41 259:2 / {here}/home/scratch rw - xfs /dev/nvme0n1 rw
"""


@pytest.mark.parametrize(
    ("place", "kind", "shared"),
    [
        ("elsewhere", "ext4", False),
        ("home/nih-264", "nfs4", True),
        ("homeless", "ext4", False),
        ("a lake/nih-264", "lustre", True),
        ("ssh", "fuse.sshfs", True),
        ("home/scratch/nih-264", "xfs", False),
        ("link", "xfs", False),
    ],
)
def test_the_nearest_mount_counts(
    place: str, kind: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(LINES.format(here=tmp_path))
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)
    (tmp_path / "link").symlink_to(tmp_path / "home" / "scratch")
    assert filesystem.of(tmp_path / place) == {"kind": kind, "shared": shared}


def test_a_system_without_such_a_list_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    assert filesystem.of(tmp_path) is None
