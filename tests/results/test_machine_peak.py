"""Training's FLOP/s beside a matrix product's, in the report."""

from pathlib import Path

import records

from helpers.results import comparison, machine_peak, report


def test_all_runs_of_a_precision_have_a_share_of_its_fastest_product(tmp_path: Path) -> None:
    """Its own product would flatter a framework whose product is slow."""
    records.save(tmp_path, records.make("PyTorch", arithmetic=records.arithmetic(100.0)))
    quick = records.arithmetic(100.0, product=1e11)
    records.save(tmp_path, records.make("JAX", arithmetic=quick))
    other = records.make("Keras", arithmetic=records.arithmetic(100.0, product=2e12))
    other["recipe"]["precision"] = "bf16"
    records.save(tmp_path, other)
    records.save(tmp_path, records.make("Chainer"))  # an old record, without the section
    found = machine_peak.table_of(comparison.load(tmp_path)).frame
    # 125 images/s of 6 x 57,833,472 FLOPs
    assert found.loc["PyTorch fp32, 2 devices"].to_dict() == {
        "images/s": "125",
        "training (GFLOP/s)": "43.4",
        "matrix product (GFLOP/s)": "50.0",
        "share": "43 %",
    }
    assert found.loc["JAX fp32, 2 devices", "share"] == "43 %"
    assert found.loc["Keras bf16, 2 devices", "share"] == "2 %"
    assert len(found) == 3


def test_without_any_the_report_has_no_such_table(tmp_path: Path) -> None:
    records.save(tmp_path, records.make("PyTorch"))
    assert "Share of the matrix-product rate" not in report.write([tmp_path]).read_text(
        encoding="utf-8"
    )
