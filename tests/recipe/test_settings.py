import pytest

from helpers.errors import UserError
from helpers.recipe import RECIPES, lookup

ONE_DEVICE = {
    "chexnet": (64, 1e-4),
    "demo": (64, 1e-4),
    "resnet44-cifar10": (128, 0.1),
    "resnet50-imagenet": (32, 0.0125),
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("devices", [1, 4])
def test_linear_scaling(name: str, devices: int) -> None:
    record, (batch, rate) = lookup(name).on(devices).as_record(), ONE_DEVICE[name]
    assert record["global_batch_size"] == batch * devices
    assert record["scaled_learning_rate"] == pytest.approx(rate * devices, rel=1e-15)
    assert record["devices"] == devices


@pytest.mark.parametrize(("scaling", "rate"), [("linear", 4e-4), ("sqrt", 2e-4), ("none", 1e-4)])
def test_other_scalings(scaling: str, rate: float) -> None:
    recipe = lookup("demo", lr_scaling=scaling)
    assert recipe.on(4).learning_rate == pytest.approx(rate)
    assert recipe.with_batch_size(4 * 64).learning_rate == pytest.approx(rate)
    assert recipe.with_batch_size(4 * 64).batch_size == 256


def test_crop_suits_the_images() -> None:
    assert lookup("demo").for_images(64).crop == 54
    assert lookup("demo").for_images(264).crop == 224
    assert lookup("demo").for_images(128).crop == 109  # of 108.6
    assert lookup("resnet50-imagenet").for_images(128).crop == 112
    own = lookup("demo", reader="own", image_size=0, crop=0).for_images(48)
    assert (own.image_size, own.crop) == (48, 48)
    with pytest.raises(UserError, match="32 px"):
        lookup("demo").for_images(33)


def test_steps_drop_the_uneven_batch() -> None:
    assert lookup("demo").on(2).steps(128 * 3 + 127) == 3
    with pytest.raises(UserError, match=r"fill one global batch of 128 .*smaller batch size"):
        lookup("demo").on(2).steps(127)


def test_warmup_climbs_to_the_scaled_rate() -> None:
    scaled = lookup("chexnet", warmup_epochs=1.0).on(4)
    rates = [scaled.learning_rate_at(step, steps_per_epoch=10) for step in range(12)]
    assert rates[0] == pytest.approx(1e-4)
    assert rates[5] == pytest.approx(2.5e-4)
    assert rates[10] == rates[11] == pytest.approx(4e-4)
    assert lookup("chexnet").on(4).learning_rate_at(0, 10) == pytest.approx(4e-4)


def test_the_rate_drops_after_epochs() -> None:
    scaled = lookup("demo", lr_gamma=0.1, lr_milestones=(1, 3), warmup_epochs=0.5).on(2)
    rates = [scaled.learning_rate_at(step, steps_per_epoch=4) for step in range(14)]
    assert rates[:4] == pytest.approx([1e-4, 1.5e-4, 2e-4, 2e-4])
    assert rates[4:12] == pytest.approx([2e-5] * 8) and rates[12:] == pytest.approx([2e-6] * 2)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="execution: Invalid enum value 'fast'"):
        lookup("demo", execution="fast")


def test_a_schedule_in_words() -> None:
    recipe = lookup("resnet44-cifar10")
    assert ", warm-up epochs 1, x 0.1 after epochs 20, 30; " in str(recipe.on(1))
