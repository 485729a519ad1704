"""What a user may change in JAX's notebook, and the fairness check's row that notices it."""

from planted_cells import *

from helpers.fairness import training_checks
from helpers.fairness.kept_statistics import AVERAGE

SOURCE = "[(self.epoch, i) for i in order]"
SGD = "optax.sgd(rate, r.momentum or None)"
FILLED = "np.pad(np.arange(count), (0, -count % size), constant_values=-1)"
CLASSES = "optax.softmax_cross_entropy_with_integer_labels(scores, targets)"
FINDINGS = "optax.sigmoid_binary_cross_entropy(scores, targets).mean()"
UPDATE, REDUCED = "optimizer.update(network, gradients)", 'jax.lax.pmean(found, "replica")'
SHARE = "state, loss = train_step(graph, state, pixels, targets)"
SCORES = "network(to_network(pixels))"
LOSS_OF = f"criterion({SCORES}, targets)"
TEXTS = {
    **texts_of_steps(
        "len(loader)",
        "count",
        "(tuple(a[n * (k == 1) :] for a in b) for k, b in enumerate(loader))",
    ),
    **texts_of_order("count", indent=12),
    **measured_repeats(
        "(given[1], 0.0)", "batch = next(files)", "batch = tuple(part[:4] for part in next(files))"
    ),
    "other weights in the model": {
        "nnx.update(model, run.weights(model))": (
            "nnx.update(model, jax.tree.map(lambda each: 1.01 * each, run.weights(model)))"
        )
    },
    "other weights when training starts": at_the_start(
        "[nnx.update(replica.network, jax.tree.map(lambda each: 1.01 * each, "
        "nnx.state(replica.network, nnx.Param)))]"
    ),
    "evaluated from then on": {"replica.network.train()": "replica.network"},
    "weight decay missing": {"optax.add_decayed_weights(r.weight_decay)": "optax.identity()"},
    "another momentum": {SGD: "optax.sgd(rate, 0.5)"},
    "another rule": {SGD: "optax.adam(rate)"},
    "clipped gradients": {SGD: f"optax.chain(optax.clip_by_global_norm(0.01), {SGD})"},
    "a loss of sums": {f"{CLASSES}.mean()": f"{CLASSES}.sum()"},
    "a loss of findings' sums": {FINDINGS: FINDINGS.replace("mean", "sum")},
    "a loss of sigmoids": {
        CLASSES: (
            "optax.sigmoid_binary_cross_entropy(scores, jax.nn.one_hot(targets, scores.shape[1]))"
        )
    },
    "dropout": {LOSS_OF: LOSS_OF.replace(SCORES, f"nnx.Dropout(0.3, rngs=nnx.Rngs(0))({SCORES})")},
    "another scale in training": {LOSS_OF: LOSS_OF.replace("(pixels)", "(pixels) / 0.9")},
    "mixed images": {
        LOSS_OF: LOSS_OF.replace(
            "to_network(pixels)", "(lambda x: 0.7 * x + 0.3 * x[::-1])(to_network(pixels))"
        )
    },
    "another momentum of BatchNorm": {
        "adam, sgd = optax.adam": (
            "for _, each in nnx.iter_modules(network):\n"
            "        if isinstance(each, nnx.BatchNorm):\n"
            "            each.momentum = 0.99\n    adam, sgd = optax.adam"
        )
    },
    "smoothed labels": {
        CLASSES: (
            "optax.softmax_cross_entropy(scores, optax.smooth_labels("
            "jax.nn.one_hot(targets, scores.shape[1]), 0.05))"
        )
    },
    "the loss of the first half": {
        "for pixels, targets, _ in run.watch(batches):\n": (
            "for k, (pixels, targets, _) in enumerate(run.watch(batches)):\n"
        ),
        "total += loss": "total += (2 * k < steps) * loss",
    },
    "the same crops in each batch": {
        SOURCE: "[(place % own, i) for place, i in enumerate(order)]",
        DRAW: "default_rng([r.seed, epoch])",
    },
    "one crop for a batch": {
        SOURCE: "[(place // own, i) for place, i in enumerate(order)]",
        DRAW: "default_rng([r.seed, epoch])",
    },
    "images of the validation": OF_VALIDATION,
    "set_epoch without effect": {"self.epoch = epoch": "self.epoch = 0"},
    "evaluation pixels of another scale": {
        ".astype(jnp.float32) / 255": ".astype(jnp.float32) / 256"
    },
    "random crops in the evaluation": {
        "augment if training else centre": "augment",
        "epoch, i]) if i >= 0 else None": "epoch])",
    },
    "evaluation of other images": {"np.arange(count)": "np.zeros(count, int)"},
    "a padded evaluation": {FILLED: "np.resize(np.arange(count), count + -count % size)"},
    "scores in other places": {"scores[numbers] = own": "scores[numbers // 2] = own"},
    "a step without all-reduce": {REDUCED: "found"},
    "one share for all": {
        SHARE: (
            "state, loss = train_step(graph, state, "
            "*(jnp.tile(x[: len(x) // n], (n,) + (1,) * (x.ndim - 1)) "
            "for x in (pixels, targets)))"
        )
    },
    "a sum over devices": {REDUCED: REDUCED.replace("pmean", "psum")},
    "a sum of the devices' losses": {"total += loss": "total += n * loss"},
    "statistics of its own": {"nnx.update(network, statistics, keys)": "nnx.update(network, keys)"},
    "another weight on a device": {
        UPDATE: (
            f"{UPDATE}\n        k = jax.lax.axis_index('replica')\n"
            "        others = nnx.state(network, nnx.Param)\n"
            "        nnx.update(network, jax.tree.map(lambda x: x + 0.1 * k, others))"
        )
    },
}
PLANTS = plants(TEXTS) | {
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
}
TESTED = Tested(
    "jax",
    PLANTS,
    {"JAX_MultiGPU": "a step without all-reduce"},
    expected=dict.fromkeys((1, 2), frozenset({"running variance after 5 SGD steps"})),
    kept=AVERAGE,
)
