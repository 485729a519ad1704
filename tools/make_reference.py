"""Makes ``helpers/fairness/reference*.npz``, what each network computes in float64.

    .venvs/pytorch/bin/python tools/make_reference.py             all
    .venvs/pytorch/bin/python tools/make_reference.py resnet50    some, by name

PyTorch makes them once; every framework is held against them in its own kernel.
"""

import sys

import numpy as np
import torch
from torchvision.transforms.v2 import functional as transforms

from helpers.fairness import reference, reference_checks
from helpers.frameworks import pytorch as framework
from helpers.networks import pytorch as networks
from helpers.networks.shapes import NETWORKS, RUNNING
from helpers.recipe import RECIPES

ONE_DEVICE = framework.list_devices("cpu", 1)


def make(network: str) -> None:
    """Write the network's file; needs PyTorch."""
    found = of_network(network)
    if network == "densenet121":
        found |= of_shallow_net() | {"pixels": pixels()}
    np.savez_compressed(reference.KEPT[network].path, **found)  # type: ignore[arg-type]


def of_network(network: str) -> dict[str, np.ndarray]:
    """With BatchNorm frozen and in training mode."""
    kept, arrays = reference.KEPT[network], reference.arrays(network)
    grey, targets = reference.batch(network)
    images = reference.network_input(grey)

    def model() -> torch.nn.Module:
        made = networks.build(network, arrays, RECIPES["chexnet"])
        framework.load_weights(made, arrays)
        return made.double()

    found: dict[str, np.ndarray] = {"logits": framework.logits(model(), images)}
    loss, gradients = framework.gradients(model(), images, targets, ONE_DEVICE)
    found |= {"loss": np.array(loss)} | {name: gradients[name] for name in kept.gradients}

    trained = model().train()
    with torch.no_grad():
        found["train logits"] = trained(torch.tensor(images)).numpy()
    state = {name: tensor.numpy() for name, tensor in trained.state_dict().items()}
    statistics = [f"{norm}.{part}" for norm in kept.norms for part in RUNNING]
    return found | {name: state[name] for name in statistics}


def of_shallow_net() -> dict[str, np.ndarray]:
    """The optimisers' paths."""
    grey, targets = reference.batch()
    x, y = torch.tensor(reference.network_input(grey)), torch.tensor(targets)
    found: dict[str, np.ndarray] = {}
    for rule in reference.PATHS:
        doubles = {
            name: array.astype(np.float64) for name, array in reference.shallow_arrays().items()
        }
        trained = framework.shallow(doubles, ONE_DEVICE).train()
        losses = []
        optimizer = torch.optim.SGD if rule == "sgd" else torch.optim.Adam
        update = optimizer(trained.parameters(), lr=reference.RATES[rule.split()[0]])
        for step in range(1, reference.STEPS + 1):
            update.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(trained(x), y.double())
            loss.backward()
            if rule == reference.EPSILON_FIRST:
                (_, beta2), epsilon = RECIPES["chexnet"].adam_betas, RECIPES["chexnet"].adam_epsilon
                update.param_groups[0]["eps"] = epsilon / (1 - beta2**step) ** 0.5
            update.step()
            losses.append(loss.item())
        found[f"{rule} losses"] = np.array(losses)
        for name, array in framework.dump_weights(trained).items():
            found[f"{rule} {name}"] = array.astype(np.float32)
    return found


def pixels() -> np.ndarray:
    """What the demo recipe's evaluation makes of an image, by torchvision."""
    demo = RECIPES["demo"]
    crop = transforms.center_crop(
        torch.tensor(reference_checks.canonical_image(demo.resized))[None], [demo.crop]
    )
    rgb = transforms.to_dtype(crop, scale=True).repeat(3, 1, 1)
    found: np.ndarray = transforms.normalize(rgb, list(demo.mean), list(demo.std)).numpy()
    return found


if __name__ == "__main__":
    for network in sys.argv[1:] or NETWORKS:
        make(network)
