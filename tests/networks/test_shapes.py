import json
import subprocess

import numpy as np
import pytest

from helpers import paths
from helpers.networks import shapes


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
    python = paths.VENVS / "pytorch" / "bin" / "python"
    if not python.exists():
        pytest.skip("the pytorch environment is not built")
    done = subprocess.run([python, "-c", LAYOUT], capture_output=True, text=True, check=True)
    for network, line in zip(shapes.NETWORKS, done.stdout.splitlines(), strict=True):
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
