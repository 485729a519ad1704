"""What tests have ChainerMN's ranks do; imported by the ranks too."""

import os
import signal
from typing import Any

import chainer
import chainermn
import numpy as np

from helpers.fairness import reference
from helpers.frameworks import chainermn as framework
from helpers.training import chainer_parallel as parallel
from helpers.training import image_data, train_loop
from helpers.training.train_loop import Work
from helpers.training.world import World

Arrays = dict[str, np.ndarray]


def shallow(world: World, work: Work, state: Any = None) -> tuple[Any, Any]:
    """A replica of the shallow net, of ``state`` (weights, optimiser's), and its files' loader."""
    arrays, kept = state or (reference.shallow_arrays(), {})
    replica = work.functions.start(world, work.framework.shallow(arrays, world.devices))
    work.framework.load_optimizer(replica.network, replica.optimizer, kept)
    loader = work.functions.make_train_loader(world, 0, 0)
    work.functions.ready(replica, [loader])
    return replica, loader


def state_of(work: Work, replica: Any) -> tuple[Arrays, Arrays]:
    found = work.framework.dump_optimizer(replica.network, replica.optimizer)
    return work.framework.dump_weights(replica.network), found


def train(world: World, work: Work, steps: int) -> tuple[Arrays, Arrays, float, np.ndarray]:
    """Weights and optimiser's state after so many steps, their mean loss, validation's logits."""
    replica, loader = shallow(world, work)
    loss, _ = train_loop.take_steps(work, replica, loader, steps)
    part = work.images.valid
    batches = iter(work.functions.make_evaluation_loader(world, part, 0))
    scores, _ = train_loop.predict(work.functions, replica, batches, len(part))
    return *state_of(work, replica), loss, scores  # now with the BatchNorm statistics of rank 0


def train_alone(world: World, work: Work, steps: int) -> Arrays:
    """The weights after so many steps without all-reduce."""
    replica, loader = shallow(world, work)
    with train_loop.StepClock(work.framework.completion) as clock:
        assert work.functions.without_all_reduce is not None
        work.functions.without_all_reduce(replica, loader, steps, clock)
    return state_of(work, replica)[0]


def all_reduces_by(world: World, work: Work) -> str:
    """What the gradients are reduced by."""
    replica, _ = shallow(world, work)
    return str(getattr(replica.multi_node.communicator, "by", "naive"))


def go_on(world: World, work: Work, state: tuple[Arrays, Arrays], steps: int) -> Any:
    """A replica's state when it has gone on from another's, on a fixed batch."""
    replica, _ = shallow(world, work, state)
    loader = work.functions.make_fixed_loader(world, work.noise(world, 4))
    work.functions.ready(replica, [loader])
    train_loop.take_steps(work, replica, loader, steps)
    return state_of(work, replica)


def rows_read(world: World, work: Work, left_out: int) -> tuple[list[list[int]], list[int]]:
    """The rows of the images of each step of two epochs, and those of an evaluation.

    Args:
        left_out: how many of the test part's images the evaluation is not given.
    """
    rows: list[int] = []
    read = image_data.Data.read

    def note(data: image_data.Data, row: int) -> np.ndarray:
        rows.append(int(row))
        return read(data, row)

    def taken() -> list[int]:
        found = rows.copy()
        rows.clear()
        return found

    image_data.Data.read = note  # type: ignore
    try:
        batches = iter(work.functions.make_train_loader(world, 0, 0))
        steps = []
        for _ in range(2 * work.recipe.steps(len(work.images.train))):
            next(batches)
            steps.append(taken())
        test = work.images.test[left_out:]
        list(work.functions.make_evaluation_loader(world, test, 0))
        return steps, taken()
    finally:
        image_data.Data.read = read  # type: ignore[method-assign]


def fail_in_a_step(world: World, work: Work, how: str) -> None:
    """Rank 1 raises, or is killed, before its second step, in which the others wait for it."""
    replica, loader = shallow(world, work)
    train_loop.take_steps(work, replica, loader, 1)
    if world.rank == 1:
        if how == "raises":
            raise ValueError("no such image")
        os.kill(os.getpid(), signal.SIGKILL)
    train_loop.take_steps(work, replica, loader, 1)


def mean_of_a_transposed_gradient(world: World, work: Work, timed: bool) -> np.ndarray:
    """The mean of a gradient that is not contiguous, full of the rank's number."""
    communicator = chainermn.create_communicator("naive")
    link = chainer.Link(weight=(2, 3))
    link.weight.grad = np.full((3, 2), world.rank, np.float32).T
    parallel.ContiguousGradients(communicator).multi_node_mean_grad(link) if timed else (
        communicator.multi_node_mean_grad(link)
    )
    found: np.ndarray = link.weight.grad
    return found


def slowest_and_mean(world: World, work: Work) -> tuple[float, float]:
    """Ranks have measured 1 and 2 seconds, a loss of 1 over 3 images and of 2 over 1."""
    losses = framework.DeviceLosses(world.devices)
    losses.add(0, np.float32(world.rank + 1), 3 - 2 * world.rank)
    return framework.slowest(world.rank + 1.0, world.devices), losses.mean()
