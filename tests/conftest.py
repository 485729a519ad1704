"""What all tests need."""

import contextlib
import multiprocessing.util
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# What maintainers run is tested too; frameworks' tests share their networks with others.
HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "tools"), str(HERE / "kernels")]

# A user's experiments and images are left alone. What helpers.paths reads, all processes inherit.
for what in ("runs", "data"):
    os.environ[f"ROSETTA_{what.upper()}"] = str(HERE.parent / ".test-runs" / what)

# What a script starts in the background inherits an ignored Ctrl-C and SIGQUIT, and under nohup an
# ignored SIGHUP, and hands them on to every process it starts; tests that send them would test
# nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)

# Where one of its assertions fails, pytest shows the values, as it does for those in a test.
pytest.register_assert_rewrite("notebook_cells", "two_nodes")

# The same examples every time, whatever the machine's speed: a failure is then about the change.
# `pytest --hypothesis-profile=default` looks for new ones. Framework kernels have no hypothesis.
with contextlib.suppress(ImportError):
    import hypothesis

    hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
    hypothesis.settings.load_profile("repeatable")


OURS = ("rosetta-", "self-test-", "replicas-")
"""How the names of folders begin that are removed by whoever made them (``temporary.own``)."""


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A temporary folder for the tests and all they start, in which nothing of ours may be left.

    What frameworks leave there goes with pytest's own folder. Gives where to note what is in it,
    and after which test it was first seen.
    """
    folder = tmp_path_factory.mktemp("t", numbered=False)
    seen: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        yield seen
        until = time.monotonic() + 60  # what was killed takes its time
        while (left := _left(folder)) and time.monotonic() < until:
            time.sleep(0.1)
    told = [f"{name}, first seen after {seen.get(name, 'the last test')}" for name in left]
    assert not told, "\n".join(["left in the temporary folder:", *told])


@pytest.fixture(autouse=True)
def usable_cores() -> Iterator[None]:
    """A run that a test begins in this process is pinned to its devices' cores; the next is not."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", ""))
        yield
    if before is not None and os.sched_getaffinity(0) != before:
        os.sched_setaffinity(0, before)


DRAWN = {"classes", "report_browser", "report_numbers", "strange_records"}
"""The tests whose reports have charts, ``test_<name>.py``."""


@pytest.fixture(autouse=True, scope="module")
def without_charts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Most tests of the report read its words: drawing takes most of its time."""
    name = request.path.stem.removeprefix("test_")
    if request.path.parent.name != "results" or name in DRAWN:
        yield
        return
    from helpers.results.report import page  # frameworks' kernels draw no charts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_drawn", lambda chart: dict.fromkeys(("wide", "narrow"), ""))
        yield


@pytest.fixture(autouse=True)
def note_what_is_left(
    request: pytest.FixtureRequest, temporary_folder: dict[str, str]
) -> Iterator[None]:
    yield
    for path in Path(tempfile.gettempdir()).iterdir():
        temporary_folder.setdefault(path.name, request.node.nodeid)


def _left(folder: Path) -> list[str]:
    own = Path(multiprocessing.util.get_temp_dir())
    in_use = own.relative_to(folder).parts[0] if own.is_relative_to(folder) else ""
    names = (path.name for path in folder.iterdir())
    return sorted(name for name in names if name.lstrip(".").startswith(OURS) and name != in_use)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow or for ranks, unless markers are asked for, as `make soak` does."""
    if config.getoption("-m"):
        return
    for_ranks = [item for item in items if item.get_closest_marker("on_ranks")]
    config.hook.pytest_deselected(items=for_ranks)
    items[:] = [item for item in items if item not in for_ranks]
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="minutes; run with -m slow"))
