"""Write ``helpers/fairness/reference*.npz``, the results of each network in float64.

    .venvs/pytorch/bin/python tools/make_reference.py             all
    .venvs/pytorch/bin/python tools/make_reference.py resnet50    some, by name: networks, classes

PyTorch computes them once; every framework is compared with them in its environment.
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
from helpers.recipe.settings import MULTICLASS, MULTILABEL

CLASSES = "classes"
ONE_DEVICE = framework.list_devices("cpu", 1)


def make(network: str) -> None:
    """Write the network's file; needs PyTorch."""
    if network == CLASSES:
        np.savez_compressed(reference.PATHS_OF_CLASSES, **of_shallow_net(MULTICLASS))  # type: ignore[arg-type]
        return
    found = of_network(network)
    if network == "densenet121":
        found |= of_shallow_net(MULTILABEL) | {"pixels": pixels()}
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


def of_shallow_net(task: str) -> dict[str, np.ndarray]:
    """The optimisers' paths down a task's loss."""
    grey, targets = reference.batch_of(task)
    x, y = torch.tensor(reference.network_input(grey)), torch.tensor(targets)
    criterion = torch.nn.functional.cross_entropy
    if task == MULTILABEL:
        criterion, y = torch.nn.functional.binary_cross_entropy_with_logits, y.double()
    found: dict[str, np.ndarray] = {}
    for rule in reference.PATHS:
        doubles = {
            name: array.astype(np.float64) for name, array in reference.shallow_arrays().items()
        }
        trained = framework.shallow(doubles, ONE_DEVICE).train()
        losses = []
        update, rates = optimizer(trained, rule), reference.RATES[rule.split()[0]]
        for step, rate in enumerate(rates, start=1):
            update.zero_grad()
            if (
                rule.startswith(reference.LATE) and update.state
            ):  # as if the rate were in the velocity
                for state in update.state.values():
                    state["momentum_buffer"] *= update.param_groups[0]["lr"] / rate
            for group in update.param_groups:
                group["lr"] = rate
            loss = criterion(trained(x), y)
            loss.backward()
            if rule.startswith(reference.EPSILON_FIRST):
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
        torch.tensor(reference_checks.canonical_image(demo.image_size))[None], [demo.crop]
    )
    rgb = transforms.to_dtype(crop, scale=True).repeat(3, 1, 1)
    found: np.ndarray = transforms.normalize(rgb, list(demo.mean), list(demo.std)).numpy()
    return found


def optimizer(network: torch.nn.Module, path: str) -> torch.optim.Optimizer:
    """What walks a path: PyTorch's own, with the path's kind of weight decay."""
    rule, decay = path.split()[0], reference.DECAY if " decay" in path else 0.0
    parameters = list(network.parameters())
    groups = [{"params": parameters, "weight_decay": decay}]
    if path.endswith(reference.WEIGHTS_ONLY):
        groups[0]["params"] = [each for each in parameters if each.ndim > 1]
        rest = [each for each in parameters if each.ndim == 1]
        groups.append({"params": rest, "weight_decay": 0.0})
    rate = reference.RATES[rule][0]
    if rule == "adam":
        decoupled = path.endswith(reference.DECOUPLED)
        return (torch.optim.AdamW if decoupled else torch.optim.Adam)(groups, lr=rate)
    momentum = reference.MOMENTUM if rule == "momentum" else 0.0
    if not path.endswith(reference.DECOUPLED):
        return torch.optim.SGD(groups, lr=rate, momentum=momentum)
    update = torch.optim.SGD(parameters, lr=rate, momentum=momentum)

    def shrink(update: torch.optim.Optimizer, *given: object) -> None:
        with torch.no_grad():
            for each in parameters:
                each *= 1 - update.param_groups[0]["lr"] * reference.DECAY

    update.register_step_pre_hook(shrink)
    return update


if __name__ == "__main__":
    for network in sys.argv[1:] or (*NETWORKS, CLASSES):
        make(network)
