import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import ROWS
from helpers.networks import shapes, weights


def test_seeded_weights_are_the_same_bytes_everywhere() -> None:
    # One digest for every kernel: NumPy 1.23 (mxnet, chainer) and 2 alike.
    assert weights.canonical("random", seed=0).sha256.startswith("35911202cadc3978")
    assert weights.canonical("random", seed=1).sha256 != weights.canonical("random").sha256


@pytest.mark.parametrize("kernel", sorted({row.kernel for row in ROWS}))
def test_same_bytes_in_kernel(kernel: str) -> None:
    python = paths.VENVS / kernel / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the {kernel} environment is not built")
    code = (
        "from helpers.networks import shapes, weights\n"
        "for name in shapes.NETWORKS: print(weights.canonical('random', network=name).sha256)"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    expected = [weights.canonical("random", network=name).sha256 for name in shapes.NETWORKS]
    assert done.stdout.split() == expected


def test_seeded_weights_are_he_normal() -> None:
    arrays = weights.seeded(seed=3)
    kernel = arrays["features.denseblock4.denselayer16.conv1.weight"]
    assert kernel.std() == pytest.approx(np.sqrt(2 / kernel.shape[1]), rel=0.02)
    assert arrays["features.norm0.running_var"].tolist() == [1.0] * 64
    assert abs(arrays["classifier.weight"]).max() <= 1 / 32


@pytest.mark.parametrize("name", ["layer4.0.conv1", "layer4.0.conv3", "layer4.0.downsample.0"])
def test_a_resnets_are_over_the_fan_out(name: str) -> None:
    """As torchvision's, where a DenseNet's are over the fan-in."""
    arrays = weights.seeded(outputs=10, network="resnet50")
    kernel = arrays[f"{name}.weight"]
    assert kernel.shape[0] != kernel.shape[1]
    assert kernel.std() == pytest.approx(np.sqrt(2 / kernel.shape[0]), rel=0.02)
    assert abs(arrays["fc.weight"]).max() <= 1 / np.sqrt(2048)
    assert arrays["fc.bias"].tolist() == [0.0] * 10


def test_none_publishes_imagenets_weights_of_resnet44() -> None:
    found = weights.canonical("auto", network="resnet44", outputs=10, seed=3)
    assert found.source == "random" and "no published ImageNet weights" in found.note
    assert (
        found.sha256 == weights.canonical("random", network="resnet44", outputs=10, seed=3).sha256
    )
    with pytest.raises(UserError, match=r"resnet44\); use weights=random"):
        weights.canonical("imagenet", network="resnet44")


def test_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    arrays = weights.seeded()
    weights.save(tmp_path / "w.safetensors", arrays)
    assert weights.digest(weights.load(tmp_path / "w.safetensors")) == weights.digest(arrays)
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_auto_falls_back_to_seeded_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "CACHE", tmp_path)
    monkeypatch.setattr(paths, "VENVS", tmp_path)
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    found = weights.canonical("auto")
    assert found.source == "random" and "pytorch environment" in found.note
    with pytest.raises(UserError, match="weights=random"):
        weights.canonical("imagenet")
    with pytest.raises(UserError, match="give imagenet, random or auto"):
        weights.canonical("imagnet")


def test_a_damaged_file_of_imagenets_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power cut leaves it; else every run on ImageNet's weights would fail for good."""
    cache = tmp_path / "densenet121-imagenet.safetensors"
    monkeypatch.setattr(weights, "CACHE", tmp_path)
    backbone = {"features.conv0.weight": weights.seeded()["features.conv0.weight"]}

    def fetch(*given: Any, **how: Any) -> SimpleNamespace:
        weights.save(cache, backbone)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(weights.subprocess, "run", fetch)
    cache.write_bytes(b"")
    assert weights.canonical("imagenet").source == "imagenet"
    assert weights.load(cache).keys() == backbone.keys()


FETCH = """
import re, sys, torch, torchvision
from pathlib import Path
from helpers.networks import weights
folder, network = Path(sys.argv[1]), sys.argv[2]
state = getattr(torchvision.models, network)(weights=None).state_dict()
old = {re.sub(r"(denselayer\\d+\\.(?:norm|conv))(\\d)", r"\\1.\\2", k): v for k, v in state.items()
       if "num_batches" not in k}
url = torchvision.models.get_model_weights(network).IMAGENET1K_V1.url
(folder / "hub/checkpoints").mkdir(parents=True)
torch.save(old, folder / "hub/checkpoints" / url.rpartition("/")[2])  # as if it were fetched
weights.fetch_imagenet(folder / "cache.safetensors", network)
"""


@pytest.mark.parametrize("network", ["densenet121", "resnet50"])
def test_torchvisions_file_is_converted(network: str, tmp_path: Path) -> None:
    """A file in the published form (old key names) is renamed and cached."""
    python = paths.VENVS / "pytorch" / "bin" / "python"
    if not python.exists():
        pytest.skip("the pytorch environment is not built")
    words, env = [str(python), "-c", FETCH, str(tmp_path), network], {"TORCH_HOME": str(tmp_path)}
    subprocess.run(words, env=os.environ | env, capture_output=True, text=True, check=True)
    arrays = weights.load(tmp_path / "cache.safetensors")
    last = shapes.head(network)
    expected = {n: s for n, s in shapes.shapes(network).items() if not n.startswith(last)}
    assert {name: array.shape for name, array in arrays.items()} == expected
