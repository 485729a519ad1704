"""What a user may change in PyTorch's notebooks, and the fairness check's row that notices it."""

from planted_cells import (
    DRAW,
    LOSS,
    OF_ALL,
    OF_VALIDATION,
    RUNNING,
    STATISTICS,
    SURVIVOR,
    UNEVEN,
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
    weight_checks,
)
from helpers.training import notebook_coverage

DDP, ONE_PROCESS = "PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"

EPOCH = "yield [(self.epoch, i) for i in batch]"
SHUFFLE, SGD = ".permutation(self.images)", "SGD(network.parameters(), momentum=r.momentum, **how)"
TRAIN, WRAP = (
    "train_steps(replica, loader, len(loader))",
    "DistributedDataParallel(network, **how)  # multi-GPU\n",
)
EACH, STRIDE = "(0, i) for i in range(len(part))", "order[rank::world]"
CAST = 'cast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(r.precision)'

MAIN = "def main(rank, world):"
ORDERED = "order = np.random.default_rng([r.seed, self.epoch]).permutation(self.images)\n"
BY_LABEL = """        labels = np.resize(run.train_part.targets, self.images)
        order = order[np.argsort(labels[order], kind="stable")]
"""
APART = """
def of_an_epoch(replica, loader):
    with replica.model.no_sync():
        loss = train_steps(replica, loader, len(loader))
    for each in replica.network.parameters():
        dist.broadcast(each.data, 0)
    return loss


"""
AVERAGED = """
def of_an_epoch(replica, loader, kept={}):
    weights = [each.data for each in replica.network.parameters()]
    kept.setdefault("mean", [each.clone() for each in weights])
    for each, raw in zip(weights, kept.get("raw", [])):
        each.copy_(raw)
    loss = train_steps(replica, loader, len(loader))
    kept["raw"] = [each.clone() for each in weights]
    kept["mean"] = [0.5 * (old + each) for old, each in zip(kept["mean"], weights)]
    for each, mean in zip(weights, kept["mean"]):
        each.copy_(mean)
    return loss


"""
SCORES = "model(to_network(pixels))"

ALL_REDUCE_FOR_OTHERS = """
def deaf(group, bucket):
    own = bucket.buffer().clone()
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda _: own)


"""


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, len(loader))"}, error)


PLANTS = {
    **OF_ALL,
    **measured_turns(
        "torch.zeros(())",
        "batch = [part.to(replica.device)",
        "batch = [part[:4].to(replica.device)",
    ),
    # The network
    "other weights in the model": Plant(
        "initial weights",
        {
            "load_state_dict(run.weights(model))": (
                "load_state_dict({name: 1.01 * each for name, each in run.weights(model).items()})"
            )
        },
    ),
    "other weights when training starts": Plant(
        training_checks.START,
        {
            "in run.epochs(replica)": (
                "in [each.data.mul_(1.01) for each in replica.network.parameters()] "
                "and run.epochs(replica)"
            )
        },
    ),
    "evaluated from then on": Plant(RUNNING, {"replica.model.train()": "replica.model"}),
    "bf16": Plant(training_checks.PRECISION, {CAST: "cast = torch.bfloat16"}),
    # The optimiser
    "rate of one device": Plant(
        training_checks.RATE,
        {'"linear": world': '"linear": 1', '"linear": n': '"linear": 1'},
        devices=2,
    ),
    "weight decay missing": Plant(
        training_checks.OPTIMIZER, {'"weight_decay": r.weight_decay': '"weight_decay": 0.0'}
    ),
    "another momentum": Plant(training_checks.OPTIMIZER, {SGD: SGD.replace("r.momentum", "0.5")}),
    "another rule": Plant(training_checks.OPTIMIZER, {SGD: "Adam(network.parameters(), **how)"}),
    "another rate for one weight": Plant(
        training_checks.OPTIMIZER,
        {
            "SGD(network.parameters(),": (
                'SGD([{"params": [each], "lr": (9 * (k == 0) + 1) * r.learning_rate * scale}'
                " for k, each in enumerate(network.parameters())],"
            )
        },
    ),
    "clipped gradients": Plant(
        WAY,
        {
            "scaler.step(optimizer)": (
                "nn.utils.clip_grad_norm_(model.parameters(), 0.01)\n    scaler.step(optimizer)"
            )
        },
    ),
    "gradients added up": Plant(WAY, {"optimizer.zero_grad()": "optimizer"}),
    "a loss of sums": Plant(
        LOSS, {"else nn.CrossEntropyLoss()": 'else nn.CrossEntropyLoss(reduction="sum")'}
    ),
    "a loss of findings' sums": Plant(
        LOSS, {"nn.BCEWithLogitsLoss()": 'nn.BCEWithLogitsLoss(reduction="sum")'}, findings=True
    ),
    "a loss of sigmoids": Plant(
        LOSS,
        {
            "else nn.CrossEntropyLoss()": (
                "else lambda scores, targets: nn.functional.binary_cross_entropy_with_logits("
                "scores, nn.functional.one_hot(targets, scores.shape[1]).float())"
            )
        },
    ),
    "dropout": Plant(LOSS, {SCORES: f"nn.functional.dropout({SCORES}, 0.3)"}, notebooks=[DDP]),
    "another scale in training": Plant(
        RUNNING,
        {SCORES: "model(to_network(pixels) / 0.9)"},
        notebooks=[DDP],
    ),
    "mixed images": Plant(
        LOSS,
        {SCORES: f"model((lambda x: 0.7 * x + 0.3 * x.flip(0))({SCORES[6:]})"},
        notebooks=[DDP],
    ),
    "another momentum of BatchNorm": Plant(
        RUNNING,
        {
            "device = run.device(rank)": (
                "device = run.device(rank)\n    for each in network.modules():\n"
                "        if isinstance(each, nn.BatchNorm2d):\n            each.momentum = 0.01"
            )
        },
        notebooks=[DDP],
    ),
    "smoothed labels": Plant(
        LOSS, {"else nn.CrossEntropyLoss()": "else nn.CrossEntropyLoss(label_smoothing=0.05)"}
    ),
    "the loss of the first half": Plant(
        LOSS,
        {
            "for pixels, targets, _ in run.watch(batches):\n        total += ": (
                "for k, (pixels, targets, _) in enumerate(run.watch(batches)):\n"
                "        total += (2 * k < steps) * "
            )
        },
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
        "(tuple(a[k == 1 :] for a in b) for k, b in enumerate(loader))", "batch 2 of"
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
        said="of ",
    ),
    "an order by labels": Plant(
        training_checks.ORDER, {ORDERED: f"{ORDERED}{BY_LABEL}"}, said="order ("
    ),
    "other labels": Plant(
        training_checks.ORDER, {"self.part.targets[i], i": "self.part.targets[i - 1], i"}
    ),
    "no set_epoch": Plant(
        crops.CROPS,
        {"loader.batch_sampler.set_epoch(epoch)": "pass"},
        said="augmentation (an image has the same crop in each epoch)",
    ),
    "set_epoch without effect": Plant(
        training_checks.ORDER, {"self.epoch = epoch": "self.epoch = 0"}
    ),
    # The evaluation
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {".float() / 255": ".float() / 256"}
    ),
    "random crops in the evaluation": Plant(
        notebook_coverage.PIXELS, {"Images(part, centre)": "Images(part, augment)"}
    ),
    "averaged weights in the evaluation": Plant(
        weight_checks.EVALUATED,
        {TRAIN: "of_an_epoch(replica, loader)", MAIN: f"{AVERAGED}{MAIN}"},
        said="weights (after epoch 1: not those after the last step of epoch 1)",
        notebooks=[DDP],
    ),
    "evaluation of other images": Plant(
        training_checks.EVALUATED, {EACH: "(0, 0) for i in range(len(part))"}
    ),
    "a padded evaluation": Plant(
        training_checks.EVALUATED, {EACH: "(0, i % len(part)) for i in range(len(part) + 16)"}
    ),
    "scores in other places": Plant(
        process_checks.EVALUATED, {"scores[numbers.to(device)]": "scores[numbers.to(device) // 2]"}
    ),
    # Several devices
    "a step without DDP": Plant(
        training_loop.TOGETHER,
        {"criterion(model(to_network": "criterion(replica.network(to_network"},
        said="not the mean of all devices' gradients: does each device train alone?",
        devices=2,
        notebooks=[DDP],
    ),
    "an all-reduce after each epoch only": Plant(
        weight_checks.TOGETHER,
        {TRAIN: "of_an_epoch(replica, loader)", MAIN: f"{APART}{MAIN}"},
        said="not the same after the first step: does each device train alone?",
        devices=2,
        notebooks=[DDP],
    ),
    "one share for all": Plant(
        training_loop.TOGETHER,
        {
            "for loss, _ in on_each(model, pixels, targets)": (
                "for loss, _ in on_each(model, *(torch.cat([part[: r.batch_size]] * n) "
                "for part in (pixels, targets)))"
            )
        },
        devices=2,
        notebooks=[ONE_PROCESS],
    ),
    "a sum over devices": Plant(
        training_loop.TOGETHER,
        {
            "scaler.scale(loss).backward()  # DDP": (
                "scaler.scale(loss * dist.get_world_size()).backward()  # DDP"
            ),
            "torch.stack(losses).mean()": "torch.stack(losses).sum()",
        },
        said="times as long: a sum in place of a mean?",
        devices=2,
    ),
    "a sum of the devices' losses": Plant(
        LOSS, {"total.div_(dist.get_world_size())": "total"}, devices=2, notebooks=[DDP]
    ),
    "statistics of its own": Plant(
        STATISTICS,
        {"dist.broadcast(statistic, 0)": "statistic", "b.clone()": "torch.zeros_like(b)"},
        devices=2,
    ),
    "statistics of all copies in one": Plant(
        SURVIVOR,
        {"b.clone()": "b"},
        said="replica 1's",
        devices=2,
        notebooks=[ONE_PROCESS],
    ),
    "no sharding": Plant(
        process_checks.ONCE,
        {"blocks[self.rank :: self.world]": "blocks[0 :: self.world]"},
        devices=2,
        notebooks=[DDP],
    ),
    "another seed on one rank": Plant(
        process_checks.ONCE,
        {"default_rng([r.seed, self.epoch])": "default_rng([r.seed + self.rank, self.epoch])"},
        devices=2,
        notebooks=[DDP],
    ),
    "evaluation of one rank's images": Plant(
        process_checks.EVALUATED,
        {STRIDE: "order[0::world]"},
        devices=2,
        notebooks=[DDP],
    ),
    "scores of one rank": Plant(
        process_checks.EVALUATED,
        {"dist.all_reduce(scores)": "scores"},
        devices=2,
        notebooks=[DDP],
    ),
    "each process alone": Plant(
        "",
        {
            "dist.init_process_group(run.backend)": (
                "dist.init_process_group(run.backend, store=dist.HashStore(), rank=0, world_size=1)"
            )
        },
        error="1 of 2 processes joined",
        devices=2,
        notebooks=[DDP],
    ),
    "a rank without all-reduce": Plant(
        process_checks.WEIGHTS,
        {
            "def make_replica(": f"{ALL_REDUCE_FOR_OTHERS}def make_replica(",
            WRAP: f"{WRAP}        if rank:\n            model.register_comm_hook(None, deaf)\n",
        },
        devices=2,
        notebooks=[DDP],
    ),
    "another weight on a rank": Plant(
        process_checks.REPLICAS,
        {WRAP: f"{WRAP}        next(network.parameters()).data.add_(0.1 * rank)\n"},
        devices=2,
        notebooks=[DDP],
    ),
}

_EVERY_DAY = ("rate of one device", "no flip", "weight decay missing", "no set_epoch")

TESTED = Tested(
    "pytorch",
    PLANTS,
    {
        DDP: (*_EVERY_DAY, "a step without DDP"),
        ONE_PROCESS: (*_EVERY_DAY, "one share for all"),
    },
    expected={2: frozenset({UNEVEN})},
    processes=[DDP],
)
