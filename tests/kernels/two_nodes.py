"""What the tests of runs over two nodes share: a few steps there, and the same in one process."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest
from notebook_cells import CERTIFIED, SIDE, namespace_of

from helpers import paths
from helpers.fairness import reference
from helpers.frameworks import place
from helpers.launch.causes import RankError
from helpers.network import free_port
from helpers.training import bus_bandwidth, in_world
from helpers.training.in_world import Work
from helpers.training.measured_run import Run
from helpers.training.world import World

# Ranks do not know this module: what of it is called there travels by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Found = Mapping[str, Any]
EPOCHS = 2
LATE_SECONDS = 0.3
END_SECONDS = 15
"""In which nothing of a run may be left whose rank has died."""
SMALL = f'recipe = "demo"\n[model]\nnetwork = "resnet44"\n[data]\nresized = {SIDE}\ncrop = 32\n'


@contextmanager
def names_of(
    notebook: str, folder: Path, nodes: int, devices: int, **more: Any
) -> Iterator[dict[str, Any]]:
    """The notebook's names before it trains, of a small recipe; its ranks end with the block.

    Args:
        more: of the notebook's parameters.
    """
    folder.mkdir(exist_ok=True)
    recipe = folder / "small.toml"
    recipe.write_text(SMALL)
    given = {"recipe": str(recipe), "batch_size": 8, "workers": 2, "nodes": nodes} | more
    names = namespace_of(notebook, folder, devices=devices, until=CERTIFIED, checked=False, **given)
    try:
        yield names
    finally:
        names["this_run"].nodes.end()


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
    lesson, framework = work.lesson, work.framework
    with lesson.scope():
        network = framework.shallow(reference.shallow_arrays(), world.devices)
    replica = lesson.start(world, network)
    loader = lesson.make_train_loader(world, 0, work.workers)
    steps, part = work.recipe.steps(len(work.images.train)), work.images.valid
    part = part[: len(part) - 1 + len(part) % 2]
    losses = [in_world.take_steps(work, replica, loader, steps)[0] for _ in range(EPOCHS)]
    batches = iter(lesson.make_evaluation_loader(world, part, work.workers))
    logits, loss = in_world.predict(lesson, replica, batches, len(part))
    state = framework.dump_optimizer(replica.network, replica.optimizer)
    found = {"losses": losses, "valid loss": loss, "logits": logits}
    found |= {f"weight {n}": w for n, w in framework.dump_weights(replica.network).items()}
    found |= {f"optimiser {n}": array for n, array in state.items()}
    lesson.stop(replica)
    return found


def assert_as_one_process(
    notebook: str,
    folder: Path,
    limit: float,
    compared: Callable[[Run], None] = lambda run: None,
    **more: Any,
) -> None:
    """Two nodes with a device each train what one node with two devices trains.

    Args:
        limit: of the differences between numbers.
        compared: what else is asserted of the two nodes.
        more: of the notebook's parameters.
    """
    shared = {"cores_per_device": "shared"}  # as on nodes: else TensorFlow adds in another order
    with names_of(notebook, folder / "one", 1, 2, **more, **shared) as names:
        (one,) = names["this_run"].everywhere(few_steps)
    with names_of(notebook, folder / "two", 2, 1, **more) as names:
        each = names["this_run"].everywhere(few_steps)
        assert_gradients_are_reduced(names["this_run"])
        assert len(each) == 2
        compared(names["this_run"])
        assert names["this_run"].record.content["world"]["nodes"] == 2
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


def gradients_alone(world: World, work: Work) -> tuple[int, float]:
    """What the all-reduce of the gradients sends; what rank 0 waits for another that is late."""
    framework = work.framework
    with work.lesson.scope():
        network = framework.shallow(reference.shallow_arrays(), world.devices)
    replica = work.lesson.start(world, network)
    measured = bus_bandwidth.measure(world, framework, replica)
    assert measured is not None and min(measured.seconds) > 0
    hooks = importlib.import_module(f"{framework.__name__}_ranks")
    reduction = hooks.gradient_all_reduce(replica, world.devices)
    framework.synchronize(world.devices)
    framework.slowest(0.0, world.devices)
    began = time.perf_counter()
    time.sleep(LATE_SECONDS * world.rank)
    if wait := framework.completion(reduction.once()):
        wait()
    waited = time.perf_counter() - began
    work.lesson.stop(replica)
    return measured.bytes, waited


def assert_gradients_are_reduced(run: Run) -> None:
    """By all ranks, in the framework's own way, as many bytes as the shallow network has."""
    found = run.everywhere(gradients_alone)
    arrays = reference.shallow_arrays()
    statistics = ("running_mean", "running_var")
    size = sum(array.size for name, array in arrays.items() if not name.endswith(statistics))
    assert [each for each, _ in found] == [4 * size] * len(found)
    assert found[0][1] > 0.9 * LATE_SECONDS, "it did not wait for the other rank"


def until_killed(world: World, work: Work, victims: Callable[[], list[int]], rank: int) -> None:
    """Talk to the other node for ever; after two seconds that rank kills ``victims()``."""
    work.framework.slowest(0.0, world.devices)
    if world.rank == rank:
        Timer(2, kill, [victims]).start()
    while True:
        work.framework.slowest(0.0, world.devices)


def kill(victims: Callable[[], list[int]]) -> None:
    for victim in victims():
        os.kill(victim, signal.SIGKILL)


def itself() -> list[int]:
    return [os.getpid()]


def its_server() -> list[int]:
    children = psutil.Process().children()
    return [child.pid for child in children if child.environ().get("DMLC_ROLE") == "server"]


def assert_a_death_ends_all(
    notebook: str,
    folder: Path,
    victims: Callable[[], list[int]],
    said: str,
    rank: int = 1,
    **more: Any,
) -> None:
    """One death ends all ranks and what they have started, soon, with a line that tells it."""
    with names_of(notebook, folder, 2, 1, **more) as names:
        run = names["this_run"]
        run.everywhere(few_steps)
        messages = run.nodes._ranks.folder
        assert len(started_for(messages)) > 2
        began = time.monotonic()
        with pytest.raises(RankError, match=f"^rank {rank} on .*{said}"):
            run.everywhere(until_killed, victims, rank)
        assert time.monotonic() - began < 2 + END_SECONDS
        assert started_for(messages) == []


def started_for(messages: Path) -> list[str]:
    """Processes that a run's launcher has started, or one of its ranks."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        environ = process.info["environ"] or {}
        if environ.get(place.VARIABLE) == str(messages):
            found.append(" ".join(process.info["cmdline"] or []))
    return found


ALONE = """
import os
from pathlib import Path
from helpers.frameworks import place, {module} as framework, {module}_ranks as ranks
here = place.Place(rank=0, ranks=2, nodes=2, virtual=True, devices=1, kind="cpu", port={ports[2]},
                   addresses=("127.0.0.1:{ports[0]}", "127.0.0.1:{ports[1]}"),
                   hosts=("here", "here"), interfaces=("lo", "lo"), folder=Path("{folder}"))
place.take(here)
os.environ.update(ranks.environment(here))
ranks.JOIN_SECONDS = {seconds}
{join}
print("it trains alone")
"""


def assert_a_lone_worker_is_refused(module: str, join: str, folder: Path) -> None:
    """Where the other node does not come, nothing is trained, and nothing is left."""
    ports = [free_port() for _ in range(3)]
    program = ALONE.format(module=module, join=join, ports=ports, folder=folder, seconds=5)
    mark = {"COMPARE_TEST": f"{ports}"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | mark,
        cwd=paths.ROOT,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"not all 2 ranks came to {module} in 5 s; missing: rank 1" in done.stderr
    assert "alone" not in done.stdout
    time.sleep(0.5)
    with_mark = [
        process.info["cmdline"]
        for process in psutil.process_iter(["environ", "cmdline"])
        if (process.info["environ"] or {}).get("COMPARE_TEST") == f"{ports}"
    ]
    assert with_mark == []
