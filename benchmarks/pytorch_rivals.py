"""Others' training loops of the same network, for `benchmarks/rivals.py`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, repeat
from typing import TypeAlias

import torch
from notebook_loops import Take
from torch import nn
from torchvision.models import densenet121

from data_prep import FINDINGS

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]


def article(device: torch.device, noise: Batch, files: Iterable[Batch]) -> tuple[Take, Take]:
    """The article's loop in today's PyTorch, on a batch that is there already and on files.

    Source: repository ilkarman/DeepLearningFrameworks, notebooks/PyTorch_MultiGPU.ipynb, get_symbol
    to train_epoch. Written anew; what it does and in which order is the article's: sigmoid in the
    network, DataParallel with the loss on the first device, batches as they come from the loader
    (float32, three planes, normalised), and the loss read in every step.

    What had to change: the weights are random, for there may be no network to fetch them from.
    """
    model = densenet121(weights=None)
    model.classifier = nn.Sequential(
        nn.Linear(model.classifier.in_features, len(FINDINGS)), nn.Sigmoid()
    )
    parallel = nn.DataParallel(model.to(device), [device] if device.type == "cuda" else None)
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(parallel.parameters(), lr=1e-4, betas=(0.9, 0.999))

    def train(batches: Iterable[Batch]) -> float:
        parallel.train()
        total = 0.0
        for data, target in batches:
            data, target = data.to(device), target.to(device, non_blocking=True)
            loss = criterion(parallel(data), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    def take(batches: Iterable[Batch]) -> Take:
        stream = iter(batches)
        return as_pytorch_comes(lambda steps: train(islice(stream, steps)), products=False)

    return take(repeat(noise)), take(files)


def timm_step(
    device: torch.device, images: torch.Tensor, cast: torch.dtype | None, channels_last: bool
) -> Take:
    """The step of timm's own benchmark, for its DenseNet121.

    Source: repository huggingface/pytorch-image-models, benchmark.py, TrainBenchmarkRunner. Written
    anew with timm's model and optimiser: 1,000 classes, cross-entropy to targets drawn in each
    step, SGD, and a wait for the device after each step.
    """
    import timm
    from timm.optim import create_optimizer_v2

    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = timm.create_model("densenet121").to(device, memory_format=layout).train()
    images = images.contiguous(memory_format=layout)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4)
    criterion = nn.CrossEntropyLoss()

    def take(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast(device.type, cast, enabled=cast is not None):
                output = model(images)
                target = torch.empty(len(output), device=device, dtype=torch.long)
                criterion(output, target.random_(output.shape[1])).backward()
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)

    return as_pytorch_comes(take, products=True)


def as_pytorch_comes(take: Take, *, products: bool) -> Take:
    """``take`` with convolutions in TF32, PyTorch's default; ``products`` adds matrix products.

    The notebook sets these for the whole process, to what its recipe's precision says.
    """

    def switched(steps: int) -> None:
        cudnn, cublas = torch.backends.cudnn, torch.backends.cuda.matmul
        before = cudnn.allow_tf32, cublas.allow_tf32
        cudnn.allow_tf32, cublas.allow_tf32 = True, products
        try:
            take(steps)
        finally:
            cudnn.allow_tf32, cublas.allow_tf32 = before

    return switched
