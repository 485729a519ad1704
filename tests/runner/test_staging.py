"""`--stage FOLDER` and `stage` in [slurm]: runs read a copy on the node's own disk."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runner_tools import (
    BEGIN,
    FINISH,
    REAL,
    ROOT,
    WAIT,
    Suite,
    images_fixture,
    suite_fixture,
    wait_for,
)
from slurm_cluster import Cluster
from slurm_jobs import UNLIMITED, Jobs, cluster_fixture

import data_prep
from helpers import paths
from helpers.results import machine_tables
from helpers.runner import node_copy

__all__ = ["cluster_fixture", "images_fixture", "suite_fixture"]

READS = """
found = {"folder": data, "names": sorted(str(p.relative_to(data)) for p in Path(data).rglob("*"))}
(Path(run).parents[1] / "seen.json").write_text(json.dumps(found))
MADE["data"]["folder"] = data
"""


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path) -> Path:
    """A node's disk, on which its user has something already."""
    place = tmp_path / "scratch"
    (place / "rosetta-stage-of-a-user").mkdir(parents=True)
    (place / "rosetta-stage-of-a-user" / "thesis.tex").touch()
    return place


def is_clean(place: Path) -> bool:
    kept = place / "rosetta-stage-of-a-user" / "thesis.tex"
    return kept.exists() and len(list(place.iterdir())) == 1


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(name="resized", scope="module")
def resized_fixture(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder, with a manifest."""
    folder = tmp_path_factory.mktemp("resized") / "nih-38"
    data_prep.resize_folder(images, folder, size=38, progress=False)
    return folder


def test_runs_read_a_copy_that_is_removed_afterwards(
    suite: Suite, place: Path, resized: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.without_kernels()
    suite.notebook("Reads", BEGIN, READS, FINISH)
    given = ["--stage", str(place), "--data", str(resized), "--name", "mine"]
    assert suite.compare(*given) == 0, capsys.readouterr()
    seen = json.loads((paths.RUNS / "seen.json").read_text())
    assert seen["folder"].startswith(f"{place}/rosetta-stage-")
    assert seen["folder"].endswith("/nih-38")
    assert seen["names"] == names(resized)
    assert is_clean(place)
    said = capsys.readouterr().out
    assert f"Copying {resized} to {place} on 1 node\n" in said and "Copied and verified 0." in said
    content = json.loads((suite.run("mine", "Reads") / "record.json").read_text())
    size = sum(path.stat().st_size for path in resized.rglob("*") if path.is_file())
    copied = content["run"]["staging"]
    assert (copied["folder"], copied["bytes"]) == (str(resized), size) and copied["seconds"] > 0
    content["data"]["filesystem"] = {"kind": "nfs4", "shared": True}
    told = machine_tables._data(content)
    assert f"images, {resized}, copied in 0:0" in told
    assert told.endswith(" before the first run, read from a shared filesystem (nfs4)")


def test_the_copy_goes_when_the_runner_is_ended(suite: Suite, place: Path) -> None:
    suite.notebook("Waits", REAL, WAIT)
    with suite.start("--stage", str(place), "--name", "mine") as process:
        wait_for((suite.run("mine", "Waits") / "pids").exists)
        assert not is_clean(place)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert is_clean(place)
    content = json.loads((suite.run("mine", "Waits") / "record.json").read_text())
    assert content["state"] == "interrupted"
    assert content["run"]["staging"]["folder"] == str(suite.data)


def keeper(
    source: Path, place: Path | str, name: str = "rosetta-stage-1"
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", node_copy.__name__, str(source), str(place), name]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def answer(process: "subprocess.Popen[str]") -> dict[str, str]:
    assert process.stdout is not None
    found: dict[str, str] = json.loads(process.stdout.readline())
    return found


def test_nodes_with_the_same_disk_have_one_copy(place: Path, images: Path) -> None:
    with keeper(images, place) as first, keeper(images, place) as second:
        copies = {answer(process)["copy"] for process in (first, second)}
        assert len(copies) == 1 and names(Path(copies.pop())) == names(images)
        for process in (first, second):
            process.communicate()
    assert is_clean(place)


def test_a_copy_that_a_killed_process_left_is_removed_by_the_next(
    place: Path, images: Path
) -> None:
    with keeper(images, place) as killed:
        answer(killed)
        killed.kill()
    assert not is_clean(place)
    with keeper(images, place, "rosetta-stage-2") as process:
        answer(process)
        assert sorted(path.name for path in place.iterdir())[0] == "rosetta-stage-2"
        process.communicate()
    assert is_clean(place)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("$ROSETTA_NOT_SET/x", "stage '$ROSETTA_NOT_SET/x' on {host}: the variable is not set"),
        ("/nowhere/at/all", "/nowhere/at/all is not the absolute path of an existing folder"),
        ("scratch", "scratch is not the absolute path of an existing folder"),
        ("{data}/images", "{data}/images is inside the images, {data}: give a folder outside"),
    ],
)
def test_a_place_that_will_not_do_is_one_line(
    place: str, said: str, suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("Reads", BEGIN, READS, FINISH)
    place = place.format(data=suite.data)
    assert suite.compare("--stage", place, "--name", "mine") == 2
    error = capsys.readouterr().err
    host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    assert error.count("\n") == 1 and said.format(data=suite.data, host=host) in error
    assert not (paths.RUNS / "mine").exists()


def damaged(folder: Path) -> None:
    path = next((folder / "images").iterdir())
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def linked(folder: Path) -> None:
    (folder / "images" / "more.png").symlink_to("/etc/hostname")


def lost(folder: Path) -> None:
    next((folder / "images").iterdir()).unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damaged, "is not as manifest.csv lists it: see data-prep verify"),
        (linked, "more.png is a link, a pipe or a device: only files can be copied"),
        (lost, "is missing, which manifest.csv lists"),
    ],
)
def test_images_that_cannot_be_trusted_are_not_copied(
    change: object, said: str, place: Path, resized: Path, tmp_path: Path
) -> None:
    source = tmp_path / "changed"
    shutil.copytree(resized, source)
    change(source)  # type: ignore[operator]
    with keeper(source, place) as process:
        assert said in answer(process)["error"]
        process.communicate()
    assert is_clean(place)


def test_too_little_space_is_told_before_anything_is_copied(
    place: Path, images: Path, tmp_path: Path
) -> None:
    source = tmp_path / "large"
    shutil.copytree(images, source)
    with (source / "more.bin").open("wb") as file:
        file.truncate(2 * shutil.disk_usage(tmp_path).free)  # a hole
    with keeper(source, place) as process:
        error = answer(process)["error"]
        process.communicate()
    assert error.startswith(f"{place} has ") and f" MB free, and {source} has " in error, error
    assert is_clean(place)


def test_a_job_reads_a_copy_which_goes_when_it_is_cancelled(
    suite: Suite, cluster: Cluster, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.notebook("Waits", BEGIN, READS, WAIT)
    cluster.environment["LOCAL_DISK"] = str(place)
    jobs = Jobs(suite, cluster, monkeypatch, UNLIMITED + 'stage = "$LOCAL_DISK"\n', run="Waits-1x")
    assert "\\\n    --stage '$LOCAL_DISK' &\n" in jobs.script
    job = jobs.queue()
    wait_for((jobs.folder / "pids").exists)
    seen = json.loads((paths.RUNS / "seen.json").read_text())
    assert seen["folder"].startswith(f"{place}/rosetta-stage-"), jobs.about(job)
    cluster.run("scancel", job)
    wait_for(lambda: is_clean(place) and "the same command continues it" in jobs.log(job))


ON_TWO_NODES = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from helpers.runner import staging
source, place, there, go = map(Path, sys.argv[1:])
runs = [SimpleNamespace(nodes=2)]
one = SimpleNamespace(
    runs=runs, is_finished=lambda run: False, plan=SimpleNamespace(launcher="auto")
)
with staging.staged(one, source, str(place)):
    there.write_text(one.data)
    while not go.exists():
        time.sleep(0.1)
"""


@pytest.mark.parametrize("how", ["it ends", "it is cancelled"])
def test_each_node_of_a_job_has_a_copy_until_it_ends(
    how: str, cluster: Cluster, place: Path, images: Path, tmp_path: Path
) -> None:
    """Two nodes, here with the same disk."""
    there, go = tmp_path / "there", tmp_path / "go"
    words = [sys.executable, "-c", ON_TWO_NODES, *map(str, (images, place, there, go))]
    cluster.environment["PYTHONPATH"] = str(ROOT)
    text = f"#!/bin/bash\nexec {shlex.join(words)}\n"
    options = ["--nodes=2", "--ntasks-per-node=1", f"--output={tmp_path}/log"]
    job = cluster.run("sbatch", "--parsable", *options, input=text).strip()
    wait_for(lambda: there.exists() and there.read_text() != "")
    assert names(Path(there.read_text())) == names(images)
    if how == "it ends":
        go.touch()
        cluster.wait(job, "COMPLETED")
        assert f"Copying {images} to {place} on 2 nodes" in (tmp_path / "log").read_text()
    else:
        cluster.run("scancel", job)
    wait_for(lambda: is_clean(place))
