"""What a user may change in JAX's notebook, and the fairness check's row that notices it."""

from planted_cells import (
    DRAW,
    LOSS,
    OF_ALL,
    OF_VALIDATION,
    RUNNING,
    STATISTICS,
    WAY,
    Plant,
    Tested,
    measured_turns,
)

from helpers.fairness import (
    crops,
    process_checks,
    training_checks,
    training_loop,
)
from helpers.training import notebook_coverage

TRAIN, SHUFFLE = "train_steps(replica, loader, len(loader))", ".permutation(count)"
SOURCE = "[(self.epoch, i) for i in order]"
SGD = "optax.sgd(rate, r.momentum or None)"
FILLED = "np.pad(np.arange(count), (0, -count % size), constant_values=-1)"
CLASSES = "optax.softmax_cross_entropy_with_integer_labels(scores, targets)"
FINDINGS = "optax.sigmoid_binary_cross_entropy(scores, targets).mean()"
UPDATE, REDUCED = "optimizer.update(network, gradients)", 'jax.lax.pmean(found, "replica")'
SHARE = "state, loss = train_step(graph, state, pixels, targets)"
SCORES, MAKE = "network(to_network(pixels))", "replica = make_replica(build_model())"
LOSS_OF = f"criterion({SCORES}, targets)"
ORDERED = "order = np.random.default_rng([r.seed, self.epoch]).permutation(count)\n"
BY_LABEL = """            labels = np.resize(run.train_part.targets, count)
            order = order[np.argsort(labels[order], kind="stable")]
"""


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, len(loader))"}, error)


PLANTS = {
    **OF_ALL,
    **measured_turns(
        "(given[1], 0.0)", "batch = next(files)", "batch = tuple(part[:4] for part in next(files))"
    ),
    # The network
    "other weights in the model": Plant(
        "initial weights",
        {
            "nnx.update(model, run.weights(model))": (
                "nnx.update(model, jax.tree.map(lambda each: 1.01 * each, run.weights(model)))"
            )
        },
    ),
    "other weights when training starts": Plant(
        training_checks.START,
        {
            "in run.epochs(replica)": (
                "in [nnx.update(replica.network, jax.tree.map(lambda each: 1.01 * each, "
                "nnx.state(replica.network, nnx.Param)))] and run.epochs(replica)"
            )
        },
    ),
    "evaluated from then on": Plant(RUNNING, {"replica.network.train()": "replica.network"}),
    # The optimiser
    "rate of one device": Plant(training_checks.RATE, {'"linear": n': '"linear": 1'}, devices=2),
    "weight decay missing": Plant(
        training_checks.OPTIMIZER,
        {"optax.add_decayed_weights(r.weight_decay)": "optax.identity()"},
    ),
    "another momentum": Plant(training_checks.OPTIMIZER, {SGD: "optax.sgd(rate, 0.5)"}),
    "another rule": Plant(training_checks.OPTIMIZER, {SGD: "optax.adam(rate)"}),
    "another rate for one weight": Plant(
        training_checks.RATE,
        {
            SGD: (
                "optax.chain(optax.sgd(rate, r.momentum or None), optax.stateless("
                "lambda found, held: jax.tree.unflatten(jax.tree.structure(found), ["
                "(9 * (k == 0) + 1) * each for k, each in enumerate(jax.tree.leaves(found))])))"
            )
        },
    ),
    "clipped gradients": Plant(WAY, {SGD: f"optax.chain(optax.clip_by_global_norm(0.01), {SGD})"}),
    "a loss of sums": Plant(LOSS, {f"{CLASSES}.mean()": f"{CLASSES}.sum()"}),
    "a loss of findings' sums": Plant(
        LOSS, {FINDINGS: FINDINGS.replace("mean", "sum")}, findings=True
    ),
    "a loss of sigmoids": Plant(
        LOSS,
        {
            CLASSES: (
                "optax.sigmoid_binary_cross_entropy("
                "scores, jax.nn.one_hot(targets, scores.shape[1]))"
            )
        },
    ),
    "dropout": Plant(
        LOSS, {LOSS_OF: LOSS_OF.replace(SCORES, f"nnx.Dropout(0.3, rngs=nnx.Rngs(0))({SCORES})")}
    ),
    "another scale in training": Plant(
        RUNNING, {LOSS_OF: LOSS_OF.replace("(pixels)", "(pixels) / 0.9")}
    ),
    "mixed images": Plant(
        LOSS,
        {
            LOSS_OF: LOSS_OF.replace(
                "to_network(pixels)", "(lambda x: 0.7 * x + 0.3 * x[::-1])(to_network(pixels))"
            )
        },
    ),
    "another momentum of BatchNorm": Plant(
        RUNNING,
        {
            "adam, sgd = optax.adam": (
                "for _, each in nnx.iter_modules(network):\n"
                "        if isinstance(each, nnx.BatchNorm):\n"
                "            each.momentum = 0.99\n    adam, sgd = optax.adam"
            )
        },
    ),
    "smoothed labels": Plant(
        LOSS,
        {
            CLASSES: (
                "optax.softmax_cross_entropy(scores, optax.smooth_labels("
                "jax.nn.one_hot(targets, scores.shape[1]), 0.05))"
            )
        },
    ),
    "the loss of the first half": Plant(
        LOSS,
        {
            "for pixels, targets, _ in run.watch(batches):\n": (
                "for k, (pixels, targets, _) in enumerate(run.watch(batches)):\n"
            ),
            "total += loss": "total += (2 * k < steps) * loss",
        },
    ),
    # Crops
    "the same crops in each batch": Plant(
        crops.CROPS,
        {
            SOURCE: "[(place % own, i) for place, i in enumerate(order)]",
            DRAW: "default_rng([r.seed, epoch])",
        },
    ),
    "one crop for a batch": Plant(
        crops.CROPS,
        {
            SOURCE: "[(place // own, i) for place, i in enumerate(order)]",
            DRAW: "default_rng([r.seed, epoch])",
        },
    ),
    # Which images
    "half of the steps": _train(
        "islice(loader, len(loader) // 2)", "steps; let the loop take a step"
    ),
    "a smaller batch": _train(
        "(tuple(a[n * (k == 1) :] for a in b) for k, b in enumerate(loader))", "batch 2 of"
    ),
    "one batch twice": _train(
        "(b for k, b in zip(range(len(loader) - 1), loader) for b in [b] * (1 + (k == 0)))", ""
    )._replace(row=training_checks.ORDER),
    "some images left out": Plant(
        training_checks.ORDER, {SHUFFLE: ".permutation(np.r_[20:count, 20:40])"}
    ),
    "one image left out": Plant(process_checks.ONCE, {SHUFFLE: ".permutation(np.r_[1:count, 1])"}),
    "images at random": Plant(process_checks.ONCE, {SHUFFLE: ".integers(count, size=count)"}),
    "half of the images twice": Plant(
        process_checks.ONCE, {SHUFFLE: ".permutation(np.resize(np.arange(count // 2), count))"}
    ),
    "images of the validation": Plant(
        crops.CROPS,
        OF_VALIDATION,
    ),
    "an order by labels": Plant(
        training_checks.ORDER, {ORDERED: f"{ORDERED}{BY_LABEL}"}, said="order ("
    ),
    "other labels": Plant(
        training_checks.ORDER, {"self.part.targets[i], i": "self.part.targets[i - 1], i"}
    ),
    "no set_epoch": Plant(
        crops.CROPS,
        {"loader.set_epoch(epoch)": "pass"},
        said="augmentation (an image has the same crop in each epoch)",
    ),
    "set_epoch without effect": Plant(
        training_checks.ORDER, {"self.epoch = epoch": "self.epoch = 0"}
    ),
    # The evaluation
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {".astype(jnp.float32) / 255": ".astype(jnp.float32) / 256"}
    ),
    "random crops in the evaluation": Plant(
        notebook_coverage.PIXELS,
        {"augment if training else centre": "augment", "epoch, i]) if i >= 0 else None": "epoch])"},
    ),
    "evaluation of other images": Plant(
        training_checks.EVALUATED, {"np.arange(count)": "np.zeros(count, int)"}
    ),
    "a padded evaluation": Plant(
        training_checks.EVALUATED, {FILLED: "np.resize(np.arange(count), count + -count % size)"}
    ),
    "scores in other places": Plant(
        process_checks.EVALUATED, {"scores[numbers] = own": "scores[numbers // 2] = own"}
    ),
    # Several devices
    "a step without all-reduce": Plant(
        training_loop.TOGETHER,
        {REDUCED: "found"},
        said="not the mean of all devices' gradients: does each device train alone?",
        devices=2,
    ),
    "one share for all": Plant(
        training_loop.TOGETHER,
        {
            SHARE: (
                "state, loss = train_step(graph, state, "
                "*(jnp.tile(x[: len(x) // n], (n,) + (1,) * (x.ndim - 1)) "
                "for x in (pixels, targets)))"
            )
        },
        devices=2,
    ),
    "a sum over devices": Plant(
        training_loop.TOGETHER,
        {REDUCED: REDUCED.replace("pmean", "psum")},
        said="times as long: a sum in place of a mean?",
        devices=2,
    ),
    "a sum of the devices' losses": Plant(LOSS, {"total += loss": "total += n * loss"}, devices=2),
    "statistics of its own": Plant(
        STATISTICS,
        {"nnx.update(network, statistics, keys)": "nnx.update(network, keys)"},
        devices=2,
    ),
    "another weight on a device": Plant(
        process_checks.REPLICAS,
        {
            UPDATE: (
                f"{UPDATE}\n        k = jax.lax.axis_index('replica')\n"
                "        others = nnx.state(network, nnx.Param)\n"
                "        nnx.update(network, jax.tree.map(lambda x: x + 0.1 * k, others))"
            )
        },
        devices=2,
    ),
}

BIASED = "running variance after 5 SGD steps"
"""Flax keeps the biased variance."""

TESTED = Tested(
    "jax",
    PLANTS,
    {
        "JAX_MultiGPU": (
            "rate of one device",
            "no flip",
            "weight decay missing",
            "no set_epoch",
            "a step without all-reduce",
        )
    },
    expected={1: frozenset({BIASED}), 2: frozenset({BIASED})},
    kept=training_loop.AVERAGE,
)
