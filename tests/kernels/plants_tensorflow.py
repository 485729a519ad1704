"""What a user may change in TensorFlow's notebook, and the fairness check's row that notices it."""

from planted_cells import DRAW, LOSS, OF_ALL, STATISTICS, WAY, Plant, Tested

from helpers.fairness import crops, process_checks, training_checks, training_loop
from helpers.training import notebook_coverage

NOTEBOOK = "TensorFlow_MultiGPU"

TRAIN, SHUFFLE = "train_steps(replica, loader, r.steps)", ".permutation(images)"
SGD = "SGD(network, momentum=r.momentum, weight_decay=r.weight_decay)"
MEAN, IMAGES = '("MEAN", forward_backward(network, pixels, targets))', "np.arange(images)"
EPOCH = "epoch, i = self.epoch, max(i, 0)"
CRITERION = "criterion = tf.nn.sparse_softmax_cross_entropy_with_logits"


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, r.steps)"}, error)


PLANTS = {
    **OF_ALL,
    # The network
    "other weights in the model": Plant(
        "initial weights", {"variable.assign(array)": "variable.assign(1.01 * array)"}
    ),
    "other weights when training starts": Plant(
        training_checks.START,
        {
            "in run.epochs(replica)": (
                "in [each.assign(1.01 * each) for each in replica.network.trainable_variables] "
                "and run.epochs(replica)"
            )
        },
    ),
    "bf16": Plant(training_checks.PRECISION, {'if r.precision == "bf16" else tf.float32': ""}),
    # The optimiser
    "rate of one device": Plant(training_checks.RATE, {'"linear": n,': '"linear": 1,'}, devices=2),
    "weight decay missing": Plant(
        training_checks.OPTIMIZER, {SGD: SGD.replace("r.weight_decay", "0.0")}
    ),
    "another momentum": Plant(training_checks.OPTIMIZER, {SGD: SGD.replace("r.momentum", "0.5")}),
    "another rule": Plant(
        training_checks.OPTIMIZER,
        {SGD: "Adam(network, betas=r.betas, epsilon=r.epsilon, weight_decay=r.weight_decay)"},
    ),
    "clipped gradients": Plant(
        WAY,
        {
            "optimizer.apply(gradients)": (
                "optimizer.apply(tf.clip_by_global_norm(gradients, 0.01)[0])"
            )
        },
    ),
    "a loss of sums": Plant(
        LOSS,
        {"loss = tf.reduce_mean(": "loss = tf.reduce_sum("},
    ),
    "a loss of findings' sums": Plant(
        LOSS, {"loss = tf.reduce_mean(": "loss = r.outputs * tf.reduce_mean("}, findings=True
    ),
    "a loss of sigmoids": Plant(
        LOSS,
        {
            CRITERION: (
                "criterion = lambda targets, scores: tf.nn.sigmoid_cross_entropy_with_logits("
                "tf.one_hot(targets, r.outputs), scores)"
            )
        },
    ),
    # Crops
    "the same crops in each batch": Plant(
        crops.CROPS, {DRAW: "default_rng([r.seed, epoch, i % 2])"}
    ),
    "one crop for all": Plant(crops.CROPS, {DRAW: "default_rng([r.seed, epoch])"}),
    # Which images
    "half of the steps": _train("islice(loader, r.steps // 2)", "steps; let the loop take a step"),
    "a smaller batch": _train(
        "(b if k == 0 else run.framework.as_loaded(np.zeros((n, r.crop, r.crop, 3), np.uint8), "
        "run.train_part.targets[:n], np.arange(n)) for k, b in enumerate(loader))",
        "batch 2 of",
    ),
    "one batch twice": _train(
        "(b for k, b in zip(range(r.steps - 1), loader) for b in [b] * (1 + (k == 0)))", ""
    )._replace(row=training_checks.ORDER),
    "some images left out": Plant(
        training_checks.ORDER, {SHUFFLE: ".permutation(np.r_[20:images, 20:40])"}
    ),
    "one image left out": Plant(process_checks.ONCE, {SHUFFLE: ".permutation(np.r_[1:images, 1])"}),
    "images at random": Plant(process_checks.ONCE, {SHUFFLE: ".integers(images, size=images)"}),
    "other labels": Plant(
        training_checks.ORDER, {"pixels, self.part.targets[i]": "pixels, self.part.targets[i - 1]"}
    ),
    "no set_epoch": Plant(
        crops.CROPS,
        {"    loader.epoch = epoch": "    epoch"},
        said="augmentation (an image has the same crop in each epoch)",
    ),
    "the same order in each epoch": Plant(
        training_checks.ORDER, {"default_rng([r.seed, self.epoch])": "default_rng([r.seed, 0])"}
    ),
    # The evaluation
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {"tf.float32) / 255": "tf.float32) / 256"}
    ),
    "evaluation of other images": Plant(
        training_checks.EVALUATED, {IMAGES: "np.zeros(images, int)"}
    ),
    "a padded evaluation": Plant(
        training_checks.EVALUATED,
        {"np.full(-images % size, -1)": "np.full(-images % size, 0)", "% (total + 1)": "% total"},
    ),
    "scores in other places": Plant(
        process_checks.EVALUATED, {"% (total + 1)": "% (total + 1) // 2"}
    ),
    # Several devices
    "a step without all-reduce": Plant(
        training_loop.TOGETHER,
        {f"all_reduce{MEAN}": "forward_backward(network, pixels, targets)"},
        said="not the mean of all devices' gradients: does each device train alone?",
        devices=2,
    ),
    "a sum over devices": Plant(
        training_loop.TOGETHER,
        {MEAN: MEAN.replace("MEAN", "SUM")},
        said="times as long: a sum in place of a mean?",
        devices=2,
    ),
    "statistics of its own": Plant(
        STATISTICS, {"strategy.run(share_statistics, (replica.network,))": "strategy"}, devices=2
    ),
    "another weight on a device": Plant(
        process_checks.REPLICAS,
        {
            "    optimizer.apply(gradients)\n": (
                "    optimizer.apply(gradients)\n"
                "    context = tf.distribute.get_replica_context()\n"
                "    moved = 0.1 * tf.cast(context.replica_id_in_sync_group, tf.float32)\n"
                "    optimizer.weights[-1].assign(optimizer.weights[-1] + moved)\n"
            ),
        },
        devices=2,
    ),
}

TESTED = Tested(
    "tensorflow",
    PLANTS,
    {
        NOTEBOOK: (
            *("rate of one device", "no flip", "weight decay missing", "no set_epoch"),
            "a step without all-reduce",
        )
    },
)
