"""One set of a network's weights for all frameworks, as NumPy arrays in torchvision's layout.

Either ImageNet's (torchvision's published file, fetched and converted once, then cached under
``data/weights``) or made from a seed by NumPy, the same bytes in every kernel. The last layer
always comes from the seed. Names and shapes: ``helpers.networks.shapes``.
"""

import contextlib
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from data_prep.files import sync_file
from helpers import paths
from helpers.errors import UserError
from helpers.networks.shapes import head, shapes

Arrays = dict[str, np.ndarray]

IMAGENET = {
    "densenet121": "https://download.pytorch.org/models/densenet121-a639ec97.pth",
    "resnet50": "https://download.pytorch.org/models/resnet50-0676ba61.pth",
}
"""torchvision's IMAGENET1K_V1 of each network; a file's name ends in its SHA-256's beginning."""

CACHE = paths.DATA / "weights"


@dataclass(frozen=True)
class Weights:
    """Canonical weights: ``arrays`` by torchvision's names, float32; convolutions are OIHW."""

    arrays: Arrays
    source: str  # "imagenet" or "random"
    note: str

    @property
    def sha256(self) -> str:
        """Digest over names and bytes, equal in every kernel that starts from the same model."""
        return digest(self.arrays)

    def __str__(self) -> str:
        return f"Weights: {self.source} ({self.note}), SHA-256 {self.sha256[:12]}"

    def as_record(self) -> dict[str, str]:
        return {"source": self.source, "sha256": self.sha256, "note": self.note}


def canonical(
    source: str = "auto", *, network: str = "densenet121", outputs: int = 14, seed: int = 0
) -> Weights:
    """The weights every framework starts from.

    Args:
        source: ``imagenet``, ``random``, or ``auto`` (ImageNet's where they can be had).
        network: one of ``shapes.NETWORKS``.

    Raises:
        UserError: unknown source, or ImageNet's were demanded and cannot be had.
    """
    if source not in ("auto", "imagenet", "random"):
        raise UserError(f"weights '{source}': give imagenet, random or auto")
    arrays = seeded(outputs, seed, network)
    if source == "random":
        return Weights(arrays, "random", f"He-normal from seed {seed}")
    try:
        backbone = _imagenet_backbone(network)
    except (OSError, UserError) as error:
        if source == "imagenet":
            raise UserError(f"no ImageNet weights ({error}); use weights=random") from None
        return Weights(
            arrays, "random", f"seed {seed}, because the ImageNet weights are unavailable: {error}"
        )
    note = f"torchvision's, with a classifier from seed {seed}"
    return Weights({**arrays, **backbone}, "imagenet", note)


def seeded(outputs: int = 14, seed: int = 0, network: str = "densenet121") -> Arrays:
    """Weights from ``seed``, distributed as torchvision initialises the network.

    Convolutions are He-normal (He et al. 2015) over their fan-in in a DenseNet and over their
    fan-out in a ResNet, BatchNorm is the identity, the last layer uniform within 1/sqrt(fan-in)
    and its bias zero.

    Args:
        outputs: how many findings or classes.
        seed: of the random numbers.
        network: one of ``helpers.networks.shapes.NETWORKS``.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    arrays: Arrays = {}
    for name, shape in shapes(network, outputs).items():
        if len(shape) == 2:
            bound = 1 / np.sqrt(shape[1])
            arrays[name] = random.uniform(-bound, bound, shape).astype(np.float32)
        elif len(shape) == 4:
            channels = shape[1] if network.startswith("densenet") else shape[0]
            deviation = np.sqrt(2 / (channels * np.prod(shape[2:])))
            arrays[name] = (random.standard_normal(shape) * deviation).astype(np.float32)
        else:
            is_one = name.endswith((".weight", ".running_var"))
            arrays[name] = np.full(shape, float(is_one), np.float32)
    return arrays


def under(prefix: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The arrays whose names begin with ``prefix``, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names and bytes in torchvision's order."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name], dtype="<f4").tobytes())
    return total.hexdigest()


def save(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None
) -> None:
    """Write arrays, and what is said of them, as safetensors: whole, also after a power cut.

    Raises:
        OSError, SafetensorError: it cannot be written; an older file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    try:
        whole = {name: _contiguous(array) for name, array in arrays.items()}
        save_file(whole, temporary, metadata=metadata)
        # A name can reach the disk before what is in the file does.
        sync_file(temporary)
        temporary.replace(path)
        sync_file(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _contiguous(array: np.ndarray) -> np.ndarray:
    # ascontiguousarray would make a vector of a scalar.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def load(path: Path) -> Arrays:
    """Read a checkpoint written by :func:`save`."""
    return load_file(path)


def metadata(path: Path) -> dict[str, str]:
    """The metadata that :func:`save` stored with the arrays.

    Raises:
        OSError, SafetensorError: it cannot be read.
    """
    with safe_open(path, "numpy") as file:
        return file.metadata() or {}


def convert_imagenet(cache: Path, url: str, network: str = "densenet121") -> None:
    """Fetch torchvision's file, check its SHA-256 against its name, and cache it as safetensors.

    Needs PyTorch, which alone reads that file's format.

    Args:
        cache: the file to be written.
        url: torchvision's, whose name ends with the digest's first digits.
        network: the one whose weights these are.

    Raises:
        UserError: the file is damaged, or has other weights.
    """
    import torch

    with tempfile.NamedTemporaryFile(suffix=".pth") as file:
        with urllib.request.urlopen(url, timeout=60) as answer:
            shutil.copyfileobj(answer, file)
        file.flush()
        expected = url.rsplit("-", 1)[1].removesuffix(".pth")
        found = hashlib.sha256(Path(file.name).read_bytes()).hexdigest()
        if not found.startswith(expected):
            raise UserError(f"{url}: SHA-256 {found[:8]} is not {expected}; the file is damaged")
        state = torch.load(file.name, map_location="cpu", weights_only=True)
    # DenseNet's file is from 2017 and writes denselayer1.norm.1 where today's model has norm1.
    old = re.compile(r"(.*denselayer\d+\.(?:norm|conv))\.(\d\..*)")
    arrays = {old.sub(r"\1\2", name): tensor.numpy() for name, tensor in state.items()}
    last = f"{head(network)}."
    wanted = {n: shape for n, shape in shapes(network).items() if not n.startswith(last)}
    backbone = {name: arrays[name].astype(np.float32) for name in wanted}
    for name, shape in wanted.items():
        if backbone[name].shape != shape:
            raise UserError(f"{url}: {name} is {backbone[name].shape}, expected {shape}")
    save(cache, backbone)


def _imagenet_backbone(network: str) -> Arrays:
    if network not in IMAGENET:
        raise UserError(f"no published ImageNet weights exist for {network}")
    cache = CACHE / f"{network}-imagenet.safetensors"
    with contextlib.suppress(FileNotFoundError, SafetensorError):  # not fetched yet, or damaged
        return load(cache)
    if importlib.util.find_spec("torch"):
        convert_imagenet(cache, IMAGENET[network], network)
    else:
        _convert_in_pytorch_kernel(cache, network)
    return load(cache)


def _convert_in_pytorch_kernel(cache: Path, network: str) -> None:
    python = paths.VENVS / "pytorch" / "bin" / "python"
    if not python.exists():
        raise UserError("the pytorch environment, which converts torchvision's file, is missing")
    command = [str(python), "-m", "helpers.networks.weights", str(cache)]
    command += [IMAGENET[network], network]
    done = subprocess.run(command, capture_output=True, text=True, cwd=paths.ROOT)
    if done.returncode:
        raise UserError((done.stderr.strip().splitlines() or ["conversion failed"])[-1])


if __name__ == "__main__":
    try:
        convert_imagenet(Path(sys.argv[1]), *sys.argv[2:])
    except (OSError, UserError) as error:
        sys.exit(str(error))
