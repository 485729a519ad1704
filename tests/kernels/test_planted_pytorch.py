"""What a user may change in PyTorch's notebooks, and the fairness check's row that notices it."""

from planted_cells import *

from helpers.fairness import crops

DDP, ONE_PROCESS = "PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel"
SGD = "SGD(network.parameters(), momentum=r.momentum, **how)"
TRAIN = "train_steps(replica, loader, len(loader))"
WRAP = "DistributedDataParallel(network, **how)  # multi-GPU\n"
EACH, STRIDE = "(0, i) for i in range(len(split))", "order[rank::world]"
CAST = 'cast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(r.precision)'
MAIN = "def main(rank, world):"
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
TEXTS = {
    **texts_of_steps("len(loader)", "self.images"),
    **OF_SAMPLERS,
    **measured_repeats(
        "torch.zeros(())",
        "batch = [part.to(replica.device)",
        "batch = [part[:4].to(replica.device)",
    ),
    "other weights in the model": {
        "load_state_dict(run.weights(model))": (
            "load_state_dict({name: 1.01 * each for name, each in run.weights(model).items()})"
        )
    },
    "other weights when training starts": at_the_start(
        "[each.data.mul_(1.01) for each in replica.network.parameters()]"
    ),
    "evaluated from then on": {"replica.model.train()": "replica.model"},
    "bf16": {CAST: "cast = torch.bfloat16"},
    "rate of one device": {'"linear": world': '"linear": 1', '"linear": n': '"linear": 1'},
    "weight decay missing": {'"weight_decay": r.weight_decay': '"weight_decay": 0.0'},
    "another momentum": {SGD: SGD.replace("r.momentum", "0.5")},
    "another rule": {SGD: "Adam(network.parameters(), **how)"},
    "another rate for one weight": {
        "SGD(network.parameters(),": (
            'SGD([{"params": [each], "lr": (9 * (k == 0) + 1) * r.learning_rate * scale}'
            " for k, each in enumerate(network.parameters())],"
        )
    },
    "clipped gradients": {
        "scaler.step(optimizer)": (
            "nn.utils.clip_grad_norm_(model.parameters(), 0.01)\n    scaler.step(optimizer)"
        )
    },
    "gradients added up": {"optimizer.zero_grad()": "optimizer"},
    "a loss of sums": {"else nn.CrossEntropyLoss()": 'else nn.CrossEntropyLoss(reduction="sum")'},
    "a loss of findings' sums": {"nn.BCEWithLogitsLoss()": 'nn.BCEWithLogitsLoss(reduction="sum")'},
    "a loss of sigmoids": {
        "else nn.CrossEntropyLoss()": (
            "else lambda scores, targets: nn.functional.binary_cross_entropy_with_logits("
            "scores, nn.functional.one_hot(targets, scores.shape[1]).float())"
        )
    },
    "smoothed labels": {
        "else nn.CrossEntropyLoss()": "else nn.CrossEntropyLoss(label_smoothing=0.05)"
    },
    "the loss of the first half": {
        "for pixels, targets, _ in run.watch(batches):\n        total += ": (
            "for k, (pixels, targets, _) in enumerate(run.watch(batches)):\n"
            "        total += (2 * k < steps) * "
        )
    },
    "no set_epoch": {"loader.batch_sampler.set_epoch(epoch)": "pass"},
    "evaluation pixels of another scale": {".float() / 255": ".float() / 256"},
    "evaluation of other images": {EACH: "(0, 0) for i in range(len(split))"},
    "a padded evaluation": {EACH: "(0, i % len(split)) for i in range(len(split) + 16)"},
    "scores in other places": {"scores[numbers.to(device)]": "scores[numbers.to(device) // 2]"},
    "a sum over devices": {
        "scaler.scale(loss).backward()  # DDP": (
            "scaler.scale(loss * dist.get_world_size()).backward()  # DDP"
        ),
        "torch.stack(losses).mean()": "torch.stack(losses).sum()",
    },
    "statistics of its own": {
        "dist.broadcast(statistic, 0)": "statistic",
        "b.clone()": "torch.zeros_like(b)",
    },
}
OF_DDP = {
    "dropout": {SCORES: f"nn.functional.dropout({SCORES}, 0.3)"},
    "another scale in training": {SCORES: "model(to_network(pixels) / 0.9)"},
    "mixed images": {SCORES: f"model((lambda x: 0.7 * x + 0.3 * x.flip(0))({SCORES[6:]})"},
    "another momentum of BatchNorm": {
        "device = run.device(rank)": (
            "device = run.device(rank)\n    for each in network.modules():\n"
            "        if isinstance(each, nn.BatchNorm2d):\n            each.momentum = 0.01"
        )
    },
    "averaged weights in the evaluation": {
        TRAIN: "of_an_epoch(replica, loader)",
        MAIN: f"{AVERAGED}{MAIN}",
    },
    "a step without DDP": {"criterion(model(to_network": "criterion(replica.network(to_network"},
    "an all-reduce after each epoch only": {
        TRAIN: "of_an_epoch(replica, loader)",
        MAIN: f"{APART}{MAIN}",
    },
    "a sum of the devices' losses": {"total.div_(dist.get_world_size())": "total"},
    "no sharding": {"blocks[self.rank :: self.world]": "blocks[0 :: self.world]"},
    "another seed on one rank": {
        "default_rng([r.seed, self.epoch])": "default_rng([r.seed + self.rank, self.epoch])"
    },
    "evaluation of one rank's images": {STRIDE: "order[0::world]"},
    "scores of one rank": {"dist.all_reduce(scores)": "scores"},
    "each process alone": {
        "dist.init_process_group(run.backend)": (
            "dist.init_process_group(run.backend, store=dist.HashStore(), rank=0, world_size=1)"
        )
    },
    "a rank without all-reduce": {
        "def make_replica(": f"{ALL_REDUCE_FOR_OTHERS}def make_replica(",
        WRAP: f"{WRAP}        if rank:\n            model.register_comm_hook(None, deaf)\n",
    },
    "another weight on a rank": {
        WRAP: f"{WRAP}        next(network.parameters()).data.add_(0.1 * rank)\n"
    },
}
OF_ONE_PROCESS = {
    "one share for all": {
        "for loss, _ in on_each(model, pixels, targets)": (
            "for loss, _ in on_each(model, *(torch.cat([part[: r.batch_size]] * n) "
            "for part in (pixels, targets)))"
        )
    },
    "statistics of all copies in one": {"b.clone()": "b"},
}
PLANTS = (
    plants(TEXTS)
    | plants(OF_DDP, [DDP])
    | plants(OF_ONE_PROCESS, [ONE_PROCESS])
    | {"images of the validation": Plant(crops.CROPS, OF_VALIDATION, said="of ")}
)
TESTED = Tested(
    "pytorch",
    PLANTS,
    {DDP: "a step without DDP", ONE_PROCESS: "one share for all"},
    expected={2: frozenset({UNEVEN})},
    processes=[DDP],
)
