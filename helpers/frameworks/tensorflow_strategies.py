"""The strategies of ``tf.distribute`` over which helpers compute: a notebook's, or their own."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

_OVER: dict[int, tf.distribute.Strategy] = {}
"""By the number of devices."""


class _Noted:
    strategy: tf.distribute.Strategy | None = None


def note(variables: Iterable[Any]) -> None:
    """Remember the strategy of objects that the notebook has made, if they have one."""
    held = next((v for v in variables if isinstance(v, tf.distribute.DistributedValues)), None)
    _Noted.strategy = None if held is None else held.distribute_strategy


def scope() -> AbstractContextManager[Any]:
    """A context in which new variables have a copy on every device of the strategy."""
    found: AbstractContextManager[Any] = nullcontext()
    return found if _Noted.strategy is None else _Noted.strategy.scope()


def shares(parts: Sequence[Any]) -> Any:
    """A value for each of this process's devices, as the notebook's loader gives them."""
    strategy = _Noted.strategy
    if strategy is None or len(parts) == 1:
        return parts[0]
    return strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group % len(parts)]
    )


def own_devices() -> int:
    """How many devices of the notebook's strategy are this process's."""
    return 1 if _Noted.strategy is None else len(_Noted.strategy.extended.worker_devices)


def over(variable: Any, devices: Sequence[str]) -> tf.distribute.Strategy:
    """The strategy that mirrors ``variable`` over ``devices``, else one used on as many before."""
    held = getattr(variable, "distribute_strategy", None)
    if held is not None and held.num_replicas_in_sync == len(devices):
        _OVER[len(devices)] = held
    elif len(devices) not in _OVER:
        with_keys_of_its_own()
        _OVER[len(devices)] = tf.distribute.MirroredStrategy(list(devices), _reduction(devices))
    return _OVER[len(devices)]


def _reduction(devices: Sequence[str]) -> Any:
    """As in the notebook."""
    if devices[0].startswith("GPU"):
        return tf.distribute.NcclAllReduce()
    return tf.distribute.ReductionToOneDevice()


def with_keys_of_its_own() -> None:
    """The next MirroredStrategy of this process takes no other's all-reduce for its own.

    All number theirs from the same key on; TensorFlow's own tests (``strategy_combinations.py``)
    set its strategies apart in this way.
    """
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
