"""What all tests need."""

import contextlib
import signal
import sys
from pathlib import Path

import pytest

# What maintainers run is tested too.
sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked slow, unless markers are asked for, as `make soak` does."""
    if config.getoption("-m"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="minutes; run with -m slow"))
