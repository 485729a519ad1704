import os
import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import data_prep
from data_prep import files
from data_prep.packed import pack_folder
from helpers import paths
from helpers.errors import UserError
from helpers.frameworks.devices import Devices
from helpers.recipe import lookup
from helpers.training import image_data, image_folders, parameters
from helpers.training.parameters import Setup

GENERATED = image_folders.STAND_INS["nih, small"].name


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small generated set, resized to the demo recipe's 38 px."""
    source, target = (tmp_path_factory.mktemp("data") / name for name in ("demo", "demo-38"))
    data_prep.generate_nih(source, images=48, size=128, progress=False)
    data_prep.resize_folder(source, target, size=38, progress=False)
    return target


def test_devices_of_other_machines_have_cores_of_their_own_but_not_those_of_simulated_nodes(
    generated: Path, tmp_path: Path
) -> None:
    def resolved(**nodes: Any) -> Setup:
        chosen: dict[str, Any] = {"recipe": "demo", "data": generated, "devices": 1}
        return parameters.resolve("N", **chosen, run=tmp_path, **nodes)

    real = resolved(nodes=2)
    (cpu,) = real.devices.cpus
    other = replace(cpu, cores=(90, 91))  # the other node's system numbers its cores anew
    assert replace(real, cpus_of_nodes=(cpu, other)).of_all_nodes.cpus == (cpu, other)
    simulated = resolved(nodes=2, simulated_nodes=True)
    assert not simulated.devices.cpus and not simulated.of_all_nodes.cpus


def test_a_corrupt_image_is_found_before_training(generated: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(generated, folder)
    image_data.check_images(lookup("demo"), folder)
    victim = sorted((folder / "images").iterdir())[5]
    victim.write_bytes(victim.read_bytes()[:60])
    image_data.check_images(lookup("demo"), folder)  # prepared by data_prep: trusted
    (folder / "prepared.json").unlink()
    with pytest.raises(data_prep.DataError, match=victim.name):
        image_data.check_images(lookup("demo"), folder)


def test_of_jobs_that_begin_together_one_makes_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks are of open files, so that threads keep each other out as processes do."""
    made: list[str] = []

    def small(folder: Path, size: int) -> None:
        assert size == 256
        made.append("generated")
        real(folder, images=8, size=96, progress=False)

    def resized(*given: Any, **how: Any) -> None:
        made.append("resized")
        time.sleep(2 * files.LOCK_SECONDS)  # longer than resizing waits for another process
        resize(*given, **how)

    real, resize = data_prep.generate_nih, data_prep.resize_folder
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(paths, "DATA", tmp_path)
    monkeypatch.setattr(data_prep, "generate_nih", small)
    monkeypatch.setattr(data_prep, "resize_folder", resized)
    with ThreadPoolExecutor(2) as jobs:
        found = list(jobs.map(image_folders.prepare_data, [lookup("demo")] * 2))
    assert found == [tmp_path / f"{GENERATED}-38"] * 2
    assert image_folders.prepare_data(lookup("demo")) == found[0]
    with Image.open(next((tmp_path / f"{GENERATED}-38" / "images").iterdir())) as image:
        assert (image.size, image.mode) == ((38, 38), "L")
    assert made == ["generated", "resized"]


def test_a_packed_folder_is_read_from_its_memory_map_in_every_process(
    generated: Path, tmp_path: Path
) -> None:
    pack_folder(generated, tmp_path / "packed", progress=False)
    chosen: dict[str, Any] = {"recipe": "demo", "devices": 1, "batch_size": 8, "run": tmp_path}
    setup = parameters.resolve("N", data=tmp_path / "packed", **chosen)
    assert (setup.recipe.recipe.image_size, setup.recipe.recipe.crop) == (38, 32)
    assert setup.recipe.learning_rate == pytest.approx(1e-4 / 8)
    images = image_data.load_data(setup.recipe.recipe, setup.data)
    section = images.as_record()
    assert (section["format"], section["kind"]) == ("packed", "generated")
    first = images.test.iloc[0]
    of_file = data_prep.read_grey(generated / "images" / first["image"])
    sent = pickle.dumps(images)
    assert len(sent) < 100_000
    for copy in (images, pickle.loads(sent)):
        assert np.array_equal(copy.read(first["row"])[..., 0], of_file)


def test_a_folder_that_changes_is_read_again(generated: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(generated, folder)
    assert image_data.open_images(lookup("demo"), folder).read(0).shape[0] == 38
    shutil.rmtree(folder)
    data_prep.generate_nih(folder, images=8, size=64, progress=False)
    assert image_data.open_images(lookup("demo"), folder).read(0).shape[0] == 64


def test_the_digest_knows_images_and_labels_and_nothing_else(
    generated: Path, tmp_path: Path
) -> None:
    """Not where they lie, nor how a seed splits them."""

    def digest(folder: Path, seed: int = 0) -> str:
        setup = parameters.resolve("N", recipe="demo", data=folder, run=tmp_path, seed=seed)
        return image_data.load_data(setup.recipe.recipe, setup.data).sha256

    before, moved = digest(generated), tmp_path / "moved"
    shutil.copytree(generated, moved)
    assert digest(moved, seed=1) == before
    labels = moved / "Data_Entry_2017.csv"
    lines = labels.read_text().splitlines(keepends=True)
    labels.write_text("".join(lines[:-1]))
    fewer = digest(moved)
    name, _, rest = lines[-1].split(",", 2)
    labels.write_text("".join([*lines[:-1], f"{name},Hernia|Mass|Edema,{rest}"]))
    other = digest(moved)
    labels.write_text("".join(lines))
    Image.new("L", (38, 38)).save(moved / "images" / name)
    assert len({before, fewer, other, digest(moved)}) == 4


@pytest.mark.parametrize("given", ["often", "-1", "nan", "inf", True, None])
def test_a_warmup_is_a_number_of_epochs(given: Any) -> None:
    with pytest.raises(UserError, match="give a number of epochs from 0"):
        parameters.check_number("warmup_epochs", given)
    assert parameters.check_number("warmup_epochs", "0.5") == 0.5


def test_workers_keep_to_the_cores_that_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its affinity (taskset, Slurm), and by its container's share of the processors' time."""
    eight = Devices("gpu", ("GPU",) * 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 96)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(12)), raising=False)
    monkeypatch.setattr(files, "_cgroup_limits", lambda groups, root: [])
    assert parameters.default_workers(eight) == 12
    monkeypatch.setattr(files, "_cgroup_limits", lambda groups, root: [3])
    assert parameters.default_workers(eight) == 3
