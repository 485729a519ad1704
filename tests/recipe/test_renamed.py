"""Recipes with the names of before: what they are now, and what is said of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.recipe import RECIPES, digest_now, file_of, recipe_file, renamed
from helpers.recipe.keys import TABLES

BEFORE = """recipe = "resnet44-cifar10"
[data]
resized = 40
crop = 32
colour = "grey"
shares = [0.6, 0.2, 0.2]
valid = 0.2
[model]
weights = "seeded"
[train]
task = "classes"
batch = 16
optimizer = "momentum"
scaling = "sqrt"
drops = {by = 0.5, epochs = [2, 3]}
[target]
values = [0.5]
[demo]
resized = 36
batch = 4
scaling = "none"
values = [0.25]
drops = {by = 0.1, epochs = [1]}
weights = "seeded"
[slurm]
gpus = "--gres=gpu:4"
memory = "64G"
before = ["true"]
options = ["--constraint=a100"]
"""
NOW = """recipe = "resnet44-cifar10"
[data]
image_size = 40
crop = 32
color_mode = "grayscale"
split = [0.6, 0.2, 0.2]
val_fraction = 0.2
[model]
weights = "random"
[train]
task = "multiclass"
batch_size = 16
optimizer = "sgd"
momentum = 0.9
lr_scaling = "sqrt"
lr_schedule = {gamma = 0.5, milestones = [2, 3]}
[target]
quality_targets = [0.5]
[demo]
image_size = 36
batch_size = 4
lr_scaling = "none"
quality_targets = [0.25]
lr_schedule = {gamma = 0.1, milestones = [1]}
weights = "random"
[slurm]
gres = "gpu:4"
mem = "64G"
setup = ["true"]
sbatch_args = ["--constraint=a100"]
"""
SAID = (
    "resized -> image_size, colour -> color_mode, color_mode \"grey\" -> \"grayscale\", "
    "shares -> split, valid -> val_fraction, weights \"seeded\" -> \"random\", "
    "task \"classes\" -> \"multiclass\", batch -> batch_size, "
    "optimizer \"momentum\" -> \"sgd\" with momentum = 0.9, scaling -> lr_scaling, "
    "drops -> lr_schedule = {gamma, milestones}, values -> quality_targets, "
    "gpus -> gres = \"gpu:4\", memory -> mem, before -> setup, options -> sbatch_args"
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_reported() -> Iterator[None]:
    renamed._reported.clear()
    yield
    renamed._reported.clear()


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_with_the_names_of_before_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, path = write(tmp_path, BEFORE, "before.toml"), write(tmp_path, NOW, "now.toml")
    old, new = recipe_file.read(before), recipe_file.read(path)
    assert old.slurm == new.slurm
    of_text = ("name", "text", "sha256")
    for one, other in ((old.recipe, new.recipe), (old.demo, new.demo)):
        first, second = (
            {key: value for key, value in vars(each).items() if key not in of_text}
            for each in (one, other)
        )
        assert first == second
    assert (old.recipe.lr_gamma, old.recipe.momentum, old.demo.batch_size) == (0.5, 0.9, 4)
    said = capsys.readouterr()
    line = f"{before}: old names, which are still read; the new ones: {SAID}\n"
    assert (said.out, said.err) == ("", line)
    recipe_file.read(before)
    assert capsys.readouterr().err == "", "once"


def test_every_new_name_is_a_key_and_no_old_one_is() -> None:
    for table, keys in renamed.KEYS.items():
        assert not keys.keys() & TABLES[table].keys()
        assert {name.new for name in keys.values()} <= TABLES[table].keys()


def test_both_names_at_once_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 'recipe = "demo"\n[train]\nbatch_size = 8\nbatch = 16\n')
    with pytest.raises(UserError) as refused:
        recipe_file.read(path)
    assert str(refused.value) == (
        f"{path}, line 4: 'batch' is the old name of 'batch_size', and both are given in [train]: "
        "keep 'batch_size'"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("batch = 0", "line 3: 'batch_size' in [train] is 0"),
        ("drops = {by = 2, epochs = [1]}", "line 3: 'lr_schedule' in [train] is"),
        ("drops = 3", "line 3: 'lr_schedule' in [train] is 3"),
        ("batchsize = 3", "line 3: unknown key 'batchsize' in [train]: did you mean 'batch_size'?"),
        ("scalling = 3", "line 3: unknown key 'scalling' in [train]: did you mean 'lr_scaling'?"),
    ],
)
def test_a_mistake_is_found_in_the_line_of_the_old_name(
    line: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        recipe_file.read(write(tmp_path, f'recipe = "demo"\n[train]\n{line}\n'))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ("--gres=gpu:a100:2", "gpu:a100:2"),
        ("--gpus-per-node=4", "gpu:4"),
        ("--gpus-per-node=a100:2,v100:1", "gpu:a100:2,gpu:v100:1"),
    ],
)
def test_gpus_of_a_node_become_generic_resources(given: str, now: str, tmp_path: Path) -> None:
    path = write(tmp_path, f'recipe = "demo"\n[slurm]\ngpus = "{given}"\n')
    assert recipe_file.read(path).slurm == {"gres": now}


@pytest.mark.parametrize(
    ("train", "momentum"),
    [
        ("epochs = 3", 0.9),
        ('optimizer = "sgd"', 0.0),
        ('optimizer = "momentum"', 0.9),
        ('optimizer = "momentum"\nmomentum = 0.5', 0.5),
        ('optimizer = "adam"', 0.0),
    ],
)
def test_plain_descent_inherits_no_momentum(train: str, momentum: float, tmp_path: Path) -> None:
    """As before, where momentum was an optimiser of its own."""
    path = write(tmp_path, f'recipe = "resnet44-cifar10"\n[train]\n{train}\n')
    rule = file_of(str(path)).recipe.rule
    assert rule.momentum == momentum
    assert rule.name == ("adam" if "adam" in train else "momentum" if momentum else "sgd")


def test_the_digest_is_of_the_text_whatever_its_names(tmp_path: Path) -> None:
    """A job that was queued with it goes on; where it runs is no part of it."""
    tables = BEFORE.partition("[slurm]")[0]
    one = recipe_file.read(write(tmp_path, BEFORE)).recipe.sha256
    assert one == recipe_file.read(write(tmp_path, tables)).recipe.sha256


def test_the_recipes_that_ship_are_known_by_their_digests_of_before() -> None:
    assert set(renamed.DIGESTS.values()) == RECIPES.keys()
    for digest, name in renamed.DIGESTS.items():
        assert digest_now(digest) == RECIPES[name].sha256 != digest
    assert digest_now("0" * 64) == "0" * 64
