"""Computations in Gluon for the fairness check and the self-test."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from helpers.frameworks import mxnet_ranks, rank_info
from helpers.frameworks.mxnet_state import dump_weights, load_weights, named
from helpers.networks import mxnet as networks
from helpers.recipe import RECIPES

Device: TypeAlias = mx.Context
Model: TypeAlias = gluon.HybridBlock


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    model = build_model(weights)
    model.cast("float64")
    load_weights(model, weights)
    return model


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    model = networks.build("shallow", weights, RECIPES["chexnet"])
    model.initialize(ctx=list(devices))
    model.cast(weights["classifier.bias"].dtype)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    first = next(iter(model.collect_params().values()))
    return model(mx.nd.array(images, first.list_ctx()[0], first.dtype)).asnumpy()


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    device = next(iter(model.collect_params().values())).list_ctx()[0]
    with _moved(model, [device]):
        batch = mx.nd.array(images, device, next(iter(model.collect_params().values())).dtype)
        with autograd.record():  # training mode
            found = model(batch)
        found.backward()  # in which MXNet moves the running statistics
        return found.asnumpy(), dump_weights(model)


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What ``Trainer.step(N)`` hands to its optimiser after the all-reduce."""
    return _gradients(model, images, targets, devices, "device", len(images))


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What ``Trainer.step(N)`` hands to its optimiser, with the store over all nodes."""
    here = rank_info.here()
    assert here is not None, "there is one node"
    x, y = (np.array_split(array, here.ranks)[here.rank] for array in (images, targets))
    loss, found = _gradients(model, x, y, devices, mxnet_ranks.kind(), len(images))
    return float(mxnet_ranks.gathered(np.array(loss)).sum()), found


def _gradients(
    model: Model,
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Device],
    store: str,
    total: int,
) -> tuple[float, dict[str, np.ndarray]]:
    """What a ``Trainer`` with this key-value store hands to its optimiser.

    Args:
        images: this process's.
        total: how many all processes have; the loss is this one's part of their mean.
    """
    with _moved(model, devices), _frozen(model):
        parameters = model.collect_params()
        dtype = next(iter(parameters.values())).dtype
        criterion = gluon.loss.SigmoidBinaryCrossEntropyLoss()
        parts = [
            gluon.utils.split_and_load(
                mx.nd.array(array, dtype=dtype), list(devices), even_split=False
            )
            for array in (images, targets)
        ]
        with autograd.record():
            losses = [criterion(model(x), y) for x, y in zip(*parts, strict=True)]
        autograd.backward(losses)
        recorder = _Recorder()
        trainer = gluon.Trainer(parameters, recorder, kvstore=store, update_on_kvstore=False)
        trainer.step(total)
        own = sum(float(loss.sum().asscalar()) for loss in losses)
        return own / total, {
            name: recorder.gradients[parameter.name]
            for name, parameter in named(model).items()
            if parameter.grad_req != "null"
        }


class _Recorder(mx.optimizer.Optimizer):
    """An optimiser that keeps the gradients it is handed and leaves the weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gradients: dict[str, np.ndarray] = {}

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        name = self.param_dict[index].name
        if name not in self.gradients:  # after the all-reduce every device has the same
            self.gradients[name] = (grad * self.rescale_grad).asnumpy()


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    seen: list[np.ndarray] = []
    hook = model.register_forward_pre_hook(lambda block, given: seen.append(given[0].asnumpy()))
    try:
        yield seen
    finally:
        hook.detach()


@contextmanager
def _moved(model: Model, devices: Sequence[Device]) -> Iterator[None]:
    """The model on ``devices``, and afterwards back where it was, bit for bit."""
    home = next(iter(model.collect_params().values())).list_ctx()
    held = dump_weights(model)

    def place(there: Sequence[Device]) -> None:
        model.collect_params().reset_ctx(list(there))
        load_weights(model, held)  # reset_ctx takes the mean of the copies, which may round

    try:
        place(devices)
        yield
    finally:
        place(home)


@contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """BatchNorm with its running statistics, and no dropout, although gradients are recorded.

    ``record(train_mode=False)`` would do so too, but gives wrong gradients of convolutions.
    """
    blocks: list[Any] = []
    model.apply(blocks.append)
    norms = [each for each in blocks if isinstance(each, gluon.nn.BatchNorm)]
    dropouts = [each for each in blocks if isinstance(each, gluon.nn.Dropout)]
    # The compiled graph holds the setting of the time it was traced, so do without it here.
    active, flags = model._active, dict(model._flags)
    model.hybridize(False)
    before = [norm._kwargs["use_global_stats"] for norm in norms]
    rates = [dropout._rate for dropout in dropouts]
    try:
        for dropout in dropouts:
            dropout._rate = 0
        for norm in norms:
            norm._kwargs["use_global_stats"] = True
        yield
    finally:
        for norm, value in zip(norms, before, strict=True):
            norm._kwargs["use_global_stats"] = value
        for dropout, rate in zip(dropouts, rates, strict=True):
            dropout._rate = rate
        model.hybridize(active, **flags)
