"""GPUs and NCCL for Chainer without either: arrays are NumPy's, processes are forked for real.

Only what needs the hardware is replaced: the device, the driver's answer whether CUDA has been
started, and NCCL's two collectives, here in memory that the forked processes share. A process that
was forked from one with CUDA started may not use a GPU, as it may not in truth.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import chainer
import numpy as np
from chainer.backends._cpu import CpuDevice
from chainer.training.updaters import multiprocess_parallel_updater as updater

from helpers.frameworks import chainer as framework
from helpers.frameworks import replicas

HUNG = 120.0
"""Seconds after which a collective that some process never joins is an error, and not a wait."""

started: set[int] = set()
"""Processes in which CUDA was started; a forked one knows what its parents did."""


class CUDADriverError(Exception):
    pass


def start_cuda() -> None:
    assert started <= {os.getpid()}, "forked from a process that had started CUDA"
    started.add(os.getpid())


def current_context() -> int:
    if os.getpid() not in started:
        raise CUDADriverError("CUDA_ERROR_NOT_INITIALIZED")
    return 1


class Gpu(CpuDevice):
    """A device of its own whose arrays are NumPy's; to use it starts CUDA."""

    def __init__(self, number: int) -> None:
        self.number = number

    name = property(lambda self: f"@gpu:{self.number}")
    device = property(lambda self: SimpleNamespace(synchronize=start_cuda))
    __hash__ = CpuDevice.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gpu) and other.number == self.number

    def use(self) -> None:
        start_cuda()

    def create_context(self) -> Any:
        start_cuda()
        return super().create_context()

    def send_array(self, array: np.ndarray) -> np.ndarray:
        start_cuda()
        return np.array(array)


def synchronize(devices: Sequence[Gpu]) -> None:
    """The framework's, which waits for the GPUs of CuPy only, and does not start CUDA."""
    for device in devices:
        if os.getpid() in started:
            device.device.synchronize()


class Pointed(np.ndarray):
    """An array whose "address" on the GPU is the array itself."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.view(np.ndarray))


def gathered(link: chainer.Link, what: str) -> np.ndarray:
    arrays = [getattr(parameter, what) for _, parameter in sorted(link.namedparams())]
    return np.concatenate([array.ravel() for array in arrays]).view(Pointed)


def scatter(link: chainer.Link, array: np.ndarray, what: str) -> None:
    begin = 0
    for _, parameter in sorted(link.namedparams()):
        piece = np.array(array[begin : begin + parameter.size]).reshape(parameter.shape)
        begin += parameter.size
        setattr(parameter, what, piece)


def install(gpus: int, floats: int) -> None:
    """Put the stand-ins in place, for up to ``floats`` numbers in a collective."""
    shared = multiprocessing.RawArray("f", floats * (gpus + 1))
    rows = np.frombuffer(shared, np.float32).reshape(gpus + 1, floats)
    barrier = multiprocessing.Barrier(gpus, timeout=HUNG)

    class Communicator:
        def __init__(self, count: int, identity: int, rank: int) -> None:
            assert count == gpus
            start_cuda()
            self.rank = rank

        def reduce(self, source: Any, target: Any, count: int, *rest: Any) -> None:
            rows[self.rank, :count] = source
            barrier.wait()
            if self.rank == 0:
                target[:] = rows[:gpus, :count].sum(axis=0)
            barrier.wait()

        def bcast(self, array: Any, count: int, *rest: Any) -> None:
            if self.rank == 0:
                rows[gpus, :count] = array
            barrier.wait()
            array[:] = rows[gpus, :count]
            barrier.wait()

    driver = SimpleNamespace(ctxGetCurrent=current_context, CUDADriverError=CUDADriverError)
    stand_ins = {
        "_available": True,
        "nccl": SimpleNamespace(
            NcclCommunicator=Communicator, get_unique_id=lambda: 1, NCCL_SUM=0, NCCL_FLOAT=0
        ),
        "cuda": SimpleNamespace(
            cupy=SimpleNamespace(cuda=SimpleNamespace(driver=driver)),
            Stream=SimpleNamespace(null=SimpleNamespace(ptr=0)),
        ),
        "gather_grads": lambda link: gathered(link, "grad"),
        "gather_params": lambda link: gathered(link, "array"),
        "scatter_grads": lambda link, array: scatter(link, array, "grad"),
        "scatter_params": lambda link, array: scatter(link, array, "array"),
    }
    for name, value in stand_ins.items():
        setattr(updater, name, value)
    framework.synchronize = synchronize


class OnGpus:
    """A replica's function, with the stand-ins in place before it begins."""

    def __init__(self, function: Callable[..., Any], gpus: int, floats: int) -> None:
        self.function, self.gpus, self.floats = function, gpus, floats

    @property
    def __globals__(self) -> dict[str, Any]:  # what it imports is to be imported once
        return self.function.__globals__

    def __call__(self, *given: Any) -> Any:
        install(self.gpus, self.floats)
        return self.function(*given)


def runs_on(gpus: int, floats: int) -> Callable[..., list[Any]]:
    """``replicas.run`` for a machine with so many GPUs."""
    run = replicas.run

    def run_there(function: Callable[..., Any], count: int, *given: Any, **how: Any) -> list[Any]:
        return run(OnGpus(function, gpus, floats), count, *given, **how)

    return run_there
