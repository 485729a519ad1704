"""Where things lie: the checkout and its folders for data, runs and environments."""

from pathlib import Path

from data_prep.files import sync_file, write_whole

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
DATA = ROOT / "data"
RUNS = ROOT / "runs"
VENVS = ROOT / ".venvs"


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that a reader sees the old file or the new one, never half.

    Nor after a power cut. Who may read it, the umask says, as of any other file.

    Raises:
        OSError: naming ``path``; the old file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode(), durable=True)


def replace(temporary: Path, path: Path) -> None:
    """Give the written file ``temporary`` the name ``path``, once its contents are on the disk.

    A name can reach the disk before what is in the file does: a power cut would leave it empty.
    """
    sync_file(temporary)
    temporary.replace(path)
    sync_file(path.parent)
