"""Rows of one notebook in other kernels: Keras on two backends stand beside each other."""

from pathlib import Path

import pytest
import records

from helpers.frameworks import rows_of
from helpers.results import comparison, report
from helpers.results.charts import style

NAMES = ["Keras", "Keras on JAX"]


@pytest.fixture(name="batch")
def batch_fixture(tmp_path: Path) -> Path:
    """A batch of the two, and of somebody's own copy of the notebook on JAX."""
    for number, row in enumerate(rows_of("Keras_MultiGPU")):
        speed = 50.0 + 10 * number
        made = records.make("Keras", notebook=row.notebook, kernel=row.kernel, speed=speed)
        records.save(tmp_path, made)
    own = records.make("Keras", notebook="Keras_MultiGPU_no_flip", kernel="jax")
    records.save(tmp_path, own)
    return tmp_path


def test_each_has_its_name_and_is_no_repeat_of_another(batch: Path) -> None:
    compared = comparison.load(batch)
    assert [entry.label for entry in compared.entries] == [
        "Keras", "Keras on JAX", "Keras on JAX no flip",
    ]  # fmt: skip
    assert {len(entries) for entries in comparison.repeats(compared.entries).values()} == {1}
    assert sorted(path.name for path in batch.iterdir()) == [
        "Keras_MultiGPU-2x",
        "Keras_MultiGPU-jax-2x",
        "Keras_MultiGPU_no_flip-2x",
    ]


def test_they_share_colour_and_marker_and_no_line() -> None:
    lines = [style.line_of(name, NAMES) for name in NAMES]
    assert len({line["color"] for line in lines}) == len({line["marker"] for line in lines}) == 1
    assert len({line["ls"] for line in lines}) == len(NAMES)


def test_the_report_has_both(batch: Path) -> None:
    page = report.write([batch]).read_text(encoding="utf-8")
    for name in NAMES:
        assert f">{name}<" in page or f"{name}, 2 devices" in page, name
