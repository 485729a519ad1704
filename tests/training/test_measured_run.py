"""The run's own part, where no framework is needed; the frameworks' tests go through one."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice, repeat
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import records
from ipython_shell import shell_fixture, write_notebook
from runner_tools import images_fixture

from helpers import paths, record
from helpers.errors import LoaderError, UnsupportedError, UserError
from helpers.fairness import reference, training_loop
from helpers.frameworks import ROWS, rank_info
from helpers.frameworks.rank_info import Place
from helpers.launch import exchange, this_notebook
from helpers.networks import weights
from helpers.record import run_identity
from helpers.results.comparison import Entry
from helpers.training import (
    checkpoint,
    epochs,
    heartbeat,
    parameters,
    train_loop,
)
from helpers.training.epoch_lines import EpochLines
from helpers.training.measured_run import PARAMETERS, Run, begin
from helpers.training.world import TrainingFunctions, World

__all__ = ["images_fixture", "shell_fixture"]


def test_the_checkpoint_goes_only_once_the_record_is_whole(tmp_path: Path) -> None:
    """Else a run that could not finish its record had nothing left to go on with."""
    (tmp_path / checkpoint.FILE).write_bytes(b"weights")
    run = Run.__new__(Run)
    run.folder, run.rank, run._replica = tmp_path, 0, None

    def full() -> Path:
        raise OSError(28, "No space left on device")

    finish = Run.finish.__wrapped__  # type: ignore[attr-defined]
    run.record = SimpleNamespace(finish=full)  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space"):
        finish(run)
    assert (tmp_path / checkpoint.FILE).exists()
    run.record = SimpleNamespace(finish=lambda: tmp_path / "record.json")  # type: ignore[assignment]
    finish(run)
    assert not (tmp_path / checkpoint.FILE).exists()


FUNCTIONS = TrainingFunctions(print, print, print, print, print, print, print, print)  # type: ignore[arg-type]


def test_the_parameters_are_those_of_the_cell() -> None:
    assert {"recipe", "devices", "gpus", "seed"} <= set(PARAMETERS)
    assert not {"notebook", "nodes", "simulated_nodes"} & set(PARAMETERS)


@pytest.mark.parametrize(
    ("devices", "size", "gpus", "nodes", "virtual", "counts"),
    [
        (1, 8, 0, 2, False, (8, 4, False)),
        (1, 8, 0, 2, True, (8, 8, False)),  # simulated nodes share a machine's cores
        (1, 4, 4, 1, False, (4, 4, False)),
        (4, 4, 4, 1, False, (1, 4, False)),
        (1, 4, 2, 1, False, (4, 4, True)),
        (2, 2, 0, 1, False, (1, 2, False)),
    ],
)
def test_a_world_counts(
    devices: int, size: int, gpus: int, nodes: int, virtual: bool, counts: tuple[int, int, bool]
) -> None:
    kind = "gpu" if gpus else "cpu"
    world = World(0, size, ("device",) * devices, kind, gpus, nodes=nodes, simulated_nodes=virtual)
    assert (world.processes, world.on_machine, world.shares_gpus) == counts


CELL: dict[str, Any] = dict.fromkeys(("recipe", "data", "devices", "gpus", "run"), "auto")
CELL |= {"resume": False}
CELL |= {"cores_per_device": "auto", "loader_cores": "default"}
CELL |= {"seed": 0, "precision": "fp32", "warmup_epochs": 0}
CELL |= dict.fromkeys(("num_workers", "batch_size", "epochs"), "default")


def of_kernel(kernel: str, name: str = "framework") -> ModuleType:
    """A framework's module of which only the kernel is asked."""
    module = ModuleType(name)
    module.__dict__["KERNEL"] = kernel
    return module


def said_to_be(name: str, folder: Path | None = None) -> dict[str, Any]:
    """What the ``globals()`` of a notebook in VS Code say; with a folder, of one made there."""
    path = (folder or paths.NOTEBOOKS) / f"{name}.ipynb"
    if folder is not None:
        write_notebook(path, "seed = 0", "measured_run.begin(framework, globals())")
    return {this_notebook.VS_CODE: str(path)}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"seed": "one"}, "seed is 'one': give a whole number from 0 to 2147483647$"),
        ({"seed": -1}, "seed is -1: give"),
        ({"seed": 1.5}, "seed is 1.5: give"),
        ({"seed": True}, "seed is True: give"),
        ({"seed": 2**31}, "seed is 2147483648: give"),
        ({"data": None}, "data is None: give a name in quotes, or 'auto'"),
        ({"run": 3}, "run is 3: give a name"),
        ({"recipe": ["demo"]}, r"recipe is \['demo'\]: give a name"),
        ({"resume": "False"}, "resume is 'False': give True or False"),
        ({"warmup_epochs": 10**400}, "warmup_epochs is 1000"),
    ],
)
def test_a_parameter_typed_wrongly_is_named_before_anything_starts(
    typed: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    with pytest.raises(UserError, match=said):
        begin(of_kernel("pytorch"), CELL | typed | said_to_be("PyTorch_MultiGPU"))
    assert not list(tmp_path.iterdir())


def test_a_parameter_that_the_cell_does_not_set_is_named(tmp_path: Path) -> None:
    cell = {name: value for name, value in CELL.items() if name != "epochs"} | {"epoch": 1}
    with pytest.raises(UserError, match=r"cell of A_MultiGPU does not set epochs$"):
        begin(of_kernel("a"), cell | said_to_be("A_MultiGPU", tmp_path))


@pytest.mark.parametrize("planes", [1, 3])
def test_the_training_loop_check_steps_after_an_evaluation_with_as_many_planes_as_it_trains_on(
    planes: int,
) -> None:
    """A loop that stays in the evaluation's mode would else be noticed by no row.

    And MXNet stopped at a grey plane where the recipe's images are RGB.
    """
    given: list[Any] = []
    called: list[str] = []

    def make_fixed_loader(world: World, shares: list[Any]) -> Iterator[Any]:
        given.extend(shares)
        return repeat(shares)

    def train_epoch(replica: Any, loader: Any, steps: int, clock: Any) -> float:
        called.append("steps")
        clock.queued(None)
        return 0.5

    def predict(*given: Any) -> tuple[np.ndarray, float]:
        called.append("predict")
        return np.zeros((4, 14)), 0.5

    functions = SimpleNamespace(
        scope=nullcontext,
        start=lambda *given, **named: SimpleNamespace(network=None),
        make_fixed_loader=make_fixed_loader,
        ready=lambda *given: None,
        train_epoch=train_epoch,
        predict=predict,
        stop=lambda replica: None,
    )
    framework = SimpleNamespace(
        shallow=lambda *given: None,
        dump_weights=lambda network: {"after": 1},
        completion=lambda result: None,
    )
    images = SimpleNamespace(planes=planes)
    work: Any = SimpleNamespace(functions=functions, framework=framework, images=images)
    pixels, targets = reference.batch_of("multilabel")
    trial = training_loop.Trial({}, ((pixels, targets),), training_loop.SGD, (0.1,))
    loss, after, _ = train_loop.check_training_loop(World(0, 1, ("device",), "cpu"), work, trial)
    assert (loss, after) == (0.5, {"after": 1}) and called == ["predict", "steps", "predict"]
    assert given[0][0].shape == (*pixels.shape[:3], planes)
    assert all(np.array_equal(given[0][0][..., [n]], pixels) for n in range(planes))


@pytest.mark.parametrize("taken", [0, 3, 5])
def test_a_notebook_functions_that_takes_other_than_the_steps_it_was_asked_for_is_no_measurement(
    taken: int,
) -> None:
    """Its images would be counted as if it had."""

    def train_epoch(replica: Any, loader: Any, steps: int, clock: Any) -> float:
        for _ in range(taken):
            clock.queued(None)
        return 0.5

    functions = SimpleNamespace(train_epoch=train_epoch)
    framework = SimpleNamespace(completion=lambda result: None)
    work: Any = SimpleNamespace(functions=functions, framework=framework)
    with pytest.raises(LoaderError, match=f"^epoch 3: train_epoch took {taken} of 4 steps; let it"):
        train_loop.take_steps(work, None, None, 4, what="epoch 3")
    taken = 4
    assert train_loop.take_steps(work, None, None, 4)[0] == 0.5


def test_a_training_loader_that_ends_is_named_with_epoch_and_batches(tmp_path: Path) -> None:
    """A generator that only stopped was a RuntimeError, and in a replica a bare StopIteration."""

    def train_epoch(replica: Any, loader: Any, steps: int, clock: Any) -> float:
        for batch in clock.batches(islice(loader, steps)):
            clock.queued(batch)
        return 0.5

    work: Any = SimpleNamespace(framework=SimpleNamespace(completion=lambda _: None))
    said = "^epoch 3: the training loader gave 2 of 4 batches; let make_train_loader give batches w"
    steps = epochs.counted_steps(work, iter("ab"), 4, "epoch 3")
    with pytest.raises(LoaderError, match=said), steps as (batches, clock):
        train_epoch(None, batches, 4, clock)
    steps = epochs.counted_steps(work, iter("ab"), 4, what="epoch 3")  # as Chainer's loaders are
    with pytest.raises(LoaderError, match=said), steps as (batches, clock):
        for _ in range(4):
            clock.queued(next(batches))


@pytest.mark.parametrize("given", [0, 1, 9, 11])
def test_a_prediction_of_other_than_all_images_is_none(given: int) -> None:
    """The rest would be scored as if it had been seen."""
    functions: Any = SimpleNamespace(predict=lambda *_: (np.zeros((given, 14)), 0.5))
    said = f"^test: predict returned logits for {given} of 10 images; make_evaluation_loader must"
    with pytest.raises(LoaderError, match=said):
        train_loop.predict(functions, None, None, 10, "test")
    assert train_loop.predict(functions, None, None, given)[1] == 0.5


@pytest.mark.parametrize("watched", [True, False])
def test_within_an_epoch_one_line_is_replaced(
    watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """In a batch the runner shows it; the log of a run by hand would be full of it."""
    monkeypatch.delenv(heartbeat.VARIABLE, raising=False)
    if watched:
        monkeypatch.setenv(heartbeat.VARIABLE, str(tmp_path / heartbeat.FILE))
    recipe: Any = SimpleNamespace(recipe=SimpleNamespace(epochs=8), steps=lambda count: 10)
    lines = EpochLines(recipe, 100, "multiclass")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now - 30)
    lines.begin(2)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first = "Epoch 3 of 8: compiling, or in the first step, for 12 s"
    then = "Epoch 3 of 8: step 5 of 10, 5:30 left"
    lines.heard(epochs.Within(20, 12.3))
    lines.heard(epochs.Within(25, 30.0))
    if watched:
        assert capsys.readouterr().out == ""
        assert (tmp_path / heartbeat.MOVING).read_text() == then
        return
    assert capsys.readouterr().out == first + "\r" + then.ljust(len(first))
    lines.heard(epochs.Within(25, 30.0))
    assert capsys.readouterr().out == "\r" + then  # no longer than it has to be
    row = {"epoch": 3, "train_loss": 1.0, "valid_loss": 1.0, "valid_top1": 0.5, "valid_top5": 0.9}
    lines.heard(row | {"images_per_second": 9.0})
    lines.heard(row | {"images_per_second": 9.0})
    before, replaced, rest = capsys.readouterr().out.partition("\r")
    assert replaced and not before and "\r" not in rest
    assert [line[:18] for line in rest.splitlines()] == ["Epoch 3 of 8: loss"] * 2


@pytest.mark.parametrize("told", [{"run": "another"}, {}, None])
def test_weights_of_another_run_are_not_tested(told: dict[str, str] | None, tmp_path: Path) -> None:
    """After an interrupt, section 10 showed the AUC of the run before, by what that had left."""
    arrays = {"w": np.ones(3, np.float32)}
    run = Run.__new__(Run)
    run.folder, run._begin = tmp_path, SimpleNamespace(run="mine")  # type: ignore[assignment]
    if told is not None:
        weights.save(tmp_path / train_loop.WEIGHTS, arrays, told)
    with pytest.raises(UserError, match=r"another run has replaced this run's weights; run the ce"):
        run._trained_weights()
    weights.save(tmp_path / train_loop.WEIGHTS, arrays, {train_loop.RUN: "mine"})
    assert np.array_equal(run._trained_weights()["w"], arrays["w"])


@pytest.mark.parametrize("count", [1, 2])
def test_one_device_says_why_a_measurement_is_missing(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ("files", "synthetic", "loader", "product")
    run = SimpleNamespace(
        folder=tmp_path,
        history=[{"steps": 4, "train_seconds": 1.0}],
        initial=SimpleNamespace(arrays={}),
        functions=FUNCTIONS,
        with_replica=lambda *given: [{kind: [0.5] * 6 for kind in kinds}],
        monitor=SimpleNamespace(stop=lambda: None),
        recipe=SimpleNamespace(global_batch_size=64),
        record=SimpleNamespace(add=lambda *given: None),
        setup=SimpleNamespace(replicas=count),
        check_parameters=lambda: None,
        _arithmetic=lambda seconds: records.arithmetic(100.0),
    )
    assert len(Run.profile.__wrapped__(run)) == 3  # type: ignore[attr-defined]
    assert ("no all-reduce to leave out" in capsys.readouterr().out) == (count == 1)


def test_without_a_network_for_its_framework_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No image is made: the run is skipped, with the reason."""

    def too_late(*given: Any, **named: Any) -> Any:
        raise AssertionError("something was prepared")

    monkeypatch.setattr(parameters, "prepare_data", too_late)
    (tmp_path / "mine.py").write_text("def net(outputs):\n    raise AssertionError\n")
    recipe = tmp_path / "mine.toml"
    recipe.write_text('recipe = "demo"\n[model]\nmxnet = "mine.py:net"\n')
    names = CELL | {"recipe": str(recipe)}
    framework = of_kernel("tensorflow", "helpers.frameworks.keras")
    reason = "the recipe mine has no network of its own for keras, only for mxnet"
    with pytest.raises(UnsupportedError, match=reason):
        begin(framework, names | said_to_be("Keras_MultiGPU"))
    framework.__name__ = "helpers.frameworks.mxnet"
    with pytest.raises(AssertionError, match="something was prepared"):
        begin(framework, names | said_to_be("MXNet_Gluon_MultiGPU"))


def module(name: str, **more: Any) -> ModuleType:
    """A framework's module that has everything a run asks for before it trains."""
    row = next(row for row in ROWS if row.module == name)
    found = of_kernel(row.kernel, f"helpers.frameworks.{name}")
    found.__dict__.update(
        NAME=row.framework,
        SKIPPED={},
        versions=dict,
        list_devices=lambda kind, count, gpus: [kind] * count,
        configure=lambda precision, kind: None,
        **more,
    )
    return found


@pytest.fixture(name="cell")
def cell_fixture(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Parameters with which a run begins here."""
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return CELL | {"recipe": "demo", "data": str(images), "devices": 1, "warmup_epochs": "default"}


def test_a_copy_runs_under_its_own_name(cell: dict[str, Any], tmp_path: Path) -> None:
    for name, label in {
        "PyTorch_MultiGPU": "PyTorch",
        "PyTorch_MultiGPU-Copy1": "PyTorch-Copy1",
        "no_flip": "PyTorch no flip",
    }.items():
        run = begin(module("pytorch"), cell | said_to_be(name, tmp_path))
        assert run.folder == tmp_path / "runs" / "interactive" / f"{name}-1x"
        said = run.record.content["run"]
        assert said["notebook"] == name
        assert said["code"] == run_identity.follow(tmp_path / f"{name}.ipynb")()
        assert Entry(run.folder, run.record.content).label == label
        run.record.fail(KeyboardInterrupt())


@pytest.mark.parametrize(
    ("name", "of", "nodes"),
    [
        ("PyTorch_MultiGPU_Exp_Loss-Copy1", "pytorch", "PyTorch_MultiGPU spans"),
        ("Chainer_MultiGPU-Copy1", "chainer", "ChainerMN_MultiNode is Chainer across"),
        ("mine", "chainer", "ChainerMN_MultiNode is Chainer across"),
        ("ChainerMN_MultiNode-Copy1", "chainermn", None),
        ("mine", "chainermn", None),
        ("mine", "keras", "TensorFlow_MultiGPU spans"),
    ],
)
def test_a_copy_is_refused_what_its_original_is(
    name: str,
    of: str,
    nodes: str | None,
    cell: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = cell | said_to_be(name, tmp_path)
    on_a_rank(monkeypatch, tmp_path)
    if nodes is None:
        begin(module(of), names).record.fail(KeyboardInterrupt())
    else:
        with pytest.raises(UnsupportedError, match=nodes):
            begin(module(of), names)


def on_a_rank(patch: pytest.MonkeyPatch, folder: Path, rank: int = 0) -> None:
    """From now on this process is one of two nodes' ranks; nobody waits for the other."""
    addresses, names = ("127.0.0.1:1", "127.0.0.1:2"), ("here", "here")
    given: dict[str, Any] = {"virtual": True, "devices": 1, "kind": "cpu", "port": 3}
    where = Place(
        rank, 2, 2, hosts=names, addresses=addresses, interfaces=("lo",) * 2, folder=folder, **given
    )
    patch.setattr(rank_info, "here", lambda: where)
    patch.setattr(exchange, "exchange", lambda value: [value])


def test_the_first_ranks_record_is_that_of_all(
    cell: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (1, 0):
        on_a_rank(monkeypatch, tmp_path, rank)
        run = begin(module("pytorch"), cell | said_to_be("PyTorch_MultiGPU"))
        assert run.setup.replicas == 2
        assert (run.world.rank, run.world.size, run.world.processes) == (rank, 2, 2)
        run.record.finish() if rank else run.record.fail(KeyboardInterrupt())
        assert (run.folder / record.FILE).exists() == (rank == 0)


@pytest.mark.parametrize("name", ["ChainerMN_MultiNode", "ChainerMN_MultiNode-Copy1", "mine"])
def test_a_notebook_of_mpi_says_how_it_is_run(
    name: str, cell: dict[str, Any], tmp_path: Path
) -> None:
    said = (
        f"which a launcher starts: in a terminal run: rosetta run --notebooks {name} --devices N$"
    )
    with pytest.raises(UserError, match=said):
        begin(module("chainermn"), cell | said_to_be(name, tmp_path))


def test_a_misspelt_parameter_is_asked_about_before_a_run_begins(
    shell: Any, cell: dict[str, Any], tmp_path: Path
) -> None:
    shell.run_cell("epoch = 1", store_history=True)
    shell.run_cell("pass  # this cell begins the run", store_history=True)
    with pytest.raises(UserError, match=r"^epoch is not a param.*: recipe, .*, epochs, .*resume$"):
        begin(module("pytorch"), cell | {"epoch": 1} | said_to_be("N", tmp_path))
    assert not (tmp_path / "runs").exists()


SECTIONS = {
    "check_fairness": (None, None, None),
    "check_training_loop": (None,),
    **dict.fromkeys(("train", "test", "profile"), ()),
    **dict.fromkeys(("chart", "attribute_time", "finish"), ()),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_parameter_that_was_changed_since_section_3_is_named(
    section: str, cell: dict[str, Any], tmp_path: Path
) -> None:
    names = cell | said_to_be("N", tmp_path) | {"epochs": 4}
    run = begin(module("pytorch"), names)
    names["epochs"] = 1
    said = "^epochs is now 1 and was 4 when section 3 ran: run section 3 again$"
    with pytest.raises(UserError, match=said):
        getattr(run, section)(*SECTIONS[section])
    names["epochs"] = 4
    run.check_parameters()
    run.record.fail(KeyboardInterrupt())
