"""One set of a network's weights for all frameworks, as NumPy arrays in torchvision's layout.

Either ImageNet's (torchvision's, fetched and converted once, then cached under ``data/weights``)
or made from a seed by NumPy, the same bytes in every kernel. The last layer always comes from the
seed.
"""

import contextlib
import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file as load
from safetensors.numpy import save as to_bytes

from data_prep.files import write_atomic
from helpers import paths
from helpers.errors import UserError
from helpers.networks.shapes import head, shapes

Arrays = dict[str, np.ndarray]

PUBLISHED = ("densenet121", "resnet50")
"""The networks whose weights torchvision has, its IMAGENET1K_V1."""

CACHE = paths.DATA / "weights"


@dataclass(frozen=True)
class Weights:
    """Canonical weights: ``arrays`` by torchvision's names, float32; convolutions are OIHW."""

    arrays: Arrays
    source: str  # "imagenet" or "random"
    note: str

    @property
    def sha256(self) -> str:
        return digest(self.arrays)

    def __str__(self) -> str:
        return f"Weights: {self.source} ({self.note}), SHA-256 {self.sha256[:12]}"


def canonical(
    source: str = "auto", *, network: str = "densenet121", outputs: int = 14, seed: int = 0
) -> Weights:
    """The weights of one of ``shapes.NETWORKS`` that every framework starts from.

    ``auto`` is ImageNet's where they can be had.

    Raises:
        UserError: ImageNet's were demanded and cannot be had.
    """
    arrays, note = seeded(outputs, seed, network), f"He-normal from seed {seed}"
    if source != "random":
        try:
            arrays |= _imagenet_backbone(network)
            return Weights(arrays, "imagenet", f"torchvision's, with a classifier from seed {seed}")
        except (OSError, UserError) as error:
            if source == "imagenet":
                raise UserError(f"no ImageNet weights ({error}); use weights=random") from None
            note = f"seed {seed}, because the ImageNet weights are unavailable: {error}"
    return Weights(arrays, "random", note)


def seeded(outputs: int = 14, seed: int = 0, network: str = "densenet121") -> Arrays:
    """Weights from ``seed``, distributed as torchvision initialises the network.

    Convolutions are He-normal (He et al. 2015) over their fan-in in a DenseNet and over their
    fan-out in a ResNet, BatchNorm is the identity, the last layer uniform within 1/sqrt(fan-in)
    and its bias zero.
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
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays[name] for name in names}


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
    """Write arrays and their metadata as safetensors, completely even after a power cut.

    Raises:
        OSError: it cannot be written; an older file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # "C" leaves a scalar one, of which ascontiguousarray makes a vector.
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    write_atomic(path, to_bytes(whole, metadata), durable=True)


def fetch_imagenet(cache: Path, network: str) -> None:
    """Fetch torchvision's published weights, whose digest it checks, and cache them; by PyTorch."""
    from torchvision.models import get_model

    state = get_model(network, weights="IMAGENET1K_V1").state_dict()
    last = f"{head(network)}."
    save(cache, {n: state[n].numpy() for n in shapes(network) if not n.startswith(last)})


def _imagenet_backbone(network: str) -> Arrays:
    if network not in PUBLISHED:
        raise UserError(f"no published ImageNet weights exist for {network}")
    cache = CACHE / f"{network}-imagenet.safetensors"
    with contextlib.suppress(FileNotFoundError, SafetensorError):  # not fetched yet, or damaged
        return load(cache)
    here = importlib.util.find_spec("torchvision") is not None
    python = Path(sys.executable) if here else paths.VENVS / "pytorch" / "bin" / "python"
    if not python.exists():
        raise UserError("the pytorch environment, which reads torchvision's file, is missing")
    command = [str(python), "-m", "helpers.networks.weights", str(cache), network]
    done = subprocess.run(command, capture_output=True, text=True, cwd=paths.ROOT)
    if done.returncode:
        raise UserError((done.stderr.strip().splitlines() or ["conversion failed"])[-1])
    return load(cache)


if __name__ == "__main__":
    fetch_imagenet(Path(sys.argv[1]), sys.argv[2])
