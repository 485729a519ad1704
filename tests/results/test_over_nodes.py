"""An iteration by number of nodes, and what a model says of more: by a law that is known."""

import re
from pathlib import Path
from typing import Any

import pytest
import records
import scaling_records as law

from helpers.results import charts, comparison, report
from helpers.results.scaling import over_nodes

ALPHA, BETA, BYTES = 1e-3, 2e-9, 28e6
OWN = 0.2


def all_reduce(ranks: int, slower: float = 0.0) -> float:
    """A ring's, of the gradients by itself; slower with a power of the ranks."""
    found = 2 * (ranks - 1) * ALPHA + 2 * (ranks - 1) / ranks * BYTES * BETA
    return found * ranks**slower


def run(nodes: int, *, hidden: float = 0.0, slower: float = 0.0, **given: Any) -> dict[str, Any]:
    """A run of one device a node, whose ranks work equally long; its record."""
    content = law.make(devices=nodes, nodes=nodes, **given)
    took = all_reduce(nodes, slower)
    content["cluster"] |= {
        "all_reduce": {
            "bytes": int(BYTES), "rounds": 6, "seconds": took,
            "interval": [0.98 * took, 1.02 * took], "over": "gloo on eth0",
            "bus_bytes_per_second": 2 * (nodes - 1) / nodes * BYTES / took,
        },
        "step_parts": [
            {"rank": rank, "host": f"node{rank}", "data": 0.0, "compute": OWN - 0.01,
             "update": 0.01, "all_reduce": max(0.0, took - hidden)}
            for rank in range(nodes)
        ],
    }  # fmt: skip
    return content


def compared(folder: Path, runs: list[dict[str, Any]]) -> comparison.Comparison:
    return comparison.load(law.save(folder / "b", runs))


def test_own_work_and_all_reduce_stand_side_by_side(tmp_path: Path) -> None:
    one = compared(tmp_path, [law.make(devices=1), *(run(nodes) for nodes in (2, 4))])
    found = over_nodes.numbers(one).set_index("nodes")
    assert list(found.index) == [1, 2, 4] and list(found["where"]) == ["1 x 1", "2 x 1", "4 x 1"]
    assert found.loc[1, "all_reduce"] == 0 and found.loc[1, "how"] == "by ablation"
    for nodes in (2, 4):
        assert found.loc[nodes, "own"] == pytest.approx(OWN)
        assert found.loc[nodes, "all_reduce"] == pytest.approx(all_reduce(nodes))
    share = 100 * all_reduce(4) / (all_reduce(4) + OWN)
    assert over_nodes.table(one).frame.iloc[-1]["all-reduce's share"] == f"{share:.0f} %"
    figure = records.drawn(charts.iterations(one))
    tops = [bar.get_y() + bar.get_height() for bar in figure.axes[0].containers[1]]
    assert tops[-1] == pytest.approx(1000 * (OWN + all_reduce(4)))


def test_each_panel_names_its_own_places(tmp_path: Path) -> None:
    ran = {"PyTorch": (2, 4, 8), "TensorFlow": (2, 8)}
    runs = [run(nodes, framework=name) for name, of in ran.items() for nodes in of]
    figure = records.drawn(charts.iterations(compared(tmp_path, runs)))
    shown = [
        [label.get_text() for label in axes.get_xticklabels()]
        for axes in figure.axes
        if axes.get_visible()
    ]
    assert shown == [["2 x 1", "4 x 1", "8 x 1"], ["2 x 1", "8 x 1"]]


def test_one_number_of_nodes_is_not_drawn(tmp_path: Path) -> None:
    one = compared(tmp_path, [run(2), run(2, seed=1)])
    assert over_nodes.numbers(one).empty and charts.iterations(one) is None


@pytest.mark.parametrize("hidden", [0.0, 0.05])
def test_a_law_that_holds_speaks_of_more_nodes(tmp_path: Path, hidden: float) -> None:
    one = compared(tmp_path, [run(nodes, hidden=hidden) for nodes in (2, 4, 8)])
    (said,) = over_nodes.expected(one)
    low, high = map(int, re.findall(r"the model expects (\d+) to (\d+) %", said)[0])
    true = 100 * OWN / (OWN + all_reduce(64) - hidden)
    assert low - 1 <= true <= high + 1 and high - low < 4
    assert "at 64 nodes of this network" in said and "fitted to 2, 4 nodes and tested on 8" in said
    assert said in (report_of(tmp_path, one))


def test_a_law_that_fails_is_silent_and_says_by_how_much(tmp_path: Path) -> None:
    """A switch that all share: each node more makes all slower."""
    runs = [run(2), run(4), run(8, slower=0.5)]
    (said,) = over_nodes.expected(compared(tmp_path, runs))
    assert "makes no prediction for more nodes" in said and "expects" not in said
    assert re.search(r"off by 6[45] % in the all-reduce", said)


def test_two_numbers_of_nodes_cannot_be_judged_and_virtual_ones_are_no_network(
    tmp_path: Path,
) -> None:
    assert over_nodes.expected(compared(tmp_path / "two", [run(2), run(4)])) == []
    runs = [run(nodes) for nodes in (2, 4, 8)]
    for content in runs:
        content["cluster"]["simulated"] = True
    assert over_nodes.expected(compared(tmp_path / "virtual", runs)) == []


def report_of(folder: Path, one: comparison.Comparison) -> str:
    """The report of the batch, as Markdown in one line."""
    report.write([folder / "b"])
    return " ".join((folder / "b" / "report.md").read_text(encoding="utf-8").split())
