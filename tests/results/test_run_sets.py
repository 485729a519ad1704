"""Sets of runs are named in as few words as say which they are."""

from pathlib import Path

import pytest
import records

from helpers.results import comparison, run_sets
from helpers.results.comparison import Comparison


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """PyTorch and Keras on 1 and 2 devices, Chainer on 2."""
    folder = tmp_path_factory.mktemp("batch")
    for name, counts in (("PyTorch", (1, 2)), ("Keras", (1, 2)), ("Chainer", (2,))):
        for count in counts:
            records.save(folder, records.make(name, count))
    return comparison.load(folder)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ("PyTorch 1, PyTorch 2, Keras 1, Keras 2, Chainer 2", "every run"),
        ("PyTorch 2, Keras 2, Chainer 2", "every run on 2 devices"),
        ("PyTorch 1, Keras 1", "every run on 1 device"),
        ("PyTorch 1, PyTorch 2, Chainer 2", "PyTorch, Chainer"),
        ("PyTorch 2, Chainer 2", "Chainer; PyTorch, 2 devices"),
        ("Keras 1", "Keras, 1 device"),
        ("Chainer 2", "Chainer"),
        ("", ""),
    ],
)
def test_runs_are_named_by_what_they_have_in_common(
    compared: Comparison, runs: str, said: str
) -> None:
    wanted = {tuple(run.split()) for run in runs.split(", ") if run}
    chosen = [e for e in compared.entries if (e.label, str(e.devices)) in wanted]
    assert run_sets.named(chosen, compared.entries) == said


def test_one_run_alone_is_named(tmp_path: Path) -> None:
    entries = records.load(tmp_path, records.make("PyTorch")).entries
    assert run_sets.named(entries, entries) == "PyTorch"
