"""Makes ``helpers/fairness/reference.npz``, what DenseNet121 computes in float64.

    .venvs/pytorch/bin/python tools/make_reference.py

PyTorch makes it once; every framework is held against it in its own kernel.
"""

import numpy as np
import torch
from torchvision.models import densenet121
from torchvision.transforms.v2 import functional as transforms

from helpers.fairness import reference, reference_checks
from helpers.frameworks import pytorch as framework
from helpers.recipe import RECIPES


def make() -> None:
    """Write ``reference.npz``; needs PyTorch."""
    grey, targets = reference.batch()
    images, x, y = (
        reference.network_input(grey),
        torch.tensor(reference.network_input(grey)),
        torch.tensor(targets),
    )

    def model() -> torch.nn.Module:
        made = densenet121(weights=None, num_classes=14)
        framework.load_weights(made, reference.arrays())
        return made.double()

    def statistics(made: torch.nn.Module) -> dict[str, np.ndarray]:
        state = {name: tensor.numpy() for name, tensor in made.state_dict().items()}
        return {
            f"{norm}.{part}": state[f"{norm}.{part}"]
            for norm in reference.NORMS
            for part in reference.RUNNING
        }

    one_device = framework.list_devices("cpu", 1)
    found: dict[str, np.ndarray] = {"logits": framework.logits(model(), images)}
    loss, gradients = framework.gradients(model(), images, targets, one_device)
    found |= {"loss": np.array(loss)} | {name: gradients[name] for name in reference.GRADIENTS}

    trained = model().train()
    with torch.no_grad():
        found["train logits"] = trained(x).numpy()
    found |= statistics(trained)

    for rule in reference.PATHS:
        doubles = {
            name: array.astype(np.float64) for name, array in reference.shallow_arrays().items()
        }
        trained = framework.shallow(doubles, one_device).train()
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

    demo = RECIPES["demo"]
    crop = transforms.center_crop(
        torch.tensor(reference_checks.canonical_image(demo.resized))[None], [demo.crop]
    )
    rgb = transforms.to_dtype(crop, scale=True).repeat(3, 1, 1)
    found["pixels"] = transforms.normalize(rgb, list(demo.mean), list(demo.std)).numpy()
    np.savez_compressed(reference.FILE, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    make()
