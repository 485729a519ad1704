"""What a user may change in Chainer's notebook, and the fairness check's row that notices it."""

from collections.abc import Iterator

import chainer
import pytest
from planted_cells import *

HOOK = "optimizer.add_hook(like_pytorch)"
SETUP = "[r.optimizer]().setup(model)"
OF_CHAINER = {
    "other weights when training starts": at_the_start(
        "[each.array.__imul__(1.01) for each in replica.network.params()]"
    ),
    "weight decay missing": {"WeightDecay(r.weight_decay)": "WeightDecay(0.0)"},
    "clipped gradients": {
        HOOK: f"optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(0.01))\n    {HOOK}"
    },
    "a loss of sigmoids": {
        "else F.softmax_cross_entropy": (
            "else lambda scores, targets: F.sigmoid_cross_entropy("
            "scores, np.eye(scores.shape[1], dtype=int)[targets])"
        )
    },
    "one crop for an epoch": {DRAW: "default_rng([r.seed, epoch])"},
    "evaluation pixels of another scale": {'.astype("f") / 255': '.astype("f") / 256'},
}
"""Those that ChainerMN's notebook has, too."""
TEXTS = {
    **OF_CHAINER,
    **texts_of_steps("r.steps", "len(self)"),
    "other weights in the model": {
        ".load(network)  # the same": (
            ".load(network)\n    for each in network.params():\n        each.array *= 1.01  #"
        )
    },
    "evaluated from then on": {
        '    with chainer.using_config("train", False), chainer.no_backprop_mode():': (
            "    chainer.config.train = False\n    with chainer.no_backprop_mode():"
        )
    },
    "another momentum": {"= rate, r.momentum": "= rate, 0.5 * r.momentum"},
    "another rule": {
        SETUP: '["adam"]().setup(model)',
        'if r.optimizer == "adam":': "if True:",
    },
    "another rate for one weight": {
        HOOK: (
            f"{HOOK}\n    first = next(model.params()).update_rule.hyperparam\n"
            "    first.lr = 10 * r.learning_rate"
        )
    },
    "momentum with the rate in it": {"CorrectedMomentumSGD}": "chainer.optimizers.MomentumSGD}"},
    "a loss of sums": {"criterion(*given) / n": "criterion(*given) * len(given[1]) / n"},
    "a loss of findings' sums": {"criterion(*given) / n": "criterion(*given) * given[1].size / n"},
    "set_epoch without effect": {"dataset.epoch = epoch": "dataset"},
    "evaluation of other images": {
        "if self.training else before": "if self.training else np.zeros_like(before)"
    },
    "a padded evaluation": {
        "if self.training else before": "if self.training else np.resize(before, len(self) + 16)"
    },
    "scores in other places": {"scores[numbers] =": "scores[numbers // 2] ="},
    "one block for all": {
        "queue.put(block)": "queue.put([pixels[: r.batch_size], targets[: r.batch_size]])"
    },
    "a sum over devices": {"criterion(*given) / n": "criterion(*given)"},
    "statistics of its own": {
        "    found, scores = []": (
            "    for link in (each for copy in replica.copies[1:] for each in copy.links()):\n"
            '        getattr(link, "avg_mean", np.zeros(1))[...] = 0\n'
            "    found, scores = []"
        )
    },
}
TESTED = Tested("chainer", plants(TEXTS), {"Chainer_MultiGPU": "one block for all"})


@pytest.fixture(autouse=True)
def _train_again() -> Iterator[None]:
    """What one plant does to Chainer's switch must not reach the next test."""
    yield
    chainer.config.train = True
