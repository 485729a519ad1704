"""What a user may change in Keras's notebook, and the fairness check's row that notices it."""

from planted_cells import *

from helpers.fairness import training_loop

SGD = "SGD(Schedule(scale), r.momentum, **how)"
ALL, MODEL = "np.arange(images)", "model = kind(pixels, network(to_network(pixels)))"
CRITERION = "criterion = getattr(keras.losses, losses[r.task])(from_logits=True)"
GIVEN = "return np.stack(pixels), self.split.targets[numbers], numbers"
SUM = CRITERION.replace("True)", 'True, reduction="sum")')
TEXTS = {
    **texts_of_steps("len(loader)", "images"),
    "other weights in the model": {
        "network.set_weights(run.weights(network))": (
            "network.set_weights([1.01 * each for each in run.weights(network)])"
        )
    },
    "other weights when training starts": at_the_start(
        "[each.assign(1.01 * each.numpy()) for each in replica.network.variables]"
    ),
    "frozen statistics": {
        MODEL: (
            "for layer in network.layers:\n"
            "        if isinstance(layer, keras.layers.BatchNormalization):\n"
            "            layer.trainable = False\n"
            f"    {MODEL}"
        )
    },
    "bf16": {'"mixed_bfloat16" if r.precision == "bf16" else "float32"': '"mixed_bfloat16"'},
    "weight decay missing": {'"weight_decay": r.weight_decay or None': '"weight_decay": None'},
    "another momentum": {SGD: SGD.replace("r.momentum", "0.5")},
    "another rule": {f"keras.optimizers.{SGD}": "keras.optimizers.Adam(0.1, **how)"},
    "clipped gradients": {
        '"weight_decay": r.weight_decay or None': '"weight_decay": r.weight_decay or None, '
        '"clipnorm": 0.01'
    },
    "a loss of findings' sums": {CRITERION: SUM},
    "a loss of sigmoids": {
        CRITERION: (
            "criterion = lambda targets, scores: keras.ops.mean(keras.ops.binary_crossentropy("
            "keras.ops.one_hot(keras.ops.reshape(keras.ops.cast(targets, int), (-1,)), "
            "scores.shape[1]), scores, from_logits=True))"
        )
    },
    "the same crops in each batch": {
        "for i in np.maximum(numbers, 0):": "for place, i in enumerate(numbers):",
        DRAW: "default_rng(place)",
    },
    "one crop for a batch": {DRAW: "default_rng([r.seed, epoch, k])"},
    "other labels": {GIVEN: GIVEN.replace("[numbers]", "[numbers - 1]")},
    "set_epoch without effect": {
        "self.epoch, images = epoch, len(self.split)": (
            "self.epoch = epoch = 0; images = len(self.split)"
        )
    },
    "batches that fit has read ahead": {MODEL: f"with strategy.scope():\n        {MODEL}"},
    "evaluation pixels of another scale": {'"float32") / 255': '"float32") / 256'},
    "evaluation of other images": {ALL: "np.zeros(images, int)"},
    "scores in other places": {
        "replica.model.predict(watched, **how)": "replica.model.predict(watched, **how)[::-1]"
    },
    "one share for all": {
        "watched = run.watch(batches)\n": (
            "watched = run.watch(tuple(np.concatenate([part[: r.batch_size]] * n) "
            "for part in batch) for batch in batches)\n"
        )
    },
    "statistics of its own": {"statistic.assign(statistic.numpy())": "statistic"},
}
PLANTS = plants(TEXTS) | {
    "a loss of sums": Plant(training_loop.TOGETHER, {CRITERION: SUM}, said="times as long"),
}
DIFFERENT = frozenset(
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
    {"Keras_MultiGPU": "one share for all"},
    expected={1: DIFFERENT, 2: DIFFERENT | {UNEVEN}},
)
