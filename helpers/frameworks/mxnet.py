"""The framework-specific helper functions for MXNet Gluon.

``collect_params()`` walks a network in torchvision's order, by which weights are mapped.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from helpers.frameworks import libraries, mxnet_ranks, rank_info, weight_layout
from helpers.frameworks.interface import BuildModel, Seen, Watch, rule_of
from helpers.networks import custom
from helpers.networks import mxnet as networks
from helpers.networks.shapes import names_by_count
from helpers.networks.weights import under
from helpers.recipe import RECIPES

Device: TypeAlias = mx.Context
Model: TypeAlias = gluon.HybridBlock

SKIPPED = {
    "bf16": (
        "contrib.amp has bfloat16 for CPUs only, and changes the operators of the whole process "
        "for good: the fairness check's network in float64 then fails"
    ),
    "fp16": (
        "contrib.amp has float16 for GPUs only, and its loss scaling makes Python wait for the "
        "devices in every step"
    ),
}


def versions() -> dict[str, str]:
    return {"mxnet": mx.__version__, "numpy": np.__version__} | libraries.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    make = mx.gpu if kind == "gpu" else mx.cpu
    return [make(index) for index in range(count)]


def configure(precision: str, kind: str) -> None:
    libraries.check_precision(precision, kind, SKIPPED)
    libraries.allow_tf32(precision != "fp32")
    if kind == "cpu":  # read when MXNet computes for the first time
        # Its own 4 buffers of operations let no two devices train at once (docs/speed.md).
        os.environ.setdefault("MXNET_CPU_TEMP_COPY", "512")
    if mxnet_ranks.kind() == mxnet_ranks.KIND:
        mxnet_ranks.register()


def synchronize(devices: Sequence[Device]) -> None:
    mx.nd.waitall()  # the engine has one queue for all


def watch(replica: Any) -> Watch:
    optimizer = replica.optimizer.optimizer
    trained = [each for each in replica.optimizer._params if each.grad_req != "null"]
    _Watched.first = next(iter(replica.network.collect_params().values()))

    def seen() -> Seen:
        found = {
            what: [float(getattr(optimizer, theirs) or 0)]
            for what, theirs in _CONSTANTS.items()
            if hasattr(optimizer, theirs)
        }
        found["weight decay"] = optimizer._get_wds(list(optimizer._index_update_count)) or [0.0]
        found["rate factor"] = [each.lr_mult for each in trained]
        weights = replica.network.collect_params().values()
        types = {np.dtype(each.dtype).name for each in weights if len(each.shape) == 4}
        return Seen(
            rule_of(optimizer, getattr(optimizer, "momentum", None)),
            found,
            "/".join(sorted(types)) or None,
            "graph (hybridize)" if getattr(replica.network, "_active", False) else "eager",
            libraries.tf32_allowed(),
            weights=sum(int(np.prod(each.shape)) for each in trained),
            rate_in_velocity=True,
        )

    def held() -> list[np.ndarray]:
        return [each.asnumpy() for each in trained[-1].list_data()]

    return Watch(
        lambda: float(optimizer.learning_rate), lambda: int(optimizer.num_update), seen, held
    )


_CONSTANTS = {"momentum": "momentum", "epsilon": "epsilon", "beta 1": "beta1", "beta 2": "beta2"}
_CONSTANTS |= {"clip_gradient": "clip_gradient"}


def queued(device: Device) -> Callable[[], None] | None:
    """A copy of the first layer's weights comes after this step's update and before the next's."""
    if _Watched.first is None:
        return None
    copies = [weights.copy() for weights in _Watched.first.list_data()]

    def wait() -> None:
        for each in copies:
            each.wait_to_read()

    return wait


class _Watched:
    first: Any = None
    """The first layer's weights."""


def free_memory(devices: Sequence[Device]) -> None:
    for device in devices:
        if device.device_type == "gpu":
            device.empty_cache()


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    return [mx.nd.from_numpy(part.copy()) for part in (pixels, targets, numbers)]


def set_epoch(loader: Any, epoch: int) -> None:
    loader._batch_sampler.set_epoch(epoch)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    return float(mxnet_ranks.gathered(np.array(seconds)).max())


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    parameters = _named(model)
    weight_layout.refuse(sorted(parameters.keys() ^ weights.keys()))
    for name, parameter in parameters.items():
        array = mx.nd.array(weights[name], dtype=weights[name].dtype)
        try:  # a size that Gluon would infer at the first batch is set
            parameter._load_init(array, None, cast_dtype=True)
        except AssertionError as error:
            raise ValueError(f"weights do not fit the model: {name}: {error}") from None


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """BatchNorm's statistics, of which each device has its own, are means, as Gluon saves them."""
    return {name: _read(parameter) for name, parameter in _named(model).items()}


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
    optimizer = replica.optimizer
    # The weights count their steps from here, on every device.
    optimizer.optimizer.begin_num_update = optimizer.optimizer.num_update = int(state["step"])
    for updater, device in zip(optimizer._updaters, optimizer._contexts, strict=True):
        for number in range(len(optimizer._params)):
            kept = [mx.nd.array(array, device) for array in under(f"{number}/", state).values()]
            if kept:  # Adam's is a pair, momentum's the array itself, plain SGD's nothing
                updater.states[number] = tuple(kept) if len(kept) == 2 else kept[0]
                updater.states_synced[number] = True
    # Momentum's velocity has the last step's rate in it.
    optimizer.set_learning_rate(replica.schedule(step - 1))


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    """By the numbers of weights and arrays."""
    optimizer = replica.optimizer
    found = {"step": np.array(optimizer.optimizer.num_update)}
    for number, kept in optimizer._updaters[0].states.items():  # every device has the same
        for place, array in enumerate(kept if isinstance(kept, tuple) else (kept,)):
            if array is not None:
                found[f"{number}/{place}"] = array.asnumpy()
    return found


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """For ``collect_params().load_dict``."""
    recipe = RECIPES["chexnet"]

    def as_in_recipe(layer: Any) -> None:
        if isinstance(layer, gluon.nn.BatchNorm):
            layer._kwargs.update(eps=recipe.bn_epsilon, momentum=1 - recipe.bn_momentum)

    if not custom.is_own(model):
        model.apply(as_in_recipe)
    parameters = _named(model)
    weight_layout.refuse(sorted(parameters.keys() ^ weights.keys()))
    return {each.name: mx.nd.array(weights[name]) for name, each in parameters.items()}


def _named(model: Model) -> dict[str, Any]:
    """Those of a custom network have the names of ``save_parameters``, which are their paths."""
    if custom.is_own(model):
        return dict(model._collect_params_with_prefix())
    parameters = list(model.collect_params().values())
    return dict(zip(names_by_count(len(parameters)), parameters, strict=True))


def _read(parameter: Any) -> np.ndarray:
    copies = parameter.list_data()
    if parameter.grad_req != "null" or len(copies) == 1:
        return copies[0].asnumpy()
    mean = np.mean([copy.asnumpy() for copy in copies], axis=0, dtype=np.float64)
    return mean.astype(parameter.dtype)


def exact(build_model: BuildModel, weights: Mapping[str, np.ndarray]) -> Model:
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
    loss, found = _summed(model, images, targets, devices, "device")
    return loss / len(images), {name: each / len(images) for name, each in found.items()}


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """What ``Trainer.step(N)`` hands to its optimiser, with the store over all nodes."""
    here = rank_info.here()
    assert here is not None, "there is one node"
    x, y = (np.array_split(array, here.ranks)[here.rank] for array in (images, targets))
    own, found = _summed(model, x, y, devices, mxnet_ranks.kind())
    loss = mxnet_ranks.gathered(np.array(own)).sum()
    return float(loss) / len(images), {name: each / len(images) for name, each in found.items()}


def _summed(
    model: Model,
    images: np.ndarray,
    targets: np.ndarray,
    devices: Sequence[Device],
    store: str,
) -> tuple[float, dict[str, np.ndarray]]:
    """The sum of this process's losses, and of all processes' gradients by this store."""
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
        gluon.Trainer(parameters, "sgd", kvstore=store, update_on_kvstore=False).allreduce_grads()
        return sum(float(loss.sum().asscalar()) for loss in losses), {
            name: parameter.list_grad()[0].asnumpy()
            for name, parameter in _named(model).items()
            if parameter.grad_req != "null"
        }


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
    """BatchNorm with its running statistics, and no dropout, although gradients are recorded."""
    # ``record(train_mode=False)`` would do so too, but gives wrong gradients of convolutions.
    blocks: list[Any] = []
    model.apply(blocks.append)
    norms = [each for each in blocks if isinstance(each, gluon.nn.BatchNorm)]
    frozen: list[Any] = [
        (each, "_kwargs", {**each._kwargs, "use_global_stats": True}) for each in norms
    ]
    frozen += [(each, "_rate", 0) for each in blocks if isinstance(each, gluon.nn.Dropout)]
    before = [(each, name, getattr(each, name)) for each, name, _ in frozen]
    # The compiled graph holds the setting of the time it was traced, so do without it here.
    active, flags = model._active, dict(model._flags)
    model.hybridize(False)
    try:
        for change in frozen:
            setattr(*change)
        yield
    finally:
        for held in before:
            setattr(*held)
        model.hybridize(active, **flags)
