"""What a user may change in ChainerMN's notebook, and the fairness check's row that notices it."""

from planted_cells import *
from planted_cells import DRAW, Tested, plants, texts_of_steps

from helpers.fairness.kept_statistics import AVERAGE

NOTEBOOK = "ChainerMN_MultiNode"
IN_ORDER = "else np.arange(len(self))"
HOOK, PLACES = "optimizer.add_hook(like_pytorch)", "places = np.arange(len(part))\n"
SCATTER = "chainermn.scatter_dataset(places, communicator, **how)[:]"
BROADCAST = "multi_node.update()  # multi-GPU: sends rank 0's weights to all\n"
TEXTS = {
    **texts_of_steps(
        "len(loader)", "len(self)", "(tuple(a[k == 1 :] for a in b) for k, b in enumerate(loader))"
    ),
    "other weights in the model": {
        "NpzDeserializer(run.weights(network))": (
            "NpzDeserializer({k: np.asarray(1.01 * each, each.dtype)"
            " for k, each in run.weights(network).items()})"
        )
    },
    "other weights when training starts": {
        "in run.epochs(replica)": (
            "in [each.array.__imul__(1.01) for each in replica.network.params()] "
            "and run.epochs(replica)"
        )
    },
    "rate of one device": {'"linear": n,': '"linear": 1,'},
    "weight decay missing": {"WeightDecay(r.weight_decay)": "WeightDecay(0.0)"},
    "another momentum": {"optimizer.momentum = rate, r.momentum": "optimizer.momentum = rate, 0.5"},
    "another rule": {'"sgd": CorrectedMomentumSGD': '"sgd": chainer.optimizers.NesterovAG'},
    "another rate for one weight": {
        HOOK: f"next(network.params()).update_rule.hyperparam.lr = 0.05\n    {HOOK}"
    },
    "clipped gradients": {
        HOOK: (f"optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(0.01))\n    {HOOK}")
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
    "a loss of sigmoids": {
        "else F.softmax_cross_entropy": (
            "else lambda scores, targets: F.sigmoid_cross_entropy("
            "scores, np.eye(scores.shape[1], dtype=int)[targets])"
        )
    },
    "one crop for an epoch": {DRAW: "default_rng([r.seed, epoch])"},
    "other labels": {"self.part.targets[i], i": "self.part.targets[i - 1], i"},
    "no set_epoch": {"loader.set_epoch(epoch)": "pass"},
    "set_epoch without effect": {"dataset.epoch = epoch": "dataset.epoch = 0"},
    "evaluation pixels of another scale": {'.astype("f") / 255': '.astype("f") / 256'},
    "evaluation of other images": {IN_ORDER: "else np.zeros(len(self), int)"},
    "a padded evaluation": {
        PLACES: "places = np.arange(len(part) + 16 * (not training)) % len(part)\n"
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
PLANTS = plants(TEXTS)
TESTED = Tested(
    "chainer",
    PLANTS,
    {NOTEBOOK: "a step without the multi-node optimiser"},
    processes=[NOTEBOOK],
    kept=AVERAGE,
    ranks="chainermn",
)
