"""Recipes from TOML files: what ships, somebody's own, and what is refused in one line."""

import hashlib
import os
from pathlib import Path

import pytest

from data_prep import readers
from helpers import paths
from helpers.__main__ import main
from helpers.errors import UserError
from helpers.recipe import RECIPES, custom_code, file_of, full_name, lookup, tables

CODE = "raise SystemExit('it was run')\n\n\ndef net(outputs): ...\n\n\nclass Reader: ...\n"
MODEL = '[model]\nnetwork = "resnet44"\n'
OWN = '[model]\npytorch = "mine.py:net"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_those_that_ship_are_these_four() -> None:
    assert set(RECIPES) == {"chexnet", "demo", "resnet44-cifar10", "resnet50-imagenet"}
    for name in ("resnet50-imagenet", "resnet44-cifar10"):
        recipe, small = RECIPES[name], lookup(name, demo=True)
        assert (recipe.task, recipe.metric, recipe.color_mode) == ("multiclass", "top1", "rgb")
        assert (recipe.optimizer, recipe.momentum, recipe.weight_decay) == ("sgd", 0.9, 1e-4)
        assert small.demo and small.epochs < recipe.epochs
        assert (small.network, small.optimizer) == (recipe.network, recipe.optimizer)


def test_a_recipe_of_ones_own(folder: Path) -> None:
    text = (
        '[data]\nreader = "mine.py:Reader"\nfolder = "pictures"\ncolor_mode = "rgb"\n'
        f'{OWN}mxnet = "mine.py:net"\n'
        '[train]\ntask = "multiclass"\nepochs = 40\noptimizer = "sgd"\nlearning_rate = 1\n'
        "lr_gamma = 0.1\nlr_milestones = [20, 30]\n[target]\nquality_targets = [0.5]\n"
        "[demo]\nepochs = 2\n[sweep]\ndevices = [1, 2]\n"
        '[slurm]\npartition = "gpu"\nsetup = ["module load cuda"]\n'
    )
    path = write(folder, text)
    found = file_of(str(path))
    recipe, digest = found.recipe, hashlib.sha256(CODE.encode()).hexdigest()
    assert (recipe.name, recipe.network, recipe.reader) == ("mine", "own", "own")
    own = {"pytorch": "mine.py:net", "mxnet": "mine.py:net", "reader": "mine.py:Reader"}
    assert recipe.own == own
    assert recipe.code == {"mine.py": digest} and recipe.folder == str(folder / "pictures")
    assert (recipe.image_size, recipe.crop, recipe.weights) == (0, 0, "random")
    assert (recipe.lr_gamma, recipe.lr_milestones) == (0.1, (20, 30))
    assert recipe.quality_targets == (0.5,)
    assert isinstance(recipe.learning_rate, float) and recipe.metric == "top1"
    assert found.demo.epochs == 2 and found.demo.demo and not recipe.demo
    assert found.slurm == {"partition": "gpu", "setup": ["module load cuda"]}
    assert recipe.lacks("pytorch") is None
    assert "no network of its own for keras" in str(recipe.lacks("keras"))
    record = recipe.on(2).as_record()
    assert record["task"] == "multiclass"
    assert recipe.digests() == {"mine.toml": record["sha256"], "mine.py": digest}


@pytest.mark.parametrize(
    ("train", "momentum"),
    [("epochs = 3", 0.9), ('optimizer = "sgd"', 0.0), ('optimizer = "adam"', 0.0)],
)
def test_another_optimizer_inherits_no_momentum(train: str, momentum: float, folder: Path) -> None:
    path = write(folder, f'recipe = "resnet44-cifar10"\n[train]\n{train}\n')
    assert file_of(str(path)).recipe.momentum == momentum


def test_the_digest_is_of_what_decides_a_run(folder: Path) -> None:
    """All but where and how often it is run; a job that asks for more time continues."""

    def digest(text: str) -> str:
        return file_of(str(write(folder, f'recipe = "demo"\n{text}'))).recipe.sha256

    plain = digest("[train]\nepochs = 2\n")
    assert plain == digest('[train]\nepochs = 2\n[slurm]\ntime = "90"\n[sweep]\nnnodes = [1]\n')
    assert plain == digest("# a remark\ntrain.epochs = 2\n")
    assert plain != digest("[train]\nepochs = 3\n")
    assert plain != digest("[train]\nepochs = 2\n[demo]\nepochs = 1\n")


def test_what_follows_replaces_what_it_begins_with(folder: Path) -> None:
    text = 'recipe = "resnet44-cifar10"\n[train]\nepochs = 7\n[demo]\nbatch_size = 8\n'
    path = write(folder, text)
    found, base = file_of(str(path)), RECIPES["resnet44-cifar10"]
    assert (found.recipe.epochs, found.recipe.batch_size) == (7, base.batch_size)
    assert (found.recipe.network, found.recipe.lr_milestones) == ("resnet44", (20, 30))
    assert found.demo.batch_size == 8 and found.demo.epochs == 4, "the shipped [demo] holds too"
    own = file_of(str(write(folder, f'recipe = "chexnet"\n{OWN}'))).recipe
    assert (own.network, own.image_size, own.weights) == ("own", 264, "random")
    other = '[data]\nreader = "imagefolder"\n'
    assert file_of(str(write(folder, f'recipe = "chexnet"\n{other}'))).recipe.image_size == 0


def test_readers_and_their_options(folder: Path) -> None:
    assert set(tables.READERS) == set(readers.READERS)
    text = f'[data]\nreader = "table"\nuncertain = "ignore"\ntable = "columns.toml"\n{MODEL}'
    recipe = lookup(str(write(folder, text)))
    assert recipe.options == {"uncertain": "ignore", "table": str(folder / "columns.toml")}


def test_a_file_is_found_from_here_and_from_the_checkout(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder, MODEL)
    monkeypatch.chdir(folder)
    assert full_name("mine.toml") == str(path) and full_name("demo") == "demo"
    assert full_name("recipes/demo.toml") == str(paths.ROOT / "recipes" / "demo.toml")


# Each recipe that is wrong, and what is said.
BAD = [
    (f"{MODEL}[train]\nepoch = 5\n", "train: Object contains unknown field `epoch`"),
    (f"epochs = 5\n{MODEL}", "Object contains unknown field `epochs`"),
    (f'{MODEL}[train]\nepochs = "ten"\n', "train.epochs: Expected `int`, got `str`"),
    (f"{MODEL}[train]\nlearning_rate = nan\n", "train.learning_rate: Expected `float` >= 1e-12"),
    (f"{MODEL}[train]\nmomentum = 0.9\n", "train.momentum: it goes with optimizer"),
    (f"{MODEL}[train]\nlr_gamma = 2\n", "train.lr_gamma: Expected `float` <= 1.0"),
    ("[train]\nepochs = 5\n", 'model: give either network = "densenet121"'),
    (f'{MODEL}pytorch = "mine.py:net"\n', "model: give either network"),
    ('[model]\nnetwork = "resnet45"\n', "model.network: Invalid enum value 'resnet45'"),
    # A pipe: who opened it would wait for ever.
    ('[model]\npytorch = "pipe.py:net"\n', "'pipe.py': there is no such file"),
    (
        f'[data]\nreader = "cifar10"\ngroup = "x"\n{MODEL}',
        "data.group: the reader cifar10 has no such option",
    ),
    (f"[data]\nimage_size = 32\ncrop = 33\n{MODEL}", "data.crop: 33 px do not fit into 32 px"),
    (f'{MODEL}[target]\nmetric = "top1"\n', "target.metric: 'top1' does not go with the task"),
    (f'{MODEL}[demo]\nnetwork = "resnet50"\n', "demo: Object contains unknown field `network`"),
    ('recipe = "mine"\n', "recipe: 'mine' is not a built-in recipe: begin with one of chexnet,"),
    (f'{MODEL}network = "resnet50"\n', "Cannot overwrite a value (at line 3"),
    ("[model]\nnetwork = resnet44\n", "Invalid value (at line 2"),
    ("model:\n  network: resnet44\n", "not TOML, as a recipe is"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_a_bad_recipe_is_one_line_and_nothing_of_it_is_run(
    text: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(folder / "pipe.py")
    path = write(folder, text)
    assert main(["run", "--recipe", str(path), "--dry-run"]) == 2
    shown, error = capsys.readouterr()
    assert shown == "" and error.startswith(f"error: {path}") and said in error
    assert error.count("\n") == 1


def test_a_recipe_of_ones_own_takes_no_name_that_ships(folder: Path) -> None:
    with pytest.raises(UserError, match="'chexnet' names a built-in recipe"):
        file_of(str(write(folder, MODEL, "chexnet.toml")))


@pytest.mark.parametrize("name", ["chexnett", "../../x"])
def test_an_unknown_recipe_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown recipe '{name}': the recipes are chexnet, demo"):
        lookup(name)


def test_own_code_is_named_before_it_runs_once(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = folder / "quiet.py"
    code.write_text("print('now it runs')\n\n\ndef net(outputs):\n    return outputs\n")
    recipe = lookup(str(write(folder, '[model]\npytorch = "quiet.py:net"\n')))
    assert capfd.readouterr().out == ""
    assert [custom_code.load(recipe, "pytorch")(outputs) for outputs in (5, 6)] == [5, 6]
    said = capfd.readouterr().out.splitlines()
    assert said == [f"Own code: {code}, SHA-256 {recipe.code['quiet.py'][:12]}", "now it runs"]
