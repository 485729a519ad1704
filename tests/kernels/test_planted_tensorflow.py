"""What a user may change in TensorFlow's notebook, and the fairness check's row that notices it."""

from planted_cells import *

SGD = "SGD(network, momentum=r.momentum, weight_decay=r.weight_decay)"
MEAN, IMAGES = '("MEAN", forward_backward(network, pixels, targets))', "np.arange(images)"
CRITERION = "criterion = tf.nn.sparse_softmax_cross_entropy_with_logits"
TEXTS = {
    **texts_of_steps(
        "r.steps",
        "images",
        "(b if k == 0 else run.framework.as_loaded(np.zeros((n, r.crop, r.crop, 3), np.uint8), "
        "run.train_split.targets[:n], np.arange(n)) for k, b in enumerate(loader))",
    ),
    "other weights in the model": {"variable.assign(array)": "variable.assign(1.01 * array)"},
    "other weights when training starts": at_the_start(
        "[each.assign(1.01 * each) for each in replica.network.trainable_variables]"
    ),
    "bf16": {'if r.precision == "bf16" else tf.float32': ""},
    "weight decay missing": {SGD: SGD.replace("r.weight_decay", "0.0")},
    "another momentum": {SGD: SGD.replace("r.momentum", "0.5")},
    "another rule": {
        SGD: "Adam(network, betas=r.betas, epsilon=r.epsilon, weight_decay=r.weight_decay)"
    },
    "clipped gradients": {
        "optimizer.apply(gradients)": (
            "optimizer.apply(tf.clip_by_global_norm(gradients, 0.01)[0])"
        )
    },
    "a loss of sums": {"loss = tf.reduce_mean(": "loss = tf.reduce_sum("},
    "a loss of findings' sums": {"loss = tf.reduce_mean(": "loss = r.outputs * tf.reduce_mean("},
    "a loss of sigmoids": {
        CRITERION: (
            "criterion = lambda targets, scores: tf.nn.sigmoid_cross_entropy_with_logits("
            "tf.one_hot(targets, r.outputs), scores)"
        )
    },
    "the same crops in each batch": {DRAW: "default_rng([r.seed, epoch, i % 2])"},
    "one crop for all": {DRAW: "default_rng([r.seed, epoch])"},
    "other labels": {"pixels, self.split.targets[i]": "pixels, self.split.targets[i - 1]"},
    "no set_epoch": {"    loader.epoch = epoch": "    epoch"},
    "the same order in each epoch": {
        "default_rng([r.seed, self.epoch])": "default_rng([r.seed, 0])"
    },
    "evaluation pixels of another scale": {"tf.float32) / 255": "tf.float32) / 256"},
    "evaluation of other images": {IMAGES: "np.zeros(images, int)"},
    "a padded evaluation": {
        "np.full(-images % size, -1)": "np.full(-images % size, 0)",
        "% (total + 1)": "% total",
    },
    "scores in other places": {"% (total + 1)": "% (total + 1) // 2"},
    "a step without all-reduce": {
        f"all_reduce{MEAN}": "forward_backward(network, pixels, targets)"
    },
    "a sum over devices": {MEAN: MEAN.replace("MEAN", "SUM")},
    "statistics of its own": {"strategy.run(share_statistics, (replica.network,))": "strategy"},
    "another weight on a device": {
        "    optimizer.apply(gradients)\n": (
            "    optimizer.apply(gradients)\n"
            "    context = tf.distribute.get_replica_context()\n"
            "    moved = 0.1 * tf.cast(context.replica_id_in_sync_group, tf.float32)\n"
            "    optimizer.weights[-1].assign(optimizer.weights[-1] + moved)\n"
        ),
    },
}
TESTED = Tested("tensorflow", plants(TEXTS), {"TensorFlow_MultiGPU": "a step without all-reduce"})
