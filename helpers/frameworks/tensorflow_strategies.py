"""The strategies of ``tf.distribute`` over which helpers compute: a notebook's, or their own."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeAlias

import tensorflow as tf

Device: TypeAlias = str


class Noted:
    strategy: tf.distribute.Strategy | None = None


def note(variables: Iterable[Any]) -> None:
    """Remember the strategy of objects that the notebook has made, if they have one."""
    held = next((v for v in variables if isinstance(v, tf.distribute.DistributedValues)), None)
    Noted.strategy = None if held is None else held.distribute_strategy


def scope() -> AbstractContextManager[Any]:
    """A context in which new variables have a copy on every device of the strategy."""
    found: AbstractContextManager[Any] = nullcontext()
    return found if Noted.strategy is None else Noted.strategy.scope()


def shares(strategy: tf.distribute.Strategy | None, parts: Sequence[Any]) -> Any:
    """A value for each of this process's devices, as the notebook's loader gives them."""
    if strategy is None or len(parts) == 1:
        return parts[0]
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group % len(parts)]
    )


def own_devices() -> int:
    """How many devices of the notebook's strategy are this process's."""
    return 1 if Noted.strategy is None else len(Noted.strategy.extended.worker_devices)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    if (strategy := Noted.strategy) is None:
        return seconds
    own = shares(strategy, [tf.constant([seconds], tf.float64)] * own_devices())
    return float(tf.reduce_max(strategy.gather(own, 0)))


def over(devices: Sequence[str]) -> tf.distribute.Strategy:
    """The notebook's strategy if it has so many devices, else one of these."""
    strategy = Noted.strategy
    if strategy is not None and strategy.num_replicas_in_sync == len(devices):
        return strategy
    return _mirrored(tuple(devices))


@cache
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    with_keys_of_its_own()
    nccl = devices[0].startswith("GPU")  # as in the notebook
    sums = tf.distribute.NcclAllReduce() if nccl else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(list(devices), sums)


def with_keys_of_its_own() -> None:
    """The next MirroredStrategy takes no other's all-reduce for its own: all begin at one key."""
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
