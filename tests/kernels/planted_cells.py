"""What a user may change in PyTorch's notebooks, and the fairness check's row that notices it.

Each plant changes the text of a notebook's cells, which then run to the end of the test: a small
network, 200 images, two epochs, momentum, weight decay and a warm-up. Without a plant a notebook
runs to its end.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import own_networks
import pytest

from helpers import paths, record
from helpers.fairness import (
    crops,
    custom_network,
    process_checks,
    reference_checks,
    training_checks,
    training_loop,
)
from helpers.runner.notebook_code import run_cells
from helpers.training import loop, notebook_coverage, notebook_run

DDP, ONE_PROCESS = NOTEBOOKS = ("PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss")

LOSS, WAY = "mean loss of 5 SGD steps", "weight change after 5 SGD steps"
RUNNING = "running mean after 5 SGD steps"
STATISTICS = "validated with the statistics that are saved"


SURVIVOR = "which replica's running statistics are kept"
UNEVEN = "gradients, uneven batch, n devices / one"


class Plant(NamedTuple):
    """The notebook's texts, each with what stands in its place; ``row`` notices it.

    A text of one notebook only is passed over in the other one.
    """

    row: str
    texts: Mapping[str, str]
    error: str = ""
    """What the error says that ends the notebook, if no row notices it."""
    devices: int = 1
    """So many are needed for it to matter."""
    notebooks: Sequence[str] = NOTEBOOKS
    findings: bool = False
    """Whether the images have findings, not classes."""
    said: str = ""
    """What the row says, where the notebook's exercises quote it."""


FACTOR, FLIP, PLACE = (
    "r.factor(step, scale)",
    "random.random() < 0.5",
    "integers(side - r.crop + 1)",
)
EPOCH, DRAW = "yield [(self.epoch, i) for i in batch]", "default_rng([r.seed, epoch, i])"
SHUFFLE, SGD = ".permutation(self.images)", "SGD(network.parameters(), momentum=r.momentum, **how)"
TRAIN, WRAP = (
    "train_steps(replica, loader, len(loader))",
    "DistributedDataParallel(network, **how)  # multi-GPU\n",
)
EACH, STRIDE = "(0, i) for i in range(len(part))", "order[rank::world]"
CAST = 'cast = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(r.precision)'

ALL_REDUCE_FOR_OTHERS = """
def deaf(group, bucket):
    own = bucket.buffer().clone()
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda _: own)


"""


def _train(batches: str, error: str) -> Plant:
    """The real training alone gets other batches."""
    return Plant("", {TRAIN: f"train_steps(replica, {batches}, len(loader))"}, error)


PLANTS = {
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
    "rate x 4": Plant(training_checks.RATE, {FACTOR: f"4 * {FACTOR}"}),
    "rate constant": Plant(training_checks.RATE, {FACTOR: "1.0"}),
    "rate of one device": Plant(
        training_checks.RATE,
        {'"linear": world': '"linear": 1', '"linear": n': '"linear": 1'},
        devices=2,
    ),
    "rate one step late": Plant(
        training_checks.RATE, {FACTOR: "r.factor(max(step - 1, 0), scale)"}
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
    # Crops
    "no flip": Plant(crops.MIRRORED, {FLIP: "random.random() < 0.0"}),
    "always flipped": Plant(crops.MIRRORED, {FLIP: "random.random() < 1.0"}),
    "flipped too rarely": Plant(crops.MIRRORED, {FLIP: "random.random() < 0.25"}),
    "centre crop": Plant(crops.PLACES, {f"random.{PLACE}": "(side - r.crop) // 2"}),
    "crops of one half": Plant(crops.PLACES, {PLACE: "integers((side - r.crop) // 2 + 1)"}),
    "without the last place": Plant(crops.PLACES, {PLACE: "integers(side - r.crop)"}),
    "brighter pixels": Plant(
        crops.FOUND, {"return pixels[:, ::-1] if": "return 1 + pixels[:, ::-1] if"}
    ),
    "the same crops in each epoch": Plant(crops.DRAWS, {DRAW: "default_rng([r.seed, i])"}),
    "the same crops in each batch": Plant(
        crops.DRAWS,
        {
            EPOCH: "yield [(place, i) for place, i in enumerate(batch)]",
            DRAW: "default_rng([r.seed, epoch])",
        },
    ),
    "one crop for a batch": Plant(
        crops.DRAWS,
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
    "other labels": Plant(
        training_checks.ORDER, {"self.part.targets[i], i": "self.part.targets[i - 1], i"}
    ),
    "no set_epoch": Plant(
        crops.DRAWS,
        {"loader.batch_sampler.set_epoch(epoch)": "pass"},
        said="augmentation (an image has the same crop in each epoch)",
    ),
    "set_epoch without effect": Plant(
        process_checks.ORDER, {"self.epoch = epoch": "self.epoch = 0"}
    ),
    # The evaluation
    "evaluation pixels of another crop": Plant(
        notebook_coverage.PIXELS, {"round((side - r.crop) / 2)": "round((side - r.crop) / 2) + 1"}
    ),
    "evaluation pixels of the resized image": Plant(
        notebook_coverage.PIXELS,
        {
            "(round((side - r.crop) / 2) for side in pixels.shape[:2])": (
                "0, 0\n"
                "    at = (np.linspace(0, k - 1, r.crop, dtype=int) for k in pixels.shape[:2])\n"
                "    pixels = pixels[np.ix_(*at)]"
            )
        },
    ),
    "evaluation pixels of another scale": Plant(
        notebook_coverage.PIXELS, {".float() / 255": ".float() / 256"}
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
    "another metric": Plant(
        loop.METRIC, {"(scores.argmax(1) == targets)": "(scores.argmin(1) == targets)"}
    ),
    "another AUC": Plant(
        loop.METRIC,
        {"scores[:, known])": 'scores[:, known], average="micro")'},
        findings=True,
    ),
    # Several devices
    "a step without DDP": Plant(
        training_loop.TOGETHER,
        {"criterion(model(to_network": "criterion(replica.network(to_network"},
        said="not the mean of all devices' gradients: does each device train alone?",
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
        WAY,
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


AND = " and "
_EVERY_DAY = ("rate of one device", "no flip", "weight decay missing", "no set_epoch")
EVERY_DAY = {
    DDP: (*_EVERY_DAY, "a step without DDP"),
    ONE_PROCESS: (*_EVERY_DAY, "one share for all"),
}
"""All at once; `make soak` has each plant, on one device and on two."""


def ended(
    notebook: str, folder: Path, devices: int, plants: Sequence[Plant] = (), **given: Any
) -> tuple[dict[str, Any], str]:
    """How a notebook with these plants ended: its record, and the error's text, if it had one.

    With a plant nothing is measured.

    Raises:
        AssertionError: the notebook has none of a plant's texts.
    """
    findings = any(plant.findings for plant in plants)
    write = own_networks.recipe_of_findings if findings else own_networks.recipe_of_classes
    recipe = write(folder / "recipe", "pytorch")
    recipe.write_text(recipe.read_text().replace("milestones = [2, 4]", "milestones = [1]"))
    waiting = list(plants)

    def changed(text: str) -> str:
        for plant in plants:
            for sound, broken in plant.texts.items():
                if sound in text:
                    text = text.replace(sound, broken)
                    waiting[:] = [each for each in waiting if each is not plant]
        return text.replace("run.measure(", "dict(") if plants else text

    how: dict[str, Any] = {"run": str(folder / "run"), "recipe": str(recipe), "devices": devices}
    how |= {"batch_size": 8, "epochs": 2, "num_workers": 1}
    until, error = "run.chart()" if plants else None, ""
    try:
        names = run_cells(notebook, until=until, changed=changed, **how, **given)
        notebook_run.end(names["run"])
    except Exception as raised:
        if not any(plant.error for plant in plants):
            raise
        error = str(raised)
    assert not waiting, f"{notebook} has none of {[list(plant.texts) for plant in waiting]}"
    content: Any = record.read(folder / "run")
    return content, error


def assert_there() -> None:
    """Every notebook has a text of each of its plants, and every text is that of a notebook."""
    cells = {notebook: cells_of(notebook) for notebook in NOTEBOOKS}
    for name, plant in PLANTS.items():
        found = [
            {notebook for notebook in plant.notebooks if text in cells[notebook]}
            for text in plant.texts
        ]
        assert all(found), f"{name}: a text is in no notebook"
        assert set().union(*found) == set(plant.notebooks), f"{name}: a notebook has none"


def cells_of(notebook: str) -> str:
    """The text of all cells."""
    content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    return "\n".join("".join(cell["source"]) for cell in content["cells"])


def assert_caught(names: str, notebook: str, folder: Path, devices: int) -> None:
    """Each plant's row tells that the notebook trained something else, or an error ended it.

    Args:
        names: of a plant, or of several, with ``AND`` between them.
    """
    plants = [PLANTS[name] for name in names.split(AND)]
    content, error = ended(notebook, folder, devices, plants)
    fairness = content.get("fairness", {"checks": []})
    wrong = {
        check["check"]: check.get("variant") or check["reason"]
        for check in fairness["checks"]
        if check["verdict"] in ("fail", "different")
    }
    missed = {plant.row for plant in plants if plant.row} - wrong.keys()
    assert not missed, f"{names} was not noticed by {missed}; found: {wrong}"
    assert all(plant.said in str(wrong.get(plant.row)) for plant in plants if plant.said), wrong
    assert all(plant.error in error for plant in plants), error
    assert error or not fairness["comparable"]


def assert_sound(notebook: str, folder: Path, devices: int, seed: int) -> None:
    """Without a plant no row fails, and the notebook comes to its end."""
    content, _ = ended(notebook, folder, devices, seed=seed)
    checks = content["fairness"]["checks"]
    verdicts = {check["check"]: check["verdict"] for check in checks}
    differing = {name for name, said in verdicts.items() if said not in ("pass", "not checked")}
    assert differing == (set() if devices == 1 else {UNEVEN}), checks
    assert content["fairness"]["comparable"] and content["state"] == "finished"
    unchecked = {name for name, said in verdicts.items() if said == "not checked"}
    alone = {SURVIVOR, *reference_checks.N_AGAINST_ONE, process_checks.REPLICAS}
    assert unchecked == {*custom_network.UNKNOWN, *(alone if devices == 1 else ())}
    reasons = {check["check"]: check["reason"] for check in checks}
    count = "1 process" if devices == 1 or notebook == ONE_PROCESS else "2 processes"
    who = "1 device" if devices == 1 else "2 devices"
    assert reasons[process_checks.JOINED] == f"{count}, {who}, 1 host"
    if devices == 1:
        assert "no_allreduce" not in content, "on one device there is no all-reduce to leave out"
        communication = content["attribution"]["ways"]["ablation"]["communication"]
        assert communication == pytest.approx(0)
    else:
        assert reasons[SURVIVOR] == "replica 0's"


def cases() -> Iterator[Any]:
    """(plants, notebook, devices) for pytest: some at once every day, else each."""
    for notebook in NOTEBOOKS:
        yield AND.join(EVERY_DAY[notebook]), notebook, 2
    for devices in (2, 1):
        for notebook in NOTEBOOKS:
            for name, plant in PLANTS.items():
                if notebook in plant.notebooks and plant.devices <= devices:
                    yield pytest.param(name, notebook, devices, marks=pytest.mark.slow)


def as_it_is() -> Iterator[Any]:
    """(notebook, devices, seed) for pytest: one device every day, for plants have two."""
    for notebook in NOTEBOOKS:
        yield notebook, 1, 0
        for devices in (2, 1):
            for seed in range(1, 21):
                yield pytest.param(notebook, devices, seed, marks=pytest.mark.slow)
