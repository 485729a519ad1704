"""What the tests of runs over two nodes share: a few steps there, and the same in one process."""

import importlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import psutil
import pytest
import ranks_tools as tools
from notebook_cells import CHECKED, SIDE, namespace_of, write_noise_images

from helpers import paths
from helpers.fairness import reference
from helpers.frameworks import rank_info, row_of
from helpers.launch.failures import RankError
from helpers.training import train_loop
from helpers.training.train_loop import Work
from helpers.training.world import World

Found = Mapping[str, Any]
Names = dict[str, Any]
EPOCHS = 2
LATE_SECONDS = 0.3
END_SECONDS = 15
"""In which nothing of a run may be left whose rank has died."""
SMALL = f'recipe = "demo"\n[model]\nnetwork = "resnet44"\n[data]\nimage_size = {SIDE}\ncrop = 32\n'


def names_of(notebook: str, folder: Path, devices: int, **more: Any) -> Names:
    """The notebook's names before it trains, of a small recipe.

    Args:
        more: of the notebook's parameters.
    """
    folder.mkdir(exist_ok=True)
    recipe = folder / "small.toml"
    if not recipe.exists():
        recipe.write_text(SMALL)
    given: dict[str, Any] = {"recipe": str(recipe), "batch_size": 8, "num_workers": 1} | more
    return namespace_of(notebook, folder, devices=devices, until=CHECKED, checked=False, **given)


def on_ranks(
    notebook: str,
    folder: Path,
    function: Callable[[Names], Any],
    *,
    nodes: int = 2,
    devices: int = 1,
    **more: Any,
) -> list[Any]:
    """What a function makes of the notebook's names, on each rank of so many nodes.

    Args:
        function: of a module of tests, by whose name the ranks import it.
        more: of the notebook's parameters.
    """
    folder.mkdir(exist_ok=True)
    write_noise_images(folder)
    (folder / "small.toml").write_text(SMALL)
    kernel = Path(sys.prefix).name
    row = row_of(notebook, kernel)
    assert row is not None
    where = f"{function.__module__}:{function.__qualname__}"
    given = (notebook, str(folder), str(paths.NOTEBOOKS), where, devices, more)
    for old in (folder / "run").glob("found-*"):
        old.unlink()
    tools.run(
        folder / "run",
        f"import two_nodes\ntwo_nodes.answer(*{given!r})",
        nodes=nodes,
        each=devices if row.rank_a_device else 1,
        devices=devices,
        framework=row.module,
    )
    found = sorted((folder / "run").glob("found-*"))
    return [pickle.loads(path.read_bytes()) for path in found]


def answer(
    notebook: str, folder: str, notebooks: str, where: str, devices: int, more: Mapping[str, Any]
) -> None:
    """On a rank: what :func:`on_ranks` asks."""
    paths.NOTEBOOKS = Path(notebooks)
    module, _, name = where.partition(":")
    names = names_of(notebook, Path(folder), devices, **more)
    found = getattr(importlib.import_module(module), name)(names)
    here = tools.here()
    (here.folder.parent / f"found-{here.rank}").write_bytes(pickle.dumps(found))


def few_steps(world: World, work: Work) -> Found:
    """What :func:`trained` gives, and what else all processes have to know together."""
    found, framework = dict(trained(world, work)), work.framework
    found["slowest"] = framework.slowest(float(world.rank), world.devices)
    first, devices = world.rank * len(world.devices), range(len(world.devices))
    shares = [np.array([first + number, 1], np.float32) for number in devices]
    found["sum"] = framework.all_reduced(shares, world.devices)[0]
    return found


def trained(world: World, work: Work) -> Found:
    """Two epochs of the shallow network on the run's images, and an evaluation of an odd number."""
    functions, framework = work.functions, work.framework
    with functions.scope():
        network = framework.shallow(reference.shallow_arrays(), world.devices)
    replica = functions.start(world, network)
    loader = functions.make_train_loader(world, 0, work.workers)
    steps, part = work.recipe.steps(len(work.images.train)), work.images.valid
    part = part[: len(part) - 1 + len(part) % 2]
    losses = [train_loop.take_steps(work, replica, loader, steps)[0] for _ in range(EPOCHS)]
    batches = iter(functions.make_evaluation_loader(world, part, work.workers))
    logits, loss = train_loop.predict(functions, replica, batches, len(part))
    state = framework.dump_optimizer(replica.network, replica.optimizer)
    found = {"losses": losses, "valid loss": loss, "logits": logits}
    found |= {f"weight {n}": w for n, w in framework.dump_weights(replica.network).items()}
    found |= {f"optimiser {n}": array for n, array in state.items()}
    functions.stop(replica)
    return found


def of_two(names: Names) -> Found:
    """On a rank: what it trains."""
    run = names["this_run"]
    found = few_steps(run.world, run.work())
    assert run.record.content["cluster"]["nodes"] == 2
    return found


def assert_as_one_process(
    notebook: str,
    folder: Path,
    limit: float,
    of_two: Callable[[Names], Found] = of_two,
    **more: Any,
) -> None:
    """Two nodes with a device each train what one node with two devices trains.

    Args:
        limit: of the differences between numbers.
        of_two: what each rank does, and asserts.
        more: of the notebook's parameters.
    """
    shared = {"cores_per_device": "shared"}  # as on nodes: else TensorFlow adds in another order
    names = names_of(notebook, folder / "one", 2, **more, **shared)
    (one,) = names["this_run"].everywhere(few_steps)
    each = on_ranks(notebook, folder / "two", of_two, **more)
    assert len(each) == 2
    for rank, found in enumerate(each):
        differ = different(one, found, limit)
        assert differ == {"slowest": 1.0}, f"rank {rank} differs by {differ}"
    assert list(one["sum"]) == [1, 2] and one["slowest"] == 0


def different(one: Found, other: Found, limit: float) -> dict[str, float]:
    """By how much numbers differ, of those that differ by more than ``limit``."""
    assert one.keys() == other.keys()
    apart = {name: float(np.abs(np.subtract(one[name], other[name])).max()) for name in one}
    return {name: by for name, by in apart.items() if not by <= limit}


def assert_fault_is_found(
    notebook: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sound: str,
    broken: str,
    **more: Any,
) -> None:
    """A notebook with a fault trains something else over two nodes than in one process."""
    plant(notebook, folder, monkeypatch, sound, broken)
    with pytest.raises(AssertionError, match=r"rank 0 differs by .*optimiser first/"):
        assert_as_one_process(notebook, folder, 1e-6, **more)


def plant(
    notebook: str, folder: Path, monkeypatch: pytest.MonkeyPatch, sound: str, broken: str
) -> None:
    """From now on the notebook has a fault, on ranks too."""
    text = (paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8")
    assert text.count(sound) == 1
    (folder / f"{notebook}.ipynb").write_text(text.replace(sound, broken), encoding="utf-8")
    monkeypatch.setattr(paths, "NOTEBOOKS", folder)


def until_killed(names: Names, victims: Callable[[], list[int]], rank: int) -> None:
    """On a rank: talk to the others for ever; after two seconds that rank kills ``victims()``."""
    run = names["this_run"]
    few_steps(run.world, run.work())
    (run.folder / f"talks-{run.rank}").write_text(repr(started_for(tools.here().folder)))
    run.framework.slowest(0.0, run.world.devices)
    if run.rank == rank:
        Timer(2, kill, [victims]).start()
    while True:
        run.framework.slowest(0.0, run.world.devices)


def kill(victims: Callable[[], list[int]]) -> None:
    for victim in victims():
        os.kill(victim, signal.SIGKILL)


def itself() -> list[int]:
    return [os.getpid()]


def its_server() -> list[int]:
    children = psutil.Process().children()
    return [child.pid for child in children if child.environ().get("DMLC_ROLE") == "server"]


def rank_0_dies(names: Names) -> None:
    until_killed(names, itself, 0)


def rank_1_dies(names: Names) -> None:
    until_killed(names, itself, 1)


def a_server_dies(names: Names) -> None:
    until_killed(names, its_server, 1)


def assert_a_death_ends_all(
    notebook: str,
    folder: Path,
    function: Callable[[Names], None],
    said: str,
    rank: int = 1,
    **more: Any,
) -> None:
    """One death ends all ranks and what they have started, soon, with a line that tells it."""
    with pytest.raises(RankError, match=f"^rank {rank} on .*{said}"):
        on_ranks(notebook, folder, function, **more)
    ended = time.time()
    talked = [folder / "run" / f"talks-{each}" for each in range(2)]
    assert ended - max(path.stat().st_mtime for path in talked) < 2 + END_SECONDS
    assert tools.nothing_is_left(folder, 1)


def started_for(folder: Path) -> list[str]:
    """Processes that a run's launcher has started, or one of its ranks."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        environ = process.info["environ"] or {}
        if environ.get(rank_info.VARIABLE) == str(folder):
            found.append(" ".join(process.info["cmdline"] or []))
    return found
