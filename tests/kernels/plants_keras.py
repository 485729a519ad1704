"""What a user may change in Keras's notebook, and the fairness check's row that notices it."""

from planted_cells import DRAW, LOSS, OF_ALL, RUNNING, STATISTICS, UNEVEN, WAY, Plant, Tested

from helpers.fairness import crops, process_checks, training_checks, training_loop
from helpers.training import notebook_coverage

SHUFFLE, NUMBERS = ".permutation(images)", "self.order[k * self.size : (k + 1) * self.size]"
TRAIN, SGD = "train_steps(replica, loader, len(loader))", "SGD(Schedule(scale), r.momentum, **how)"
ALL, MODEL = "np.arange(images)", "model = kind(pixels, network(to_network(pixels)))"
CRITERION = "criterion = getattr(keras.losses, losses[r.task])(from_logits=True)"
GIVEN = "return np.stack(pixels), self.part.targets[numbers], numbers"


def _loss(change: str, row: str = LOSS, *, findings: bool = False, said: str = "") -> Plant:
    return Plant(row, {CRITERION: change}, findings=findings, said=said)


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, len(loader))"}, error)


SUM = CRITERION.replace("True)", 'True, reduction="sum")')

PLANTS = {
    **OF_ALL,
    # The network
    "other weights in the model": Plant(
        "initial weights",
        {
            "network.set_weights(run.weights(network))": (
                "network.set_weights([1.01 * each for each in run.weights(network)])"
            )
        },
    ),
    "other weights when training starts": Plant(
        training_checks.START,
        {
            "in run.epochs(replica)": (
                "in [each.assign(1.01 * each.numpy()) for each in replica.network.variables] "
                "and run.epochs(replica)"
            )
        },
    ),
    "frozen statistics": Plant(
        RUNNING,
        {
            MODEL: (
                "for layer in network.layers:\n"
                "        if isinstance(layer, keras.layers.BatchNormalization):\n"
                "            layer.trainable = False\n"
                f"    {MODEL}"
            )
        },
    ),
    "bf16": Plant(
        training_checks.PRECISION,
        {'"mixed_bfloat16" if r.precision == "bf16" else "float32"': '"mixed_bfloat16"'},
    ),
    # The optimiser
    "rate of one device": Plant(training_checks.RATE, {'"linear": n': '"linear": 1'}, devices=2),
    "weight decay missing": Plant(
        training_checks.OPTIMIZER,
        {'"weight_decay": r.weight_decay or None': '"weight_decay": None'},
    ),
    "another momentum": Plant(training_checks.OPTIMIZER, {SGD: SGD.replace("r.momentum", "0.5")}),
    "another rule": Plant(
        training_checks.OPTIMIZER, {f"keras.optimizers.{SGD}": "keras.optimizers.Adam(0.1, **how)"}
    ),
    "clipped gradients": Plant(
        WAY,
        {
            '"weight_decay": r.weight_decay or None': '"weight_decay": r.weight_decay or None, '
            '"clipnorm": 0.01'
        },
    ),
    "a loss of sums": _loss(SUM, training_loop.TOGETHER, said="times as long"),
    "a loss of findings' sums": _loss(SUM, findings=True),
    "a loss of sigmoids": _loss(
        "criterion = lambda targets, scores: keras.ops.mean(keras.ops.binary_crossentropy("
        "keras.ops.one_hot(keras.ops.reshape(keras.ops.cast(targets, int), (-1,)), "
        "scores.shape[1]), scores, from_logits=True))"
    ),
    # Crops
    "the same crops in each batch": Plant(
        crops.CROPS,
        {"for i in numbers:": "for place, i in enumerate(numbers):", DRAW: "default_rng(place)"},
    ),
    "one crop for a batch": Plant(crops.CROPS, {DRAW: "default_rng([r.seed, epoch, k])"}),
    # Which images
    "half of the steps": _train(
        "islice(loader, len(loader) // 2)", "steps; let the loop take a step"
    ),
    "a smaller batch": _train(
        "(tuple(a[k == 1 :] for a in b) for k, b in enumerate(loader))", "batch 2 of"
    ),
    "one batch twice": _train(
        "(b for k, b in zip(range(len(loader) - 1), loader) for b in [b] * (1 + (k == 0)))", ""
    )._replace(row=training_checks.ORDER),
    "some images left out": Plant(
        training_checks.ORDER, {SHUFFLE: ".permutation(np.r_[20:images, 20:40])"}
    ),
    "one image left out": Plant(process_checks.ONCE, {SHUFFLE: ".permutation(np.r_[1:images, 1])"}),
    "images at random": Plant(process_checks.ONCE, {SHUFFLE: ".integers(images, size=images)"}),
    "other labels": Plant(
        training_checks.ORDER, {GIVEN: GIVEN.replace("[numbers]", "[numbers - 1]")}
    ),
    "no set_epoch": Plant(
        crops.CROPS,
        {"loader.set_epoch(epoch)": "pass"},
        said="augmentation (an image has the same crop in each epoch)",
    ),
    "set_epoch without effect": Plant(
        training_checks.ORDER,
        {
            "self.epoch, images = epoch, len(self.part)": (
                "self.epoch = epoch = 0; images = len(self.part)"
            )
        },
    ),
    "batches that fit has read ahead": Plant(
        training_checks.ORDER,
        {MODEL: f"with strategy.scope():\n        {MODEL}"},
        said="were there before in their epoch",
        devices=2,
    ),
    # The evaluation
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {'"float32") / 255': '"float32") / 256'}
    ),
    "evaluation of other images": Plant(training_checks.EVALUATED, {ALL: "np.zeros(images, int)"}),
    "scores in other places": Plant(
        process_checks.EVALUATED,
        {"replica.model.predict(watched, **how)": "replica.model.predict(watched, **how)[::-1]"},
    ),
    # Several devices
    "one share for all": Plant(
        training_loop.TOGETHER,
        {
            "watched = run.watch(batches)\n": (
                "watched = run.watch(tuple(np.concatenate([part[: r.batch_size]] * n) "
                "for part in batch) for batch in batches)\n"
            )
        },
        devices=2,
    ),
    "statistics of its own": Plant(
        STATISTICS, {"statistic.assign(statistic.numpy())": "statistic"}, devices=2
    ),
}

KNOWN = frozenset(
    {
        "running variance after 5 SGD steps",
        "mean loss of 5 momentum steps",
        "weight change after 5 momentum steps",
        "weight decay in 5 momentum steps",
    }
)

TESTED = Tested(
    "keras",
    PLANTS,
    {
        "Keras_MultiGPU": (
            "rate of one device",
            "no flip",
            "weight decay missing",
            "no set_epoch",
            "one share for all",
        )
    },
    expected={1: KNOWN, 2: KNOWN | {UNEVEN}},
)
