"""What a user may change in ChainerMN's notebook, and the fairness check's row that notices it."""

from planted_cells import DRAW, LOSS, OF_ALL, STATISTICS, WAY, Plant, Tested

from helpers.fairness import crops, process_checks, training_checks, training_loop
from helpers.training import notebook_coverage

NOTEBOOK = "ChainerMN_MultiNode"

SHUFFLE, IN_ORDER = "random.permutation(len(self))", "else np.arange(len(self))"
HOOK, PLACES = "optimizer.add_hook(like_pytorch)", "places = np.arange(len(part))\n"
SCATTER = "chainermn.scatter_dataset(places, communicator, **how)[:]"
TRAIN = "train_steps(replica, loader, len(loader))"
BROADCAST = "multi_node.update()  # multi-GPU: sends rank 0's weights to all\n"


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, len(loader))"}, error)


PLANTS = {
    **OF_ALL,
    # The network
    "other weights in the model": Plant(
        "initial weights",
        {
            "NpzDeserializer(run.weights(network))": (
                "NpzDeserializer({k: np.asarray(1.01 * each, each.dtype)"
                " for k, each in run.weights(network).items()})"
            )
        },
    ),
    "other weights when training starts": Plant(
        training_checks.START,
        {
            "in run.epochs(replica)": (
                "in [each.array.__imul__(1.01) for each in replica.network.params()] "
                "and run.epochs(replica)"
            )
        },
    ),
    # The optimiser
    "rate of one device": Plant(training_checks.RATE, {'"linear": n,': '"linear": 1,'}, devices=2),
    "weight decay missing": Plant(
        training_checks.OPTIMIZER, {"WeightDecay(r.weight_decay)": "WeightDecay(0.0)"}
    ),
    "another momentum": Plant(
        training_checks.OPTIMIZER,
        {"optimizer.momentum = rate, r.momentum": "optimizer.momentum = rate, 0.5"},
    ),
    "another rule": Plant(
        training_checks.OPTIMIZER,
        {'"sgd": CorrectedMomentumSGD': '"sgd": chainer.optimizers.NesterovAG'},
    ),
    "another rate for one weight": Plant(
        training_checks.OPTIMIZER,
        {HOOK: f"next(network.params()).update_rule.hyperparam.lr = 0.05\n    {HOOK}"},
    ),
    "clipped gradients": Plant(
        WAY,
        {HOOK: (f"optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(0.01))\n    {HOOK}")},
    ),
    "gradients added up": Plant(WAY, {"network.cleargrads()": "network"}),
    "a loss of sums": Plant(
        LOSS,
        {
            "else F.softmax_cross_entropy": (
                "else lambda *given: len(given[1]) * F.softmax_cross_entropy(*given)"
            )
        },
    ),
    "a loss of findings' sums": Plant(
        LOSS,
        {"F.sigmoid_cross_entropy if": "(lambda *given: 3 * F.sigmoid_cross_entropy(*given)) if"},
        findings=True,
    ),
    "a loss of sigmoids": Plant(
        LOSS,
        {
            "else F.softmax_cross_entropy": (
                "else lambda scores, targets: F.sigmoid_cross_entropy("
                "scores, np.eye(scores.shape[1], dtype=int)[targets])"
            )
        },
    ),
    # Crops
    "one crop for an epoch": Plant(crops.CROPS, {DRAW: "default_rng([r.seed, epoch])"}),
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
        training_checks.ORDER, {SHUFFLE: "random.permutation(np.r_[20 : len(self), 20:40])"}
    ),
    "one image left out": Plant(
        process_checks.ONCE, {SHUFFLE: "random.permutation(np.r_[1 : len(self), 1])"}
    ),
    "images at random": Plant(
        process_checks.ONCE, {SHUFFLE: "random.integers(len(self), size=len(self))"}
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
        training_checks.ORDER, {"dataset.epoch = epoch": "dataset.epoch = 0"}
    ),
    # The evaluation
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {'.astype("f") / 255': '.astype("f") / 256'}
    ),
    "evaluation of other images": Plant(
        training_checks.EVALUATED, {IN_ORDER: "else np.zeros(len(self), int)"}
    ),
    "a padded evaluation": Plant(
        training_checks.EVALUATED,
        {PLACES: "places = np.arange(len(part) + 16 * (not training)) % len(part)\n"},
    ),
    "scores in other places": Plant(
        process_checks.EVALUATED,
        {"scores[device.send(numbers)]": "scores[device.send(numbers) // 2]"},
    ),
    # Several devices
    "a step without the multi-node optimiser": Plant(
        training_loop.TOGETHER,
        {"multi_node.update()  # the mean": "replica.optimizer.update()  # the mean"},
        said="not the mean of all devices' gradients: does each device train alone?",
        devices=2,
    ),
    "a first step that is lost": Plant(WAY, {BROADCAST: "multi_node  # multi-GPU\n"}),
    "a sum over devices": Plant(
        training_loop.TOGETHER,
        {"loss.backward()": "(n * loss).backward()"},
        said="times as long: a sum in place of a mean?",
        devices=2,
    ),
    "a sum of the devices' losses": Plant(
        LOSS, {"allreduce_obj(float(total)) / n": "allreduce_obj(float(total))"}, devices=2
    ),
    "statistics of its own": Plant(
        STATISTICS,
        {"chainermn.extensions.AllreducePersistent(network, communicator)()": "network"},
        devices=2,
    ),
    "no sharding": Plant(
        process_checks.ONCE, {SCATTER: "places[: -(-len(places) // n)]"}, devices=2
    ),
    "another seed on one rank": Plant(
        process_checks.ONCE,
        {"default_rng([r.seed, self.epoch])": "default_rng([r.seed + rank, self.epoch])"},
        devices=2,
    ),
    "images of two ranks": Plant(
        process_checks.EVALUATED,
        {'"force_equal_length": False': '"force_equal_length": True'},
        devices=2,
    ),
    "scores of one rank": Plant(
        process_checks.EVALUATED,
        {"return communicator.allreduce(scores)": "return scores"},
        devices=2,
    ),
    "a rank without all-reduce": Plant(
        process_checks.WEIGHTS,
        {
            BROADCAST: (
                f"{BROADCAST}    if rank:\n"
                "        optimizer.add_hook(lambda optimizer: [\n"
                "            each.grad.__imul__(0.9) for each in optimizer.target.params()])\n"
            )
        },
        devices=2,
    ),
    "another weight on a rank": Plant(
        process_checks.REPLICAS,
        {BROADCAST: f"{BROADCAST}    next(network.params()).array += 0.1 * rank\n"},
        devices=2,
    ),
}

TESTED = Tested(
    "chainer",
    PLANTS,
    {
        NOTEBOOK: (
            *("rate of one device", "no flip", "weight decay missing", "no set_epoch"),
            "a step without the multi-node optimiser",
        )
    },
    processes=[NOTEBOOK],
    kept=training_loop.AVERAGE,
    ranks="chainermn",
)
