"""What a user may change in Chainer's notebook, and the fairness check's row that notices it."""

from planted_cells import (
    DRAW,
    LOSS,
    OF_ALL,
    RUNNING,
    STATISTICS,
    WAY,
    Plant,
    Tested,
)

from helpers.fairness import (
    crops,
    process_checks,
    training_checks,
    training_loop,
)
from helpers.training import notebook_coverage

NOTEBOOK = "Chainer_MultiGPU"
EPOCH = "self.epoch * len(self) + order[:used] if"
SHUFFLE, TRAIN = ".permutation(len(self))", "train_steps(replica, loader, r.steps)"
HOOK = "optimizer.add_hook(like_pytorch)"
SETUP = "[r.optimizer]().setup(model)"


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, r.steps)"}, error)


PLANTS = {
    **OF_ALL,
    # The network
    "other weights in the model": Plant(
        "initial weights",
        {
            ".load(network)  # the same": (
                ".load(network)\n    for each in network.params():\n        each.array *= 1.01  #"
            )
        },
    ),
    "other weights when training starts": Plant(
        training_checks.START,
        {
            "in run.epochs(replica)": (
                "in [each.array.__imul__(1.01) for each in replica.network.params()] "
                "and run.epochs(replica)"
            )
        },
    ),
    "evaluated from then on": Plant(
        RUNNING,
        {
            '    with chainer.using_config("train", False), chainer.no_backprop_mode():': (
                "    chainer.config.train = False\n    with chainer.no_backprop_mode():"
            )
        },
    ),
    # The optimiser
    "rate of one device": Plant(training_checks.RATE, {'"linear": n': '"linear": 1'}, devices=2),
    "weight decay missing": Plant(
        training_checks.OPTIMIZER, {"WeightDecay(r.weight_decay)": "WeightDecay(0.0)"}
    ),
    "another momentum": Plant(
        training_checks.OPTIMIZER, {"= rate, r.momentum": "= rate, 0.5 * r.momentum"}
    ),
    "another rule": Plant(
        training_checks.OPTIMIZER,
        {
            SETUP: '["adam"]().setup(model)',
            'if r.optimizer == "adam":': "if True:",
        },
    ),
    "another rate for one weight": Plant(
        training_checks.OPTIMIZER,
        {
            HOOK: (
                f"{HOOK}\n    first = next(model.params()).update_rule.hyperparam\n"
                "    first.lr = 10 * r.learning_rate"
            )
        },
    ),
    "clipped gradients": Plant(
        WAY,
        {HOOK: f"optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(0.01))\n    {HOOK}"},
    ),
    "momentum with the rate in it": Plant(
        "weight change after 5 momentum steps",
        {"CorrectedMomentumSGD}": "chainer.optimizers.MomentumSGD}"},
        said="the velocity contains the learning rate",
    ),
    "a loss of sums": Plant(
        LOSS, {"criterion(*given) / n": "criterion(*given) * len(given[1]) / n"}
    ),
    "a loss of findings' sums": Plant(
        LOSS, {"criterion(*given) / n": "criterion(*given) * given[1].size / n"}, findings=True
    ),
    "a loss of sigmoids": Plant(
        LOSS,
        {
            "else F.softmax_cross_entropy": (
                "else lambda scores, targets: F.sigmoid_cross_entropy("
                "scores, np.eye(scores.shape[1], dtype=int)[targets])"
            )
        },
    ),
    # Crops
    "one crop for an epoch": Plant(crops.CROPS, {DRAW: "default_rng([r.seed, epoch])"}),
    # Which images
    "half of the steps": _train("islice(loader, r.steps // 2)", "steps; let the loop take a step"),
    "a smaller batch": _train(
        "(tuple(a[k == 1 :] for a in b) for k, b in enumerate(loader))", "batch 2 of"
    ),
    "one batch twice": _train(
        "(b for k, b in zip(range(r.steps - 1), loader) for b in [b] * (1 + (k == 0)))", ""
    )._replace(row=training_checks.ORDER),
    "some images left out": Plant(
        training_checks.ORDER, {SHUFFLE: ".permutation(np.r_[20 : len(self), 20:40])"}
    ),
    "one image left out": Plant(
        process_checks.ONCE, {SHUFFLE: ".permutation(np.r_[1 : len(self), 1])"}
    ),
    "images at random": Plant(
        process_checks.ONCE, {SHUFFLE: ".integers(len(self), size=len(self))"}
    ),
    "other labels": Plant(
        training_checks.ORDER, {"self.part.targets[i], i": "self.part.targets[i - 1], i"}
    ),
    "no set_epoch": Plant(
        crops.CROPS,
        {"    loader.set_epoch(epoch)": "    pass"},
        said="augmentation (an image has the same crop in each epoch)",
    ),
    "set_epoch without effect": Plant(training_checks.ORDER, {"dataset.epoch = epoch": "dataset"}),
    # The evaluation
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {'.astype("f") / 255': '.astype("f") / 256'}
    ),
    "evaluation of other images": Plant(
        training_checks.EVALUATED,
        {"if self.training else before": "if self.training else np.zeros_like(before)"},
    ),
    "a padded evaluation": Plant(
        training_checks.EVALUATED,
        {"if self.training else before": "if self.training else np.resize(before, len(self) + 16)"},
    ),
    "scores in other places": Plant(
        process_checks.EVALUATED, {"scores[numbers] =": "scores[numbers // 2] ="}
    ),
    # Several devices
    "one block for all": Plant(
        training_loop.TOGETHER,
        {"queue.put(block)": "queue.put([pixels[: r.batch_size], targets[: r.batch_size]])"},
        said="not the mean of all devices' gradients: does each device train alone?",
        devices=2,
    ),
    "a sum over devices": Plant(
        training_loop.TOGETHER,
        {"criterion(*given) / n": "criterion(*given)"},
        said="times as long: a sum in place of a mean?",
        devices=2,
    ),
    "statistics of its own": Plant(
        STATISTICS,
        {
            "    found, scores = []": (
                "    for link in (each for copy in replica.copies[1:] for each in copy.links()):\n"
                '        getattr(link, "avg_mean", np.zeros(1))[...] = 0\n'
                "    found, scores = []"
            )
        },
        devices=2,
    ),
}

_EVERY_DAY = ("rate of one device", "no flip", "weight decay missing", "no set_epoch")

TESTED = Tested(
    "chainer",
    PLANTS,
    {NOTEBOOK: (*_EVERY_DAY, "one block for all")},
)
