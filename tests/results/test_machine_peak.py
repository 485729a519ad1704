"""Training's FLOP/s beside a matrix product's, in the report."""

from pathlib import Path

import records

from helpers.results import comparison, machine_peak, report


def test_a_run_has_its_share_of_the_product_it_measured(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch", arithmetic=records.arithmetic(100.0)))
    slow = records.arithmetic(100.0, product=2e12)
    records.save(tmp_path, records.make("JAX", arithmetic=slow))
    records.save(tmp_path, records.make("Chainer"))  # an old record, without the section
    found = machine_peak.table_of(comparison.load(tmp_path)).frame
    # 125 images/s of 6 x 57,833,472 FLOPs
    assert found.loc["PyTorch, 2 devices"].to_dict() == {
        "images/s": "125",
        "training (GFLOP/s)": "43.4",
        "matrix product (GFLOP/s)": "50.0",
        "share": "87 % (80 to 94)",
    }
    assert found.loc["JAX, 2 devices", "share"] == "2 %"
    assert list(found.index) == ["PyTorch, 2 devices", "JAX, 2 devices"]


def test_without_any_the_report_has_no_such_table(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch"))
    assert "Share of the matrix-product rate" not in report.write([tmp_path]).read_text(
        encoding="utf-8"
    )
