"""`rosetta slurm FILE.toml --check`: what a short job finds, in a real Slurm and in words."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from runner_tools import ROOT
from slurm_cluster import Cluster
from slurm_jobs import cluster_fixture

from helpers import paths
from helpers.__main__ import main
from helpers.recipe import lookup
from helpers.runner.slurm import check, inputs, script

__all__ = ["cluster_fixture"]

RECIPE = """\
recipe = "demo"
[sweep]
nnodes = [1, {nodes}]
frameworks = ["chainer"]
[slurm]
cpus = {cpus}
"""


@pytest.fixture(name="login")
def login_fixture(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that all nodes share, at a shell of the login node."""
    for name in ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    return tmp_path


def write(folder: Path, nodes: int = 2, cpus: int = 1, more: str = "") -> str:
    path = folder / "mine.toml"
    path.write_text(RECIPE.format(nodes=nodes, cpus=cpus) + more, encoding="utf-8")
    return str(path)


def test_nodes_that_will_do_are_a_table_with_yes_in_each_row(
    login: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["slurm", write(login), "--check"])
    out, error = capsys.readouterr()
    table = [line for line in out.splitlines() if "  yes  " in line or "  NO  " in line]
    kernels = [line for line in table if line.startswith("environment ")]
    assert [line.split()[1] for line in kernels] == ["lab", "chainer"] and not error, out + error
    # Which kernels are made here is not this test's.
    assert code == (1 if any("  NO  " in line for line in kernels) else 0), out
    about = [" ".join(line.split()) for line in table if line not in kernels]
    assert about[0].startswith("2 nodes in the default partition yes n1, n2, "), out
    assert about[1:-1] == [
        f"{login}/runs is shared yes each node sees the files of 2",
        "mine.toml is read yes on each node: mine.toml",
        about[3],
        "1 or more cores on each node yes n1 1, n2 1",
        "nodes are alike yes 1 cores, no GPU",
        "nodes reach each other yes by a free port of each",
    ], out
    assert about[3].startswith("its images yes /"), out
    assert about[-1].startswith("clocks within 2 s yes 0."), out
    assert list((login / "runs").iterdir()) == [], "it takes its files away"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"more": 'partition = "none"\n'}, "sbatch: error: invalid partition specified: none"),
        ({"nodes": 3}, "would never run (Partition"),
        ({"cpus": 99}, "would never run (PartitionConfig), and is ended: its partition has no 2"),
        ({"more": 'gres = "gpu:4"\n'}, "sbatch: error: "),
        ({"more": 'modules = ["none"]\n'}, "no node has answered: "),
        ({"more": 'setup = ["echo no such module >&2; exit 3"]\n'}, "no node has answered: no su"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    how: dict[str, Any], said: str, login: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slurm", write(login, **how), "--check"]) == 2
    out, error = capsys.readouterr()
    assert error.count("\n") == 1 and said in error, out + error
    assert list((login / "runs").iterdir()) == []


OWN = """\
[data]
folder = "images"
[model]
chainer = "mine.py:net"
[sweep]
frameworks = ["chainer"]
"""


@pytest.fixture(name="own")
def own_fixture(tmp_path: Path) -> Path:
    """A recipe with code of its own, and images beside it."""
    (tmp_path / "mine.py").write_text("def net(classes): ...\n", encoding="utf-8")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").touch()
    path = tmp_path / "mine.toml"
    path.write_text(OWN, encoding="utf-8")
    return path


def look(own: Path) -> dict[str, Any]:
    return {"node": "n1", "seen": inputs.seen(str(own), "auto", demo=True)}


@pytest.mark.parametrize(
    ("change", "row", "said"),
    [
        ("true", None, ""),
        ("echo >> mine.py", "mine.toml is read", "n2: mine.py is another than here"),
        ("echo '[train]' >> mine.toml", "mine.toml is read", "n2: mine.toml is another than here"),
        ("rm mine.py", "mine.toml is read", "n2: "),
        ("rm mine.toml", "mine.toml is read", "n2: "),
        ("rm -r images", "its images", "images' does not exist: name one with"),
        ("rm images/*", "its images", "images is empty"),
        ("touch images/b.png", "its images", "n1: "),
    ],
)
def test_a_node_that_sees_other_files_is_named(
    change: str, row: str | None, said: str, own: Path
) -> None:
    digests, first = lookup(str(own)).digests(), look(own)
    subprocess.run(change, shell=True, check=True, cwd=own.parent)
    second = look(own) | {"node": "n2"}
    rows = inputs.judged([first, second], "mine.toml", digests)
    wrong = [(what, told) for what, right, told in rows if not right]
    assert len(wrong) == (row is not None), rows
    assert all(what == row and said in told for what, told in wrong), rows


def test_files_that_a_job_would_not_find_are_told_before_it_is_queued(
    login: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = f'[slurm]\ncpus = 1\nsetup = ["echo >> {login}/mine.py", "rm -r {login}/images"]\n'
    own.write_text(OWN + first, encoding="utf-8")
    assert main(["slurm", str(own), "--check"]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [
        line for line in lines if line.startswith("mine.toml is read NO n1: mine.py is another")
    ]
    assert [line for line in lines if line.startswith("its images NO n1: data folder")], lines


SEEN: dict[str, Any] = {"digests": {"m.toml": "1"}, "unread": "", "images": "/i", "lacking": ""}
FOUND: dict[str, Any] = {
    "seen": SEEN,
    "cores": 8,
    "gpus": 4,
    "models": "A100",
    "kernels": dict.fromkeys(("lab", "pytorch"), ""),
    "others": 2,
    "unreached": "",
    "apart": 0.1,
}


@pytest.mark.parametrize(
    ("change", "row", "said"),
    [
        ({}, None, ""),
        ({"node": "a"}, "2 nodes in gpu", "a, 3 s after"),
        ({"others": 1}, "runs is shared", "each node sees the files of 1"),
        ({"seen": dict.fromkeys(SEEN, "") | {"unread": "it is gone"}}, "m.toml is", "b: it is"),
        ({"seen": SEEN | {"images": "/j"}}, "its images", "a: /i; b: /j"),
        ({"gpus": 3}, "4 or more gpus", "a 4, b 3"),
        ({"cores": 9}, "nodes are alike", "a: 8 cores, A100; b: 9 cores, A100"),
        ({"models": "V100"}, "nodes are alike", "a: 8 cores, A100; b: 8 cores, V100"),
        (
            {"kernels": FOUND["kernels"] | {"lab": "No module"}},
            "environment lab works",
            "b: No module",
        ),
        ({"unreached": "timed out"}, "nodes reach each other", "b: timed out"),
        ({"apart": 2.5}, "clocks within", "2.5 s apart"),
    ],
)
def test_one_node_that_will_not_do_is_named_in_its_row(
    change: dict[str, Any], row: str | None, said: str
) -> None:
    job = script.Job(
        Path("m.toml"), "m", (2,), {"partition": "gpu", "gres": "gpu:a100:4", "cpus": 8}, {}
    )
    found = [FOUND | {"node": "a"}, FOUND | {"node": "b"} | change]
    wrong = [
        (what, told)
        for what, right, told in check.judged(found, 2, job, {"m.toml": "1"}, 3.0)
        if not right
    ]
    assert len(wrong) == (row is not None)
    assert all(str(row) in what and said in told for what, told in wrong), wrong


def test_too_few_cores_are_told_in_their_row() -> None:
    job = script.Job(Path("m.toml"), "m", (2,), {"cpus": 9}, {})
    found = [FOUND | {"node": "a"}, FOUND | {"node": "b"}]
    rows = check.judged(found, 2, job, {"m.toml": "1"}, 3.0)
    assert ("9 or more cores on each node", False, "a 8, b 8") in rows


def test_a_node_that_has_not_answered_is_reached_by_none() -> None:
    job = script.Job(Path("m.toml"), "m", (2,), {}, {})
    rows = check.judged([FOUND | {"node": "a", "others": 1}], 2, job, {"m.toml": "1"}, 90.0)
    assert {what: said for what, right, said in rows if not right} == {
        "2 nodes in the default partition": "a, 90 s after the question",
        f"{paths.RUNS} is shared": "each node sees the files of 1",
        "nodes reach each other": "1 of 2 have answered",
    }
