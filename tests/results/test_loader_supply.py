"""What the loaders deliver beside what the devices take, and what to change first."""

import json
from pathlib import Path
from typing import Any

import pytest
import records

from helpers.results import comparison, loader_supply, report
from helpers.training import loader_advice


def run(framework: str = "PyTorch", *, supply: float, nodes: int = 1, **data: Any) -> Any:
    """On two devices that together take 125 images/s, with eight workers on eight cores."""
    loader = records.rounds(supply)
    content = records.make(framework, gpu=True, loader=loader)
    content |= {"cluster": records.world(nodes)} if nodes > 1 else {}
    content["hardware"]["usable_cores"] = 8
    content["data"] |= {"format": "packed", "loader_workers": 8} | data
    return content


def test_the_report_tells_how_many_devices_a_loader_feeds(tmp_path: Path) -> None:
    records.save(tmp_path, run(supply=219.0, format="png"))  # 3.5 devices
    records.save(tmp_path, run("Keras", supply=188.0, format="png"))  # 3.008
    records.save(tmp_path, run("JAX", supply=110.0, format="png"))
    records.save(tmp_path, run("Chainer", supply=110.0, nodes=2))
    compared = comparison.load(tmp_path)
    found = loader_supply.table(compared).frame
    assert found["devices fed"].to_dict() == {
        "PyTorch, 2 devices": "3",
        "Keras, 2 devices": "3 (2 to 3)",
        "JAX, 2 devices": "1",
        "Chainer 2 x 1 simulated, 2 devices": "-",
    }
    assert found.loc["JAX, 2 devices", ["supply", "demand"]].tolist() == [
        "110 (108 to 112)",
        "125 (122 to 128)",
    ]
    jpeg = loader_advice.FORMATS["png"]
    assert found["change first"].tolist() == ["nothing", "nothing", "-", jpeg]
    page = report.write([tmp_path])
    for name in (report.HTML, report.MARKDOWN):
        assert "Supply and demand of images" in (page.parent / name).read_text(encoding="utf-8")
    html = page.read_text(encoding="utf-8")  # a column has one alignment
    assert all(f"<td>{text}</td>" in html for text in ("nothing", "-"))
    rows = json.loads(report.as_json(compared))["tables"]["loader"]
    assert [row["fed_low"] for row in rows] == [3, 2, None, 1]
    assert (page.parent / report.CSV / "loader.csv").exists()


@pytest.mark.parametrize(
    ("data", "supply", "change"),
    [
        ({"format": "png", "loader_workers": 2}, 110.0, loader_advice.FORMATS["png"]),
        ({"format": "jpg"}, 110.0, loader_advice.FORMATS["jpg"]),
        ({"loader_workers": 7}, 110.0, loader_advice.WORKERS),
        ({"filesystem": {"kind": "nfs4", "shared": True}}, 110.0, loader_advice.LOCAL),
        ({"filesystem": {"kind": "ext4", "shared": False}}, 110.0, ""),
        # From 127.4 against at most 127.5: the ranges meet; from 128.4 they do not.
        ({"format": "png"}, 130.0, loader_advice.FORMATS["png"]),
        ({"format": "png"}, 131.0, "nothing"),
    ],
)
def test_what_to_change_first(tmp_path: Path, data: Any, supply: float, change: str) -> None:
    assert loader_supply.numbers(records.load(tmp_path, run(supply=supply, **data)))[
        "change"
    ].tolist() == [change]


def test_unknown_cores_advise_nothing() -> None:
    content = run(supply=110.0, loader_workers=1)
    del content["hardware"]["usable_cores"]
    assert loader_advice.first_change(content) == ""
    content["devices"]["cpus"] = [records.cpu(device, 1) for device in range(2)]
    assert loader_advice.first_change(content) == loader_advice.WORKERS
    del content["devices"]["cpus"]
    content["hardware"]["usable_cores"] = 1
    assert loader_advice.first_change(content) == ""
    content["cluster"] = records.world(2, virtual=False)
    assert loader_advice.first_change(content) == loader_advice.WORKERS


def test_the_report_says_whether_faster_loading_pays(tmp_path: Path) -> None:
    names, supplies = ("PyTorch", "Keras", "JAX"), (50, 1000, 2000)
    for name, supply in zip(names, supplies, strict=True):
        content = records.make(name, gpu=True, speed=80)
        for section, rate in (("loader", supply), ("synthetic", 100), ("files", 80)):
            rates = {"images_per_second": rate, "rounds": [rate - 1, rate, rate + 1]}
            content[section] |= rates | {"low": rate - 1, "high": rate + 1}
        records.save(tmp_path, content)
    assert loader_supply.faster_loading(comparison.load([tmp_path])) == [
        "PyTorch, 2 devices: the loader alone supplies 50.0 images/s and training on synthetic "
        "data uses 100, so faster loading raises images/s by at most 25 %.",
        "Packed images do not pay in 2 of 3 rows: the loader alone supplies 10.0 to 20.0 times the "
        "images/s that training on synthetic data uses.",
    ]
