"""Compare precisions in PyTorch: the time of a training step, and what the network learns.

    .venvs/pytorch/bin/python benchmarks/precision.py [--quick] [--batch-size 16] [--steps 2]
                                                      [--rounds 7] [--seeds 5] [--epochs 4]

Time: DenseNet121 on one synthetic batch of 64 px (GPUs: 224 px), by speeds. Learning: from the
weights of each seed, all precisions train on the same batches of generated X-rays of 32 px, on CPUs
a narrow DenseNet. Results are relative to fp32 in the same round or for the same seed, with 95 %
intervals, of medians for the time and of means for the loss of the last epoch and the AUC. CPUs
have no instructions for tf32 and few for fp16, which are left out there.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias

import common
import numpy as np
import pandas as pd
from interleaved import measure_loads, report_loads
from sklearn.metrics import roc_auc_score

import data_prep
from helpers.recipe import lookup
from helpers.results import intervals

Split: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Grey images, uint8 (N, 1, side, side), and their findings."""
RECIPE, MARGIN = lookup("demo"), 6
BATCH, RATE = 64, 1e-3
"""The trainings' learning rate: with the recipe's own, so short a training shows nothing."""
CASTS = {"bf16": "bfloat16", "fp16": "float16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, default in (("batch-size", 16), ("steps", 2), ("rounds", 7), ("images", 1600)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each precision")
    parser.add_argument("--epochs", type=int, default=4, help="of each training")
    given = common.parse(parser, seeds=2, epochs=1, images=160)
    import torch  # the lab has none

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    precisions = ["fp32", "tf32", "bf16", "fp16"] if kind == "cuda" else ["fp32", "bf16"]
    side = 224 if kind == "cuda" else 64
    noise = np.random.default_rng(0).integers(0, 256, (given.batch_size, 1, side, side), np.uint8)
    batch = noise, np.zeros((given.batch_size, len(data_prep.FINDINGS)), np.float32)

    def take(precision: str) -> Callable[[int], Any]:
        train, _ = make_training(precision, 0, kind, narrow=False)
        return lambda steps: train(batch for _ in range(steps))

    loads = {precision: take(precision) for precision in precisions}
    speeds = measure_loads(loads, given.batch_size, given.rounds, given.steps)
    of = f"DenseNet121, {given.batch_size} images of {side} px"
    for precision in precisions[1:]:
        report_loads(f"{precision} step, {of}", speeds, precision, "fp32")
    found = pd.DataFrame(learned(precisions, kind, given)).set_index(["seed", "precision"])
    print("\n| precision | step / fp32's: clock | processor | AUC | AUC - fp32's | loss - fp32's |")
    print("|---|---|---|---|---|---|")
    by_seed = found.unstack()
    for precision in precisions:
        pairs = [(each["fp32"], each[precision]) for each in speeds]
        cells = [intervals.of_median(np.divide(*pair).tolist()) for pair in pairs]
        cells += [intervals.interval(by_seed["AUC"][precision])]
        cells += [intervals.interval(by_seed[w][precision] - by_seed[w]["fp32"]) for w in found]
        forms = (".2f", ".2f", ".3f", "+.3f", "+.4f")
        texts = [each.text(form) for each, form in zip(cells, forms, strict=True)]
        print(f"| {' | '.join([precision, *texts])} |")


def make_training(precision: str, seed: int, kind: str, narrow: bool) -> tuple[Any, Any]:
    """A function that trains on batches, and one that gives logits."""
    import torch
    from torchvision.models import DenseNet, densenet121

    from helpers.frameworks import pytorch as framework

    device, findings = torch.device(kind), len(data_prep.FINDINGS)
    torch.manual_seed(seed)
    shape = (8, (2, 4, 6, 4), 16)
    model = DenseNet(*shape, num_classes=findings) if narrow else densenet121(num_classes=findings)
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), RATE, fused=True)
    scaler = torch.amp.GradScaler(kind, enabled=precision == "fp16")
    cast = getattr(torch, CASTS.get(precision, ""), None)

    def logits(pixels: np.ndarray) -> Any:
        framework.configure(precision, "gpu" if kind == "cuda" else "cpu")
        inputs = torch.from_numpy(pixels).to(device).float() / 255
        inputs = ((inputs - np.mean(RECIPE.mean)) / np.mean(RECIPE.std)).expand(-1, 3, -1, -1)
        with torch.autocast(kind, cast, enabled=cast is not None):
            return model(inputs).float()

    def train(batches: Iterator[Split]) -> np.ndarray:
        """The losses, read when all steps are done."""
        losses = []
        for pixels, targets in batches:
            optimizer.zero_grad()
            goal = torch.from_numpy(targets).to(device)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits(pixels), goal)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return torch.stack(losses).cpu().numpy()

    @torch.inference_mode()
    def predict(pixels: np.ndarray) -> np.ndarray:
        model.eval()
        return np.concatenate([logits(split).cpu() for split in np.array_split(pixels, 8)])

    return train, predict


def learned(
    precisions: list[str], kind: str, given: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """AUC and the mean loss of the last epoch, of each seed and precision."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        size = RECIPE.crop + MARGIN
        data_prep.generate_nih(Path(folder), images=given.images, size=size, progress=False)
        reader = data_prep.open_reader("nih", folder, seed=0)
        splits = {split: reader.table().iloc[rows] for split, rows in reader.splits().items()}
        train_split = read(splits["train"])
        pixels, labels = read(pd.concat([splits["valid"], splits["test"]]))
    low, high = MARGIN // 2, MARGIN // 2 + RECIPE.crop
    known = [k for k, n in enumerate(labels.sum(0)) if 5 <= n <= len(labels) - 5]
    steps = len(train_split[0]) // BATCH
    for seed in range(given.seeds):
        for precision in precisions:
            train, predict = make_training(precision, seed, kind, narrow=kind == "cpu")
            losses = train(batches(train_split, seed, given.epochs))
            scores = predict(pixels[:, :, low:high, low:high])
            auc = roc_auc_score(labels[:, known], scores[:, known])
            loss = float(losses[-steps:].mean())
            yield {"seed": seed, "precision": precision, "AUC": auc, "loss": loss}


def read(split: pd.DataFrame) -> Split:
    pixels = np.stack([data_prep.read_grey(path) for path in split["path"]])
    return pixels[:, None], split[[*data_prep.FINDINGS]].to_numpy(np.float32)


def batches(split: Split, seed: int, epochs: int) -> Iterator[Split]:
    """The same for every precision: a random order, and a random crop of each batch."""
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        order = random.permutation(len(split[0]))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            rows, (y, x) = order[first : first + BATCH], random.integers(0, MARGIN + 1, 2)
            yield split[0][rows, :, y : y + RECIPE.crop, x : x + RECIPE.crop], split[1][rows]


if __name__ == "__main__":
    main()
