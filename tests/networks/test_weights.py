import json
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


def said_in(kernel: str, code: str, *words: str, **environment: str) -> str:
    """What a program prints in a kernel's environment."""
    python = paths.VENVS / kernel / "bin" / "python"
    if not python.exists():
        pytest.skip(f"the {kernel} environment is not built")
    command, env = [str(python), "-c", code, *words], os.environ | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_seeded_weights_are_the_same_bytes_everywhere() -> None:
    # One digest for every kernel: NumPy 1.23 (mxnet, chainer) and 2 alike.
    assert weights.canonical("random", seed=0).sha256.startswith("35911202cadc3978")
    assert weights.canonical("random", seed=1).sha256 != weights.canonical("random").sha256


@pytest.mark.parametrize("kernel", sorted({row.kernel for row in ROWS}))
def test_same_bytes_in_kernel(kernel: str) -> None:
    code = (
        "from helpers.networks import shapes, weights\n"
        "for name in shapes.NETWORKS: print(weights.canonical('random', network=name).sha256)"
    )
    expected = [weights.canonical("random", network=name).sha256 for name in shapes.NETWORKS]
    assert said_in(kernel, code).split() == expected


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
    seeded = weights.canonical("random", network="resnet44", outputs=10, seed=3)
    assert found.sha256 == seeded.sha256
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
    said_in("pytorch", FETCH, str(tmp_path), network, TORCH_HOME=str(tmp_path))
    arrays = weights.load(tmp_path / "cache.safetensors")
    last = shapes.head(network)
    expected = {n: s for n, s in shapes.shapes(network).items() if not n.startswith(last)}
    assert {name: array.shape for name, array in arrays.items()} == expected


@pytest.mark.parametrize(
    ("network", "outputs", "parameters"),
    [
        ("densenet121", 1000, 7_978_856),  # torchvision's documentation
        ("densenet121", 14, 6_968_206),
        ("resnet50", 1000, 25_557_032),  # torchvision's documentation
        ("resnet44", 10, 658_586),  # He et al. 2015, table 6: 0.66 million
    ],
)
def test_parameters_are_those_published(network: str, outputs: int, parameters: int) -> None:
    found = shapes.shapes(network, outputs)
    trained = [name for name in found if not name.endswith(shapes.RUNNING)]
    assert sum(np.prod(found[name]) for name in trained) == parameters


LAYOUT = """
import json, torch
from helpers.networks import pytorch, weights
from helpers.networks.shapes import NETWORKS
from helpers.recipe import RECIPES
for network in NETWORKS:
    arrays = weights.seeded(14, 0, network)
    with torch.device("meta"):
        state = pytorch.build(network, arrays, RECIPES["chexnet"]).state_dict()
    print(json.dumps([(n, v.shape) for n, v in state.items() if "num_batches" not in n]))
"""


def test_names_shapes_and_order_are_torchvisions() -> None:
    said = said_in("pytorch", LAYOUT).splitlines()
    for network, line in zip(shapes.NETWORKS, said, strict=True):
        there = [(name, tuple(shape)) for name, shape in json.loads(line)]
        assert there == list(shapes.shapes(network).items())


def test_a_net_is_known_by_its_number_of_arrays() -> None:
    known = [list(shapes.shapes(name)) for name in (shapes.SHALLOW, *shapes.NETWORKS)]
    assert len({len(names) for names in known}) == len(known)
    for names in known:
        assert shapes.names_by_count(len(names)) == names
    with pytest.raises(ValueError, match="8 arrays is none of densenet121, resnet44, resnet50"):
        shapes.names_by_count(8)


@pytest.mark.parametrize("network", shapes.NETWORKS)
def test_the_outputs_are_told_by_the_weights(network: str) -> None:
    arrays = {name: np.zeros(shape) for name, shape in shapes.shapes(network, 5).items()}
    assert shapes.outputs_of(network, arrays) == 5
