import pytest

from helpers.errors import UserError
from helpers.recipe import RECIPES, lookup


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_linear_scaling(name: str, devices: int) -> None:
    record = lookup(name).on(devices).as_record()
    assert record["global_batch"] == 64 * devices
    assert record["scaled_learning_rate"] == pytest.approx(1e-4 * devices, rel=1e-15)
    assert record["devices"] == devices


def test_article_recipe() -> None:
    recipe = lookup("chexnet")
    assert (recipe.resized, recipe.crop, recipe.epochs, len(recipe.findings)) == (264, 224, 5, 14)


def test_both_recipes_keep_the_articles_ratio_of_crop_to_image() -> None:
    for recipe in RECIPES.values():
        assert recipe.crop == round(recipe.resized * 224 / 264)


def test_crop_suits_the_images() -> None:
    assert lookup("demo").for_images(64).crop == 54
    assert lookup("demo").for_images(264).crop == 224
    with pytest.raises(UserError, match="32 px"):
        lookup("demo").for_images(33)


def test_steps_drop_the_uneven_batch() -> None:
    assert lookup("demo").on(2).steps(128 * 3 + 127) == 3
    with pytest.raises(UserError, match="do not fill one global batch of 128"):
        lookup("demo").on(2).steps(127)


def test_warmup_climbs_to_the_scaled_rate() -> None:
    scaled = lookup("chexnet", warmup_epochs=1.0).on(4)
    rates = [scaled.learning_rate_at(step, steps_per_epoch=10) for step in range(12)]
    assert rates[0] == pytest.approx(1e-4)
    assert rates[5] == pytest.approx(2.5e-4)
    assert rates[10] == rates[11] == pytest.approx(4e-4)
    assert lookup("chexnet").on(4).learning_rate_at(0, 10) == pytest.approx(4e-4)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="unknown recipe 'chexnett'"):
        lookup("chexnett")
    with pytest.raises(UserError, match="unknown recipe field 'epoch'"):
        lookup("demo", epoch=3)
    with pytest.raises(UserError, match="at least one"):
        lookup("demo").on(0)
