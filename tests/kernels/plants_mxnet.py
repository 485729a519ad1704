"""What a user may change in MXNet's notebook, and the fairness check's row that notices it."""

from planted_cells import (
    DRAW,
    LOSS,
    OF_ALL,
    OF_VALIDATION,
    RUNNING,
    STATISTICS,
    Plant,
    Tested,
    measured_turns,
)

from helpers.fairness import (
    crops,
    process_checks,
    training_checks,
    training_loop,
    weight_checks,
)
from helpers.training import notebook_coverage

NOTEBOOK = "MXNet_Gluon_MultiGPU"
BIASED = "running variance after 5 SGD steps"

EPOCH = "yield [(self.epoch, i) for i in batch]"
SHUFFLE, SGD = ".permutation(self.images)", "SGD(r.momentum, learning_rate=rate,"
TRAIN = "train_steps(replica, loader, len(loader))"
EACH = "(0, i) for i in range(store.rank, len(part), store.num_workers)"
LOADED, SOFTMAX = "load_dict(run.weights(model))", "else SoftmaxCELoss()"
TRAINER = "optimizer = gluon.Trainer("
SCORES, MAKE = (
    "criterion(replica.network(to_network(x)), y)",
    "replica = make_replica(build_model())",
)
ORDERED = "order = np.random.default_rng([r.seed, self.epoch]).permutation(self.images)\n"
BY_LABEL = """        labels = np.resize(run.train_part.targets, self.images)
        order = order[np.argsort(labels[order], kind="stable")]
"""
APART = """def of_an_epoch(replica, loader):
    replica.optimizer.allreduce_grads = lambda: None
    loss = train_steps(replica, loader, len(loader))
    for each in replica.optimizer._params:
        each.set_data(each.list_data()[0].copy())
    return loss


"""
AVERAGED = """def of_an_epoch(replica, loader, kept={}):
    weights = replica.optimizer._params
    kept.setdefault("mean", [each.list_data()[0].copy() for each in weights])
    for each, raw in zip(weights, kept.get("raw", [])):
        each.set_data(raw)
    loss = train_steps(replica, loader, len(loader))
    kept["raw"] = [each.list_data()[0].copy() for each in weights]
    kept["mean"] = [0.5 * (old + each) for old, each in zip(kept["mean"], kept["raw"])]
    for each, mean in zip(weights, kept["mean"]):
        each.set_data(mean)
    return loss


"""


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, len(loader))"}, error)


PLANTS = {
    **OF_ALL,
    **measured_turns(
        "[mx.nd.zeros(1, each) for each in run.devices]",
        "batch = [part.as_in_context(run.devices[0])",
        "batch = [part[:4].as_in_context(run.devices[0])",
    ),
    # The network
    "other weights in the model": Plant(
        "initial weights",
        {LOADED: "load_dict({name: 1.01 * each for name, each in run.weights(model).items()})"},
    ),
    "other weights when training starts": Plant(
        training_checks.START,
        {
            "in run.epochs(replica)": (
                "in [each.set_data(1.01 * each.data(run.devices[0]))"
                " for each in replica.network.collect_params().values()] and run.epochs(replica)"
            )
        },
    ),
    # The optimiser
    "rate of one device": Plant(
        training_checks.RATE, {'"linear": world': '"linear": 1'}, devices=2
    ),
    "weight decay missing": Plant(training_checks.OPTIMIZER, {"wd=r.weight_decay": "wd=0.0"}),
    "another momentum": Plant(training_checks.OPTIMIZER, {"r.momentum * rate": "0.5 * rate"}),
    "another rule": Plant(training_checks.OPTIMIZER, {SGD: "Adam(learning_rate=rate,"}),
    "another rate for one weight": Plant(
        training_checks.OPTIMIZER,
        {TRAINER: f"next(iter(weights.values())).lr_mult = 10.0\n    {TRAINER}"},
    ),
    "clipped gradients": Plant(
        training_checks.OPTIMIZER, {SGD: SGD.replace("SGD(", "SGD(clip_gradient=0.01, momentum=")}
    ),
    "a momentum that ignores the rate": Plant(
        "weight change after 5 momentum steps",
        {"r.momentum * rate / rule.learning_rate": "r.momentum"},
    ),
    "a loss of sums": Plant(LOSS, {SOFTMAX: "else SoftmaxCELoss(weight=8)"}),
    "a loss of findings' sums": Plant(
        LOSS, {"SigmoidBCELoss()": "SigmoidBCELoss(weight=8)"}, findings=True
    ),
    "a loss of sigmoids": Plant(
        LOSS,
        {
            SOFTMAX: (
                "else lambda scores, targets: SigmoidBCELoss()"
                "(scores, mx.nd.one_hot(targets, scores.shape[1]))"
            )
        },
    ),
    "dropout": Plant(
        LOSS, {SCORES: "criterion(mx.nd.Dropout(replica.network(to_network(x)), p=0.3), y)"}
    ),
    "another scale in training": Plant(
        RUNNING, {SCORES: "criterion(replica.network(to_network(x) / 0.9), y)"}
    ),
    "mixed images": Plant(
        LOSS,
        {
            SCORES: (
                "criterion(replica.network((lambda x: 0.7 * x + 0.3 * mx.nd.flip(x, axis=0))"
                "(to_network(x))), y)"
            )
        },
    ),
    "another momentum of BatchNorm": Plant(
        RUNNING,
        {
            "rate = r.learning_rate * scale\n": (
                "rate = r.learning_rate * scale\n    network.apply(lambda each: "
                "isinstance(each, gluon.nn.BatchNorm) and each._kwargs.update(momentum=0.99))\n"
                "    network.hybridize(False)\n"
            )
        },
    ),
    "smoothed labels": Plant(
        LOSS,
        {
            SOFTMAX: (
                "else lambda scores, targets: SoftmaxCELoss(sparse_label=False)(scores, "
                "0.95 * mx.nd.one_hot(targets, scores.shape[1]) + 0.05 / scores.shape[1])"
            )
        },
    ),
    "the loss of the first half": Plant(
        LOSS, {"for step in losses for loss": "for step in losses[: len(losses) // 2] for loss"}
    ),
    # Crops
    "the same crops in each batch": Plant(
        crops.CROPS,
        {
            EPOCH: "yield [(place, i) for place, i in enumerate(batch)]",
            DRAW: "default_rng([r.seed, epoch])",
        },
    ),
    "one crop for a batch": Plant(
        crops.CROPS,
        {EPOCH: "yield [(batch[0], i) for i in batch]", DRAW: "default_rng([r.seed, epoch])"},
    ),
    # Which images
    "half of the steps": _train(
        "islice(loader, len(loader) // 2)", "steps; let the loop take a step"
    ),
    "a smaller batch": _train(
        "([a[k == 1 :] for a in b] for k, b in enumerate(loader))", "batch 2 of"
    ),
    "one batch twice": _train(
        "(b for k, b in zip(range(len(loader) - 1), loader) for b in [b] * (1 + (k == 0)))", ""
    )._replace(row=training_checks.ORDER),
    "some images left out": Plant(
        training_checks.ORDER, {SHUFFLE: ".permutation(np.r_[20 : self.images, 20:40])"}
    ),
    "one image left out": Plant(
        process_checks.ONCE, {SHUFFLE: ".permutation(np.r_[1 : self.images, 1])"}
    ),
    "images at random": Plant(
        process_checks.ONCE, {SHUFFLE: ".integers(self.images, size=self.images)"}
    ),
    "half of the images twice": Plant(
        process_checks.ONCE,
        {SHUFFLE: ".permutation(np.resize(np.arange(self.images // 2), self.images))"},
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
        {"loader._batch_sampler.set_epoch(epoch)": "pass"},
        said="augmentation (an image has the same crop in each epoch)",
    ),
    "set_epoch without effect": Plant(
        training_checks.ORDER, {"self.epoch = epoch": "self.epoch = 0"}
    ),
    # The evaluation
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {"normalize(planes": "normalize(0.99 * planes"}
    ),
    "random crops in the evaluation": Plant(
        notebook_coverage.PIXELS, {"Images(part, centre)": "Images(part, augment)"}
    ),
    "averaged weights in the evaluation": Plant(
        weight_checks.EVALUATED,
        {TRAIN: "of_an_epoch(replica, loader)", MAKE: f"{AVERAGED}{MAKE}"},
        said="weights (after epoch 1: not those after the last step of epoch 1)",
    ),
    "evaluation of other images": Plant(
        training_checks.EVALUATED, {EACH: EACH.replace("i)", "0)", 1)}
    ),
    "a padded evaluation": Plant(
        training_checks.EVALUATED,
        {EACH: "(0, i % len(part)) for i in range(len(part) + 16)"},
    ),
    "scores in other places": Plant(
        process_checks.EVALUATED, {"scores[numbers.asnumpy()]": "scores[numbers.asnumpy() // 2]"}
    ),
    # Several devices
    "no key-value store": Plant(
        training_loop.TOGETHER,
        {"kvstore=kvstore, update": "kvstore=None, update"},
        said="not the mean of all devices' gradients: does each device train alone?",
        devices=2,
    ),
    "an all-reduce after each epoch only": Plant(
        weight_checks.TOGETHER,
        {TRAIN: "of_an_epoch(replica, loader)", MAKE: f"{APART}{MAKE}"},
        said="not the same after the first step: does each device train alone?",
        devices=2,
    ),
    "one share for all": Plant(
        training_loop.TOGETHER,
        {
            "parts = list(zip(on_each(pixels), on_each(targets)))": (
                "parts = [(pixels[: r.batch_size].as_in_context(each),"
                " targets[: r.batch_size].as_in_context(each)) for each in run.devices]"
            )
        },
        devices=2,
    ),
    "a sum over devices": Plant(
        training_loop.TOGETHER,
        {"update(len(pixels) * store.num_workers)": "update(r.batch_size)"},
        said="times as long: a sum in place of a mean?",
        devices=2,
    ),
    "a sum of the devices' losses": Plant(LOSS, {"/ (steps * world)": "/ steps"}, devices=2),
    "statistics of its own": Plant(STATISTICS, {"statistic.set_data(": "str("}, devices=2),
}
"""MXNet knows no bf16 here, and takes an evaluation's mode from ``autograd.record`` alone."""

TESTED = Tested(
    "mxnet",
    PLANTS,
    {
        NOTEBOOK: (
            "rate of one device",
            "no flip",
            "weight decay missing",
            "no set_epoch",
            "no key-value store",
        )
    },
    expected=dict.fromkeys((1, 2), frozenset({BIASED})),
    kept="the average of all replicas'",
)
