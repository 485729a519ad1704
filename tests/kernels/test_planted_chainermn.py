"""What a user may change in ChainerMN's notebook, and the fairness check's row that notices it."""

from planted_cells import *
from test_planted_chainer import HOOK, OF_CHAINER

from helpers.fairness.kept_statistics import AVERAGE

NOTEBOOK = "ChainerMN_MultiNode"
IN_ORDER = "else np.arange(len(self))"
PLACES = "places = np.arange(len(split))\n"
SCATTER = "chainermn.scatter_dataset(places, communicator, **how)[:]"
BROADCAST = "multi_node.update()  # multi-GPU: sends rank 0's weights to all\n"
TEXTS = {
    **OF_CHAINER,
    **texts_of_steps("len(loader)", "len(self)"),
    "other weights in the model": {
        "NpzDeserializer(run.weights(network))": (
            "NpzDeserializer({k: np.asarray(1.01 * each, each.dtype)"
            " for k, each in run.weights(network).items()})"
        )
    },
    "another momentum": {"optimizer.momentum = rate, r.momentum": "optimizer.momentum = rate, 0.5"},
    "another rule": {'"sgd": CorrectedMomentumSGD': '"sgd": chainer.optimizers.NesterovAG'},
    "another rate for one weight": {
        HOOK: f"next(network.params()).update_rule.hyperparam.lr = 0.05\n    {HOOK}"
    },
    "gradients added up": {"network.cleargrads()": "multi_node.t or network.zerograds()"},
    "a loss of sums": {
        "else F.softmax_cross_entropy": (
            "else lambda *given: len(given[1]) * F.softmax_cross_entropy(*given)"
        )
    },
    "a loss of findings' sums": {
        "F.sigmoid_cross_entropy if": "(lambda *given: 3 * F.sigmoid_cross_entropy(*given)) if"
    },
    "set_epoch without effect": {"dataset.epoch = epoch": "dataset.epoch = 0"},
    "evaluation of other images": {IN_ORDER: "else np.zeros(len(self), int)"},
    "a padded evaluation": {
        PLACES: "places = np.arange(len(split) + 16 * (not training)) % len(split)\n"
    },
    "scores in other places": {"scores[device.send(numbers)]": "scores[device.send(numbers) // 2]"},
    "a step without the multi-node optimiser": {
        "multi_node.update()  # the mean": "replica.optimizer.update()  # the mean"
    },
    "a first step that is lost": {BROADCAST: "multi_node  # multi-GPU\n"},
    "a sum over devices": {"loss.backward()": "(n * loss).backward()"},
    "a sum of the devices' losses": {
        "allreduce_obj(float(total)) / n": "allreduce_obj(float(total))"
    },
    "statistics of its own": {
        "chainermn.extensions.AllreducePersistent(network, communicator)()": "network"
    },
    "no sharding": {SCATTER: "places[: -(-len(places) // n)]"},
    "another seed on one rank": {
        "default_rng([r.seed, self.epoch])": "default_rng([r.seed + rank, self.epoch])"
    },
    "images of two ranks": {'"force_equal_length": False': '"force_equal_length": True'},
    "scores of one rank": {"return communicator.allreduce(scores)": "return scores"},
    "a rank without all-reduce": {
        BROADCAST: (
            f"{BROADCAST}    if rank:\n"
            "        optimizer.add_hook(lambda optimizer: [\n"
            "            each.grad.__imul__(0.9) for each in optimizer.target.params()])\n"
        )
    },
    "another weight on a rank": {
        BROADCAST: f"{BROADCAST}    next(network.params()).array += 0.1 * rank\n"
    },
}
TESTED = Tested(
    "chainer",
    plants(TEXTS),
    {NOTEBOOK: "a step without the multi-node optimiser"},
    processes=[NOTEBOOK],
    kept=AVERAGE,
    ranks="chainermn",
)
