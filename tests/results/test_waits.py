"""What the loaders deliver beside what the devices take, and what to change first."""

from pathlib import Path
from typing import Any

import pytest
import records

from helpers.results import waits
from helpers.training import attribution


def run(framework: str = "PyTorch", *, supply: float, nodes: int = 1, **data: Any) -> Any:
    """On two devices that together take 125 images/s, with eight workers on eight cores."""
    loader = records.rounds(supply)
    content = records.make(framework, gpu=True, loader=loader)
    content |= {"cluster": records.world(nodes)} if nodes > 1 else {}
    content["hardware"]["usable_cores"] = 8
    content["data"] |= {"format": "packed", "loader_workers": 8} | data
    return content


@pytest.mark.parametrize(
    ("data", "supply", "change"),
    [
        ({"format": "png", "loader_workers": 2}, 110.0, attribution.FORMATS["png"]),
        ({"format": "jpg"}, 110.0, attribution.FORMATS["jpg"]),
        ({"loader_workers": 7}, 110.0, attribution.WORKERS),
        ({}, 110.0, "-"),
        # From 127.4 against at most 127.5: the ranges meet; from 128.4 they do not.
        ({"format": "png"}, 130.0, attribution.FORMATS["png"]),
        ({"format": "png"}, 131.0, "-"),
    ],
)
def test_what_to_change_first(tmp_path: Path, data: Any, supply: float, change: str) -> None:
    records.save(tmp_path, run("Keras", supply=110.0, format="png"))
    compared = records.load(tmp_path, run(supply=supply, **data))
    found = waits.table(compared).frame
    assert found["loader headroom"].tolist() == [f"x {supply / 125:.2f}", "x 0.88"]
    assert found["change first"].tolist() == [change, attribution.FORMATS["png"]]


def test_unknown_cores_advise_nothing() -> None:
    content = run(supply=110.0, loader_workers=1)
    del content["hardware"]["usable_cores"]
    assert attribution.first_change(content) == ""
    content["devices"]["cpus"] = [records.cpu(device, 1) for device in range(2)]
    assert attribution.first_change(content) == attribution.WORKERS
    del content["devices"]["cpus"]
    content["hardware"]["usable_cores"] = 1
    assert attribution.first_change(content) == ""
    content["cluster"] = records.world(2, virtual=False)
    assert attribution.first_change(content) == attribution.WORKERS
