"""What a user may change in MXNet's notebook, and the fairness check's row that notices it."""

import pytest
from planted_cells import *

from helpers.fairness import training_checks

SGD = "SGD(r.momentum, learning_rate=rate,"
TRAIN = "train_steps(replica, loader, len(loader))"
EACH = "(0, i) for i in range(store.rank, len(split), store.num_workers)"
LOADED, SOFTMAX = "load_dict(run.weights(model))", "else SoftmaxCELoss()"
TRAINER = "optimizer = gluon.Trainer("
SCORES = "criterion(replica.network(to_network(x)), y)"
MAKE = "replica = make_replica(build_model())"
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
TEXTS = {
    **texts_of_steps(
        "len(loader)", "self.images", "([a[k == 1 :] for a in b] for k, b in enumerate(loader))"
    ),
    **OF_SAMPLERS,
    **measured_repeats(
        "[mx.nd.zeros(1, each) for each in run.devices]",
        "batch = [part.as_in_context(run.devices[0])",
        "batch = [part[:4].as_in_context(run.devices[0])",
    ),
    "other weights in the model": {
        LOADED: "load_dict({name: 1.01 * each for name, each in run.weights(model).items()})"
    },
    "other weights when training starts": at_the_start(
        "[each.set_data(1.01 * each.data(run.devices[0]))"
        " for each in replica.network.collect_params().values()]"
    ),
    "rate of one device": {'"linear": world': '"linear": 1'},
    "weight decay missing": {"wd=r.weight_decay": "wd=0.0"},
    "another momentum": {"r.momentum * rate": "0.5 * rate"},
    "another rule": {SGD: "Adam(learning_rate=rate,"},
    "another rate for one weight": {
        TRAINER: f"next(iter(weights.values())).lr_mult = 10.0\n    {TRAINER}"
    },
    "a momentum that ignores the rate": {"r.momentum * rate / rule.learning_rate": "r.momentum"},
    "a loss of sums": {SOFTMAX: "else SoftmaxCELoss(weight=8)"},
    "a loss of findings' sums": {"SigmoidBCELoss()": "SigmoidBCELoss(weight=8)"},
    "a loss of sigmoids": {
        SOFTMAX: (
            "else lambda scores, targets: SigmoidBCELoss()"
            "(scores, mx.nd.one_hot(targets, scores.shape[1]))"
        )
    },
    "dropout": {SCORES: "criterion(mx.nd.Dropout(replica.network(to_network(x)), p=0.3), y)"},
    "another scale in training": {SCORES: "criterion(replica.network(to_network(x) / 0.9), y)"},
    "mixed images": {
        SCORES: (
            "criterion(replica.network((lambda x: 0.7 * x + 0.3 * mx.nd.flip(x, axis=0))"
            "(to_network(x))), y)"
        )
    },
    "another momentum of BatchNorm": {
        "rate = r.learning_rate * scale\n": (
            "rate = r.learning_rate * scale\n    network.apply(lambda each: "
            "isinstance(each, gluon.nn.BatchNorm) and each._kwargs.update(momentum=0.99))\n"
            "    network.hybridize(False)\n"
        )
    },
    "smoothed labels": {
        SOFTMAX: (
            "else lambda scores, targets: SoftmaxCELoss(sparse_label=False)(scores, "
            "0.95 * mx.nd.one_hot(targets, scores.shape[1]) + 0.05 / scores.shape[1])"
        )
    },
    "the loss of the first half": {
        "for step in losses for loss": "for step in losses[: len(losses) // 2] for loss"
    },
    "images of the validation": OF_VALIDATION,
    "no set_epoch": {"loader._batch_sampler.set_epoch(epoch)": "pass"},
    "evaluation pixels of another scale": {"normalize(planes": "normalize(0.99 * planes"},
    "averaged weights in the evaluation": {
        TRAIN: "of_an_epoch(replica, loader)",
        MAKE: f"{AVERAGED}{MAKE}",
    },
    "evaluation of other images": {EACH: EACH.replace("i)", "0)", 1)},
    "a padded evaluation": {EACH: "(0, i % len(split)) for i in range(len(split) + 16)"},
    "scores in other places": {"scores[numbers.asnumpy()]": "scores[numbers.asnumpy() // 2]"},
    "no key-value store": {"kvstore=kvstore, update": "kvstore=None, update"},
    "an all-reduce after each epoch only": {
        TRAIN: "of_an_epoch(replica, loader)",
        MAKE: f"{APART}{MAKE}",
    },
    "one share for all": {
        "parts = list(zip(on_each(pixels), on_each(targets)))": (
            "parts = [(pixels[: r.batch_size].as_in_context(each),"
            " targets[: r.batch_size].as_in_context(each)) for each in run.devices]"
        )
    },
    "a sum over devices": {"update(len(pixels) * store.num_workers)": "update(r.batch_size)"},
    "a sum of the devices' losses": {"/ (steps * world)": "/ steps"},
    "statistics of its own": {"statistic.set_data(": "str("},
}
PLANTS = plants(TEXTS) | {
    "clipped gradients": Plant(
        training_checks.OPTIMIZER, {SGD: SGD.replace("SGD(", "SGD(clip_gradient=0.01, momentum=")}
    ),
}
"""MXNet knows no bf16 here, and takes an evaluation's mode from ``autograd.record`` alone."""
TESTED = Tested(
    "mxnet",
    PLANTS,
    {"MXNet_Gluon_MultiGPU": "no key-value store"},
    expected=dict.fromkeys((1, 2), frozenset({"running variance after 5 SGD steps"})),
    kept="the average of all replicas'",
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands
