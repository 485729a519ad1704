"""What tests have ChainerMN's ranks do; imported by the ranks too."""

import os
import signal
from pathlib import Path
from typing import Any

import chainer
import notebook_program
import numpy as np
import own_networks
import ranks_tools
import shared_batches
from resuming import write_small_images

from helpers.fairness import reference
from helpers.frameworks import chainermn as framework
from helpers.launch import exchange, samplers
from helpers.networks import weights
from helpers.runner.notebook_code import run_cells

NOTEBOOK = "ChainerMN_MultiNode"
Names = dict[str, Any]
Arrays = dict[str, np.ndarray]


def names_of(folder: Path, **given: Any) -> Names:
    """A notebook's names before it trains a small custom network, of 8 images on each device."""
    return notebook_program.names_of(NOTEBOOK, folder, num_workers=0, **small(folder), **given)


def small(folder: Path) -> Names:
    """Parameters: a small network and few images."""
    data = folder / "data"
    with exchange.first_rank_first():
        if not data.exists():
            write_small_images(data)
            own_networks.recipe_of(folder / "recipe", "chainer")
    return {"recipe": str(folder / "recipe" / "mine.toml"), "data": str(data)}


def trained(names: Names) -> tuple[float, Arrays]:
    """The mean loss of an epoch of the shallow network, and its weights after an evaluation."""
    run, loader = names["run"], names["make_loader"](names["run"].train_part, True)
    with run.recipe.varied(outputs=14):
        replica = names["make_replica"](_shallow())
        loss = names["train_steps"](replica, loader, len(loader))
        validation = names["make_loader"](run.valid_part, False)
        names["predict"](replica, validation, len(run.valid_part))
    return loss, framework.dump_weights(replica.network)


def trained_by_hand(names: Names) -> tuple[float, Arrays]:
    """The same of two copies in this process, which take the means themselves."""
    run, part = names["run"], names["run"].train_part
    first, second = names["make_replica"](_shallow()), _shallow()
    each = [shared_batches.by_the_rule(run, part, part.read, 0, rank, 2) for rank in range(2)]
    losses = []
    for batches in zip(*each, strict=True):
        for network, (pixels, targets, _) in zip((first.network, second), batches, strict=True):
            network.cleargrads()
            loss = chainer.functions.sigmoid_cross_entropy(
                network(names["to_network"](pixels)), targets.astype(np.int32)
            )
            loss.backward()
            losses.append(float(loss.array))
        pairs = list(zip(first.network.params(), second.params(), strict=True))
        for one, other in pairs:
            one.grad = (one.grad + other.grad) / np.float32(2)
        first.optimizer.update()
        for one, other in pairs:
            other.array[...] = one.array
    found, others = (framework.dump_weights(each) for each in (first.network, second))
    for name in found:
        found[name] = (found[name] + others[name]) / np.float32(2)  # of equal ones, but statistics
    return float(np.mean(losses)), found


def _shallow() -> Any:
    return framework.shallow(reference.shallow_arrays(), framework.list_devices("cpu", 1))


def slowest(names: Names) -> float:
    """Ranks have measured 1 and 2 seconds."""
    run = names["run"]
    return framework.slowest(run.rank + 1.0, run.own_devices)


def run_to_the_end(folder: Path, *, epochs_until_stopped: int = 2, resume: bool = False) -> Arrays:
    """Two epochs of training; the weights, or what a run leaves that is stopped before."""

    def changed(text: str) -> str:
        loop = "run.epochs(replica)"
        return text.replace(loop, f"islice({loop}, {epochs_until_stopped})") if stopped else text

    stopped = epochs_until_stopped < 2
    given: Names = {"run": str(folder / "run"), "epochs": 2, "num_workers": 1, "devices": 1}
    given |= small(folder) | {"resume": resume}
    names = run_cells(
        NOTEBOOK, after="run.epochs(replica)", checked=False, changed=changed, **given
    )
    samplers.stop(names["run"].monitor)
    exchange.exchange(None)  # rank 0 has written what it keeps
    return {} if stopped else weights.load(folder / "run" / "weights.safetensors")


def fail(folder: str, how: str) -> None:
    """Rank 1 raises, or is killed, before its second step, in which the others wait for it."""
    names = names_of(Path(folder))
    replica = names["make_replica"](names["build_model"]())
    loader = names["make_loader"](names["run"].train_part, True)
    batch = next(iter(loader))
    names["train_steps"](replica, [batch], 1)
    (Path(folder) / "failed").touch()
    if ranks_tools.here().rank == 1:
        if how == "raises":
            raise ValueError("no such image")
        os.kill(os.getpid(), signal.SIGKILL)
    names["train_steps"](replica, [batch], 1)
