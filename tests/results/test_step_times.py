"""The report's step times by rank, and the slow devices and ranks that it names."""

import json
from pathlib import Path

import records

from helpers.results import comparison, report, step_times


def test_the_report_names_slow_devices_and_ranks(tmp_path: Path) -> None:
    slow = records.make(cluster=records.world(virtual=False))
    slow["devices"]["flops_per_second"] = [2e12, 1e12]
    slow["training"]["step_times"] = [
        records.step_times(0.1, slowest=1),
        records.step_times(0.2, slowest=9),
    ]
    even = records.make("JAX")
    even["training"]["step_times"] = [records.step_times(0.05)]
    records.save(tmp_path, slow)
    records.save(tmp_path, even)
    records.save(tmp_path, records.make("Chainer"))  # an old record, without step times
    compared = comparison.load(tmp_path)
    (said,) = step_times.sentences(compared)
    name = slow["devices"]["names"][1]
    assert f": Device 1 (rank 1 on node1, {name}) is slow: a matrix product reaches" in said
    assert said.endswith(
        "50 % below the other device. Rank 1 on node1 was the slowest in 90 % of 10 steps: it "
        "waited least for gradients."
    )
    found = step_times.table(compared).frame
    assert found["p99"].tolist() == ["300", "600", "150"]
    assert found["rank"].tolist() == ["0 on node0", "1 on node1", "0"]
    assert found["devices"].tolist() == ["0", "1", "0, 1"]
    assert found["slowest"].tolist() == ["10 %", "90 %", "-"]
    page = report.write([tmp_path]).read_text(encoding="utf-8")
    assert "Slow devices and ranks" in page and "Step times, in ms" in page
    rows = json.loads(report.as_json(compared))["tables"]["step_times"]
    assert [row["slowest"] for row in rows] == [1, 9, None]
